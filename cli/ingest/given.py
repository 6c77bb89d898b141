"""The options of `ingest`, checked before anything slow: which go together, and what they mean."""

from typing import TYPE_CHECKING, Any

import typer

from longctx.core.common.errors import UsageError

if TYPE_CHECKING:
    from longctx.core.api.library import Library
    from longctx.core.api.reading import Reading

TYPED = "COMMANDLINE"  # the origin of a value typed for this run
READ_AS = (
    "method",
    "profile",
    "keep_kv",
    "kv_dtype",
    "precision",
)  # an existing document records these
ANEW = ("each", "replace", "dry_run")  # never used to extend a document


def require_fit(ctx: typer.Context, paths: list[str]) -> None:
    """Refuses options that contradict one another.

    Raises:
        UsageError: says what to do.
    """
    given = ctx.params
    if given["append"]:
        why = "a document that becomes longer is read on as it was begun"
        _refuse(_typed(ctx, "name", "units", "vectors", *ANEW, *READ_AS), "--append", why)
    if given["follow"]:
        _refuse([*_typed(ctx, *ANEW), *(["units"] if given["units"] else [])], "--follow")
        if paths[-1] == "-":
            raise UsageError("cannot follow standard input", "", "Name a file last.")
    alone = () if given["each"] else _typed(ctx, "ray", "retry", "shard", "workers")
    if alone:
        why = "it is about many documents"
        raise UsageError(f"--{alone[0]} needs --each", why, "Add --each, or leave it out.")
    if given["ray"] is not None:
        _require_rays_devices(given)
    if given["each"] and given["units"]:
        _refuse(["units"], "--each", "every file is a document by itself already")
    if given["each"] and (given["name"] or given["dry_run"]):
        named = given["name"]
        raise UsageError(
            f"cannot take --each with {'--name' if named else '--dry-run'}",
            "documents are named after their files" if named else "the figures are of one document",
            "Leave one of them out.",
        )


def _require_rays_devices(given: dict[str, Any]) -> None:
    """Refuses to choose devices that Ray chooses, wherever the choice is written.

    Raises:
        UsageError: says what to do.
    """
    why = "Ray gives each process a GPU, or --threads cores"
    _refuse([name for name in ("devices", "max_memory") if given[name] is not None], "--ray", why)
    if given["device"].startswith("cuda:"):
        what = f"--device {given['device']} cannot be given with --ray"
        raise UsageError(what, why, "Give --device cuda.")


def says_how_to_read(ctx: typer.Context) -> bool:
    """Whether the command line sets what an existing document records."""
    return bool(_typed(ctx, *READ_AS))


def _typed(ctx: typer.Context, *names: str) -> list[str]:
    """The options that come from the command line, not from the environment or a file."""
    sources = {name: ctx.get_parameter_source(name) for name in names}
    return sorted(name for name, source in sources.items() if source and source.name == TYPED)


def _refuse(names: list[str], other: str, why: str = "") -> None:
    """UsageError for the first of these options, if any, combined with another one."""
    if names:
        flag = "--" + names[0].replace("_", "-")
        raise UsageError(f"{flag} cannot be given with {other}", why, "Leave it out.")


def understood(ctx: typer.Context, library: "Library") -> "Reading":
    """The options that say how files are read, as the interface takes them.

    Args:
        ctx: the options of the command.
        library: where the document is, or will be.

    Raises:
        NotFound: there is no document to append to.
    """
    given = ctx.params
    return {
        "keep_kv": given["keep_kv"],
        "kv_dtype": given["kv_dtype"],
        "precision": given["precision"],
        "dtype": _dtype_wanted(ctx, library),
        "vectors": given["vectors"],
        "hidden": given["hidden"],
        "no_ignore": given["no_ignore"],
        "raw": given["raw"],
        "max_unpacked": given["max_unpacked"],
        "max_parser_memory": given["max_parser_memory"],
        "max_parser_time": given["max_parser_time"],
        "max_size": given["max_size"],
        "checkpoint": given["checkpoint"],
        "shared": given["shared"] and not given["dry_run"],
    }


def _dtype_wanted(ctx: typer.Context, library: "Library") -> str:
    """The number format to read in; for an existing document, only a typed one counts.

    A setting from the environment or the config file applies only to new documents.

    Raises:
        NotFound: there is no document to append to.
    """
    given, is_there = ctx.params, False
    if given["append"] or given["follow"]:
        found = library.standing(*given["paths"], name=given["name"], append=given["append"])
        is_there = found is not None
    return "auto" if is_there and not _typed(ctx, "dtype") else given["dtype"]
