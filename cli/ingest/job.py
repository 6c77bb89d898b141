"""The options of `ingest`, checked before anything slow: which go together, and what they mean.

`loading.make_setup` handles the model and how it reads.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from longctx.core.api.defaults import usual_model
from longctx.core.common.errors import UsageError

if TYPE_CHECKING:
    from longctx.core.store.manifest import Manifest

TYPED = "COMMANDLINE"  # the origin of a value typed for this run
READ_AS = ("method", "profile", "keep_kv", "kv_dtype")  # an existing document records these
ANEW = ("each", "replace", "dry_run", "units")  # never used to extend a document


def require_fit(ctx: typer.Context, paths: list[str]) -> None:
    """Refuses options that contradict one another.

    Raises:
        UsageError: says what to do.
    """
    given = ctx.params
    if given["append"]:
        why = "a document that becomes longer is read on as it was begun"
        _refuse(_typed(ctx, "name", *ANEW, *READ_AS), "--append", why)
    if given["follow"]:
        _refuse(_typed(ctx, *ANEW), "--follow")
        if paths[-1] == "-":
            raise UsageError("cannot follow standard input", "", "Name a file last.")
    if given["each"]:
        _refuse(_typed(ctx, "units"), "--each", "every file is a document by itself already")
    if given["each"] and (given["name"] or given["dry_run"]):
        named = given["name"]
        raise UsageError(
            f"cannot take --each with {'--name' if named else '--dry-run'}",
            "documents are named after their files" if named else "the figures are of one document",
            "Leave one of them out.",
        )


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


def understood(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `Job` that say what is read and how much of it may be kept.

    Args:
        given: the options of the command as typed.

    Raises:
        UsageError: a file is missing, or a number is invalid.
    """
    from longctx.core.common.units import parse_bytes, parse_seconds, parse_tokens_or_seconds
    from longctx.core.ingest.checkpoints import Cadence
    from longctx.core.sources.find import check
    from longctx.core.sources.rules import Rules

    unpacked, memory = given["max_unpacked"], given["max_parser_memory"]
    seconds, every = given["max_parser_time"], given["checkpoint"]
    rules = Rules(
        hidden=given["hidden"],
        ignored=given["no_ignore"],
        raw=given["raw"],
        max_unpacked=parse_bytes(unpacked) if unpacked else None,
        memory=parse_bytes(memory) if memory else None,
        seconds=parse_seconds(seconds) if seconds else None,
    )
    paths = [*given["paths"]]
    check(paths, rules)
    return {
        "paths": paths,
        "rules": rules,
        "cadence": Cadence.given(*parse_tokens_or_seconds(every)) if every else Cadence(),
        "max_size": parse_bytes(given["max_size"]) if given["max_size"] else None,
        "units": given["units"],
    }


def dtype_wanted(ctx: typer.Context, library: Path) -> str:
    """The number format to read in; for an existing document, only a typed one counts.

    A setting from the environment or the config file applies only to new documents.

    Raises:
        NotFound: there is no document to append to.
    """
    given, is_there = ctx.params, False
    if given["append"] or given["follow"]:
        is_there = _manifest(given, library) is not None
    return "auto" if is_there and not _typed(ctx, "dtype") else given["dtype"]


def model_wanted(ctx: typer.Context, library: Path) -> str | None:
    """The model to read with; an existing document, and one begun, has its own unless replaced.

    Raises:
        NotFound: there is no document to append to.
    """
    given = ctx.params
    if given["model"]:
        return given["model"]
    if given["append"]:
        return None
    there = None if given["replace"] or given["each"] else _manifest(given, library, partial=True)
    return there.model["name"] if there is not None else usual_model(given["device"])


def _manifest(given: dict[str, Any], library: Path, partial: bool = False) -> "Manifest | None":
    """The manifest of the document that is named or will be made, if there is one.

    Raises:
        NotFound: there is no document to append to.
    """
    from longctx.core.common.errors import LongctxError
    from longctx.core.store.library import Library
    from longctx.core.store.naming import called_after

    try:
        store, append = Library.open(library), given["append"]
        called = given["name"] or called_after(given["paths"][0])
        wanted = store.folder_named(append) if append else called
        return store.document(wanted, partial).manifest
    except LongctxError:
        if given["append"]:
            raise
        return None
