"""The application: routes around a library, behind the guard."""

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from longctx.cli.serve import chat, errors, finding, health, models, page_routes, responses
from longctx.cli.serve.errors import Refused
from longctx.cli.serve.guard import App, Guard
from longctx.cli.serve.health import Counts
from longctx.cli.serve.options import Options
from longctx.cli.serve.resting import Resting
from longctx.cli.serve.spool import Spool
from longctx.cli.serve.work import Work
from longctx.core.common.errors import LongctxError

if TYPE_CHECKING:
    from longctx import Library

ROUTES = [*health.routes, *models.routes, *chat.routes, *responses.routes, *finding.routes]
ROUTES += page_routes.routes
READINGS = 4  # files that may wait to be read


def make_app(library: "Library", options: Options) -> "Guarded":
    """The application.

    Args:
        library: whose documents are served, with its model.
        options: the server's.

    Returns:
        An ASGI application. `state` has `library`, `options`, `counts`, `spool` for files that are
        sent, and two queues: `work` for what answers and finds, `reading` for what reads new
        documents, which takes turns with it.
    """
    caught = (Refused, LongctxError, HTTPException, Exception)
    inside = Starlette(routes=ROUTES, exception_handlers=dict.fromkeys(caught, errors.handle))
    state = inside.state
    state.library, state.options, state.counts = library, options, Counts()
    state.spool = Spool(options.uploads)
    state.work, state.reading = Work(options.waiting), Work(READINGS)
    state.resting = Resting(library, state.work)
    return Guarded(inside, options)


class Guarded(Guard):
    """The application with its guard.

    Attributes:
        state: what its routes share.
    """

    def __init__(self, inside: Starlette, options: Options):
        self.state = inside.state
        app: App = inside
        super().__init__(app, options, self._note)

    def _note(self, path: str, status: int) -> None:
        self.state.counts.request(path, status)
        self.state.resting.note(path)

    def close(self) -> None:
        """Ends its queues, and removes what was sent; the library is its maker's."""
        self.state.work.close()
        self.state.reading.close()
        self.state.spool.close()
