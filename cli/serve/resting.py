"""Documents are closed when nobody has asked for a while: open ones cannot be deleted or extended.

The model's weights stay, so the next question opens its document again in a moment.
"""

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakSet

from longctx.cli.serve.work import Work

if TYPE_CHECKING:
    from longctx import Document, Documents, Library

REST_S = 30.0  # seconds without a request for a document
USING = ("/v1/chat/", "/v1/responses", "/v1/find", "/api/")  # paths that may open one


class Resting:
    """Closes a library's documents when no request has come for `REST_S` seconds.

    Args:
        library: the library.
        work: the queue; while something is in it, nothing is closed.

    Attributes:
        together: what was asked of several documents together.
    """

    def __init__(self, library: "Library", work: Work):
        self._library, self._work = library, work
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self.together: WeakSet[Documents | Document] = WeakSet()

    def note(self, path: str) -> None:
        """A request has come; in the event loop's thread."""
        if path.startswith(USING):
            self._wait()

    def close(self) -> None:
        """Closes them now; in the queue's thread."""
        for asked in (*self._library.documents(), *self.together):
            asked.close()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(REST_S, self._rest)

    def _rest(self) -> None:
        if self._work.waiting or self._work.running:
            self._wait()
        else:
            self._closing = asyncio.ensure_future(self._work.run(self.close))
