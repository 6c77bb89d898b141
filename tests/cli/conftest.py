"""What the command's tests share: a runner in an environment of its own, and a library to read."""

import os
import shutil
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import typer.testing
from typer.testing import CliRunner, Result

from longctx.cli.main import app
from longctx.cli.run import Run, start
from longctx.core.engine.choice import Setup
from longctx.core.ingest.ingest import ingest

# Every kind of thing that a text may hold and a terminal must not see, and what looks like markup.
TEXT = (
    "the keeper wrote in his book [red]that a boat[/red] came home at dawn\n"
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 salt \u202enews\u202c of \x9b1m rain \x08\x7f\n"
    "a boat came home [link=http://x]with news[/link] and the keeper wrote of rain\r\n"
) * 6


@pytest.fixture(scope="session", autouse=True)
def commands_made_once():
    """Typer's test runner makes all commands anew for each line: 30 ms, half of a short command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting, config file or library of the person who runs the tests, nor of another test."""
    start(Run())
    # After a Ctrl-C a program ends, and no further one does anything: not so the tests' process.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [*os.environ]:
        if name.startswith("LONGCTX_") or name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name)
    config = tmp_path / "config.toml"
    config.touch()
    monkeypatch.setenv("LONGCTX_CONFIG", str(config))
    monkeypatch.setenv("LONGCTX_DEFAULT_MODEL", "tiny")
    monkeypatch.setenv("LONGCTX_ANSWER_MODEL", "own")
    monkeypatch.setenv("LONGCTX_VECTORS", "0")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("LONGCTX_LIBRARY", str(tmp_path / "library"))


@pytest.fixture
def longctx() -> Callable[..., Result]:
    """Runs a command line in this process; standard input is no terminal."""

    def run(*args: object, **more: object) -> Result:
        return CliRunner().invoke(app, [str(arg) for arg in args], **more)

    return run


@pytest.fixture(scope="session")
def model_options(model_folder: Path) -> list[str]:
    """The options that choose the random model."""
    return ["--model", str(model_folder), "--profile", str(model_folder / "profile.yaml")]


@pytest.fixture(scope="session")
def shelf(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with the document "book", read by the random model; not to be changed."""
    folder = tmp_path_factory.mktemp("shelf")
    source = folder / "book.txt"
    source.write_bytes(TEXT.encode())
    setup = Setup(model=str(model_folder), profile=str(model_folder / "profile.yaml"))
    ingest(folder / "library", [str(source)], setup)
    return folder / "library"


@pytest.fixture
def library(shelf: Path, tmp_path: Path) -> Path:
    """A copy of the shelf in the place where commands look for a library."""
    return shutil.copytree(shelf, tmp_path / "library")
