"""`longctx.ingest`: for those who need no library of their own."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

from longctx.core.api.document import Document
from longctx.core.api.library import Library

if TYPE_CHECKING:
    from longctx.core.api.reading import Reading
    from longctx.core.ingest.job import Progress


def ingest(
    *paths: str | os.PathLike[str],
    name: str | None = None,
    replace: bool = False,
    append: str | Document | None = None,
    units: bool | None = None,
    on_progress: "Callable[[Progress], None] | None" = None,
    **how: "Unpack[Reading]",
) -> Document:
    """Reads files into a document of the default library; see `Library.ingest`."""
    return Library().ingest(
        *paths,
        name=name,
        replace=replace,
        append=append,
        units=units,
        on_progress=on_progress,
        **how,
    )
