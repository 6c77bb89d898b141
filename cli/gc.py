"""`longctx gc`: deletes unused files from a library."""

from typing import TYPE_CHECKING, Annotated

from longctx.cli import options, render
from longctx.cli.settings import library_path
from longctx.cli.text import size

if TYPE_CHECKING:
    from longctx.core.store.upkeep import Swept

EXAMPLES = """\
  longctx gc --dry-run
  longctx gc
"""


def run(
    dry_run: Annotated[
        bool, options.flag("--dry-run", "Say what would be deleted, and delete nothing.")
    ] = False,
    library: options.LibraryDir = None,
    json: options.Json = False,
) -> None:
    """Deletes unused files from a library.

    These are left by commands that were killed: half-written files, files that belong to no
    document, readings that were stopped before their first checkpoint, locks of dead processes.
    Documents and checkpoints stay. Whatever another process uses, or longctx cannot read, is left
    alone and listed on standard error.
    """
    from longctx.core.store.library import Library
    from longctx.core.store.upkeep import sweep

    swept = sweep(Library.open(library_path(library)), dry_run)
    if not render.result(_values(swept, dry_run), json):
        _tell(swept, dry_run)


def _values(swept: "Swept", dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "bytes": swept.bytes,
        "removed": [{"path": item.path, "bytes": item.bytes} for item in swept.removed],
        "kept": [{"path": item.path, "why": item.why} for item in swept.kept],
    }


def _tell(swept: "Swept", dry_run: bool) -> None:
    for item in swept.removed:
        render.line(f"{item.path}: {size(item.bytes)}")
    for item in swept.kept:
        render.note(f"left alone: {item.path}: {item.why}")
    verb = "to remove" if dry_run else "removed"
    render.note(f"{len(swept.removed)} {verb}, {size(swept.bytes)}")
