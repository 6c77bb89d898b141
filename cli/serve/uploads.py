"""`POST /api/ingest`: a file that is sent is read into a document; how far is told meanwhile.

It is on disk until it is read (`spool.py`). The document's sources are called after the file as its
sender calls it.
"""

import time
import unicodedata
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from longctx.cli.serve import errors, sse
from longctx.cli.serve.errors import Refused
from longctx.cli.serve.spool import Upload
from longctx.core.ingest.identity import CannotGoOn
from longctx.core.store.naming import called_after, too_long

if TYPE_CHECKING:
    from longctx import Document, Library, Progress

PACE = 0.1  # seconds between two events of progress


async def ingest(request: Request) -> Response:
    """Reads a file: events `progress`, then `done` with the document's name.

    Where the client leaves, the reading ends; the same file sent again goes on from its last
    checkpoint.

    Raises:
        Refused: 400 for a name that no file has, 409 where there is a document of this name, 429
            where too many wait, 503 where all that is sent is too large, 507 on a full disk.
        UnreadableInput: nothing in it is text.
    """
    state = request.app.state
    name = _file_name(request.query_params.get("name", ""))
    replace = request.query_params.get("replace") == "1"
    if not replace:
        await run_in_threadpool(_require_new, state.library, called_after(name))
    with ExitStack() as held:
        upload = state.spool.open(int(request.headers.get("content-length", 0)))
        held.callback(upload.close)
        async for piece in request.stream():
            await upload.write(piece)
        await upload.complete()
        read = partial(_read, state.library, upload, name, replace)
        pieces = state.reading.stream(read, on_done=upload.close)
        held.pop_all()  # it is removed when the reading ends, or its client leaves the queue
    return await sse.streamed(
        pieces,
        begin=lambda: sse.ALIVE,
        show=lambda event: event,
        end=lambda document: sse.event(_done(document), "done"),
        fail=lambda refused: sse.event(errors.as_dict(refused)["error"], "error"),
    )


def _read(
    library: "Library", upload: Upload, name: str, replace: bool, tell: Callable[[str], None]
) -> "Document":
    """Reads a file that was sent, in the queue's thread."""
    how = {"name": called_after(name), "replace": replace, "passing": {str(upload.path): name}}
    read_it = partial(library.ingest, upload.path, on_progress=_paced(tell), **how)
    try:
        return read_it()
    except CannotGoOn as error:
        if replace:
            return read_it()  # what was begun of another text is dropped by now
        raise Refused(409, str(error), "exists") from error


def _paced(tell: Callable[[str], None]) -> "Callable[[Progress], None]":
    """What passes progress on as events, but not faster than anybody looks.

    Before anything was read there is none, so that an error has a status of its own.
    """
    told_at = -PACE

    def on_progress(state: "Progress") -> None:
        nonlocal told_at
        if state.processed > state.cache and time.monotonic() - told_at >= PACE:
            told_at = time.monotonic()
            tell(sse.event(progress(state), "progress"))

    return on_progress


def progress(state: "Progress") -> dict[str, Any]:
    """How far a reading is.

    Returns:
        `done` and `total` bytes (null: unknown), `rate` in bytes a second and `left_s` in seconds
        (null: unknown), `tokens`; `phase` where words are indexed or passages encoded.
    """
    seconds, new = state.time_ms / 1000, state.processed - state.cache
    rate = new / seconds if seconds and new else None
    left = None
    if rate is not None and state.total is not None:
        left = round(max(0, state.total - state.processed) / rate, 1)
    return {
        **{"done": state.processed, "total": state.total, "tokens": state.tokens},
        **{"rate": rate and round(rate, 1), "left_s": left},
        **({"phase": state.phase} if state.phase else {}),
    }


def _done(document: "Document") -> dict[str, Any]:
    return {"document": document.name, "tokens": document.tokens}


def _file_name(given: str) -> str:
    """The name of a file, without the folders that some programs put before it.

    Raises:
        Refused: 400, no file is called so.
    """
    name = given.replace("\\", "/").rpartition("/")[2].strip()
    controls = any(unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") for sign in name)
    if name in ("", ".", "..") or controls:
        raise Refused(400, "give the file's name, as ?name=book.txt", "invalid_value", "name")
    if why := too_long(name):
        raise Refused(400, f"the name is too long: {why}", "invalid_value", "name")
    return name


def _require_new(library: "Library", name: str) -> None:
    """Refuses to read into a document that is there.

    Raises:
        Refused: 409.
    """
    if any(each.name == name and each.status == "complete" for each in library):
        raise Refused(409, f"There is a document {name!r} already.", "exists")
