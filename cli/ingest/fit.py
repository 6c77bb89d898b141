"""Which options of `ingest` go together, told before anything slow."""

import typer

from longctx.core.common.errors import UsageError

TYPED = "COMMANDLINE"  # where a value comes from that was given for this run
READ_AS = ("method", "profile", "keep_kv", "kv_dtype")  # what a document that is there says itself
ANEW = ("each", "replace", "dry_run")  # what no document becomes longer with


def require_fit(ctx: typer.Context, paths: list[str]) -> None:
    """Refuses options that contradict one another.

    Raises:
        UsageError: with what to do.
    """
    given = ctx.params
    if given["append"]:
        why = "a document that becomes longer is read on as it was begun"
        _refuse(_typed(ctx, "name", *ANEW, *READ_AS), "--append", why)
    if given["follow"]:
        _refuse(_typed(ctx, *ANEW), "--follow")
        if paths[-1] == "-":
            raise UsageError("cannot follow standard input", "", "Name a file last.")
    if given["each"] and (given["name"] or given["dry_run"]):
        named = given["name"]
        raise UsageError(
            f"cannot take --each with {'--name' if named else '--dry-run'}",
            "documents are named after their files" if named else "the figures are of one document",
            "Leave one of them out.",
        )


def dtype_to_go_on(ctx: typer.Context) -> str:
    """The number format that is wanted for a document that is there.

    One that is only a setting, of the environment or the config file, is for documents to come.
    """
    return ctx.params["dtype"] if _typed(ctx, "dtype") else "auto"


def says_how_to_read(ctx: typer.Context) -> bool:
    """Whether the command line says how to read what a document that is there says itself."""
    return bool(_typed(ctx, *READ_AS))


def _typed(ctx: typer.Context, *names: str) -> list[str]:
    """Those options that come from the command line, not from the environment or a file."""
    sources = {name: ctx.get_parameter_source(name) for name in names}
    return sorted(name for name, source in sources.items() if source and source.name == TYPED)


def _refuse(names: list[str], other: str, why: str = "") -> None:
    """UsageError for the first of these options, if there is any, beside another one."""
    if names:
        flag = "--" + names[0].replace("_", "-")
        raise UsageError(f"{flag} cannot be given with {other}", why, "Leave it out.")
