"""`longctx doctor`: what this machine offers longctx, and whether longctx works."""

import os
import shutil
import stat
from pathlib import Path
from typing import Annotated, Any

import typer

from longctx.cli import installation, options, progress, render
from longctx.cli.loading import make_setup
from longctx.cli.report import versions
from longctx.cli.settings import config_path, library_path
from longctx.cli.text import size
from longctx.core.common import distribution
from longctx.core.common.distribution import version

EXAMPLES = """\
  longctx doctor
  longctx doctor --json
  longctx doctor --fix
"""
EXTRAS = {  # of pyproject.toml, those for users: what each is for
    "documents": "PDF, .xlsx, .msg, .rtf and .zst files",
    "gguf": "i-quants and other rare types of GGUF models",
    "mcp": "`longctx mcp`",
    "ray": "`longctx ingest --ray`",
    "serve": "`longctx serve`",
}
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def run(
    fix: Annotated[
        bool,
        options.flag(
            "--fix",
            "Remove all rights that others than the owner have in the library, after listing "
            "them; off by default.",
        ),
    ] = False,
    library: options.LibraryDir = None,
    json: options.Json = False,
) -> None:
    """Checks this installation.

    Reports versions, optional packages that are missing and what installs them, devices, free
    memory and disk, and who else may read the library, and runs the self-check of the bundled
    model. The exit code is 1 if something would keep longctx from working.
    """
    offline = [name for name in OFFLINE if os.environ.get(name, "0") not in ("", "0")]
    make_setup(model=None)
    report = {
        "versions": versions(),
        "extras": _extras(),
        "devices": _devices(),
        **_computing(),
        "library": _library(library_path(library), fix),
        "config": {"path": str(config_path()), "exists": config_path().is_file()},
        "offline": offline,
    }
    with progress.status("checking the bundled model"):
        report["bundled_model"] = _bundled_model(report["auto"])
    report["warnings"] = installation.warnings()
    report["problems"] = _problems(report)
    if not render.result(report, json):
        render.facts(_facts(report))
    raise typer.Exit(1 if report["problems"] else 0)


def _extras() -> list[dict[str, Any]]:
    """The optional parts of the package: what each lacks, and the command that installs it."""
    told = []
    packages = distribution.extras()
    for name, purpose in EXTRAS.items():
        missing = [package for package in packages.get(name, []) if version(package) is None]
        command = distribution.install_command(*missing) if missing else None
        told.append({"extra": name, "for": purpose, "missing": missing, "command": command})
    return told


def _extra(told: dict[str, Any]) -> tuple[str, str]:
    """The line on one of them."""
    if not told["missing"]:
        return told["extra"], f"installed, for {told['for']}"
    missing = ", ".join(told["missing"])
    return told["extra"], f"without {missing}, for {told['for']}: {told['command']}"


def _devices() -> list[dict[str, Any]]:
    import torch

    from longctx.core.common.device import device_name, free_memory

    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    names = ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]
    return [
        {
            "device": name,
            "name": device_name(name),
            "memory_free": free_memory(name),
        }
        for name in names
    ]


def _computing() -> dict[str, Any]:
    import torch

    from longctx.core.common.device import choose_device, choose_dtype, dtype_name

    device = choose_device()
    dtype = dtype_name(choose_dtype("auto", device))
    return {"auto": {"device": device, "dtype": dtype}, "threads": torch.get_num_threads()}


def _library(path: Path, fix: bool) -> dict[str, Any]:
    """Where documents go, and whether that is writable: the nearest existing folder decides."""
    home = next(place for place in (path, *path.absolute().parents) if place.exists())
    return {
        "path": str(path),
        "exists": path.is_dir(),
        "writable": home.is_dir() and os.access(home, os.W_OK | os.X_OK),
        "disk_free": shutil.disk_usage(home).free,
        **_others(path, fix),
    }


def _others(path: Path, fix: bool) -> dict[str, Any]:
    """Who else can read the library; with `fix`, nobody afterwards.

    Raises:
        LongctxError: something in it belongs to another user.
    """
    from longctx.core.common.errors import LongctxError
    from longctx.core.store.library import Library
    from longctx.core.store.upkeep import make_private, open_to_others

    try:
        library = Library.open(path)
    except LongctxError:  # there is none, or it is not a library; other commands say so
        return {"mode": None, "open_to_others": 0, "made_private": 0}
    mode, found = stat.S_IMODE(path.stat().st_mode), len(open_to_others(library))
    if fix and found:
        render.note(
            f"Others may read {found:,} files and folders of {render.one_line(str(path))} "
            f"(mode {mode:03o}); they become their owner's alone"
        )
        make_private(library)
    return {
        "mode": f"{mode:03o}",
        "open_to_others": 0 if fix else found,
        "made_private": found if fix else 0,
    }


def _bundled_model(auto: dict[str, str]) -> dict[str, Any]:
    """Loads the bundled model and runs its self-check again."""
    from longctx.core.common.device import choose_dtype
    from longctx.core.common.errors import LongctxError
    from longctx.core.model.files import BUNDLED, open_model_files
    from longctx.core.model.load import load_decoder

    try:
        files = open_model_files(BUNDLED)
        dtype = choose_dtype(auto["dtype"], auto["device"])
        load_decoder(str(files.folder), files.config, auto["device"], dtype, {})
    except LongctxError as error:
        return {"name": BUNDLED, "works": False, "error": str(error)}
    return {"name": BUNDLED, "works": True, "error": None}


def _problems(report: dict[str, Any]) -> list[str]:
    problems = []
    if not report["library"]["writable"]:
        problems.append(f"library '{report['library']['path']}' cannot be written")
    if not report["bundled_model"]["works"]:
        problems.append(f"bundled model: {report['bundled_model']['error']}")
    return problems


def _facts(report: dict[str, Any]) -> list[tuple[str, str]]:
    auto, place, config = report["auto"], report["library"], report["config"]
    writable = "writable" if place["writable"] else "not writable"
    works = "works, self-check passed" if report["bundled_model"]["works"] else "does not work"
    return [
        *((name, version or "not installed") for name, version in report["versions"].items()),
        *map(_extra, report["extras"]),
        *(
            (device["device"], f"{device['name']}, {size(device['memory_free'])} free")
            for device in report["devices"]
        ),
        ("auto", f"{auto['device']} in {auto['dtype']}, {report['threads']} CPU threads"),
        ("library", f"{place['path']} ({writable}, {size(place['disk_free'])} free on disk)"),
        *_rights(place),
        ("config", config["path"] + ("" if config["exists"] else " (there is none)")),
        (
            "offline",
            ", ".join(report["offline"]) or "no; the hub is asked only for a model of its own",
        ),
        ("bundled model", works),
        *(("warning", warning) for warning in report["warnings"]),
        *(("problem", problem) for problem in report["problems"]),
    ]


def _rights(place: dict[str, Any]) -> list[tuple[str, str]]:
    """The lines on who else can read the library."""
    if place["made_private"]:
        return [("", f"{place['made_private']:,} files and folders are now private")]
    if not place["open_to_others"]:
        return []
    return [
        (
            "",
            f"others may read {place['open_to_others']:,} files and folders of it (mode "
            f"{place['mode']}); --fix removes the rights of others",
        )
    ]
