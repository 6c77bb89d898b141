"""`GET /v1/models`: every document is a model, `longctx/NAME`; `longctx` asks all of them."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from longctx.cli.serve.asked import ALL, PREFIX
from longctx.cli.serve.errors import Refused

if TYPE_CHECKING:
    from longctx import Document, Library

OWNER = "longctx"


async def listed(request: Request) -> JSONResponse:
    """All documents that can be asked, those that are all read."""
    data = await run_in_threadpool(_models, request.app.state.library)
    return JSONResponse({"object": "list", "data": data})


async def one(request: Request) -> JSONResponse:
    """One of them."""
    wanted = request.path_params["model"]
    for told in await run_in_threadpool(_models, request.app.state.library):
        if told["id"] == wanted:
            return JSONResponse(told)
    raise Refused(404, f"no model {wanted[:200]!r}; see /v1/models", "model_not_found", "model")


def _models(library: "Library") -> list[dict[str, Any]]:
    documents = [document for document in library.documents() if document.status == "complete"]
    found = [_model(document) for document in documents]
    if found:
        newest, tokens = max(told["created"] for told in found), sum(d.tokens for d in documents)
        found.append(_told(ALL, newest, tokens))
    return found


def _model(document: "Document") -> dict[str, Any]:
    return _told(PREFIX + document.name, _seconds(document.created), document.tokens)


def _told(name: str, created: int, tokens: int) -> dict[str, Any]:
    told = {"id": name, "object": "model", "created": created, "owned_by": OWNER}
    return {**told, "tokens": tokens}


def _seconds(moment: datetime | None) -> int:
    """A moment as OpenAI has it: seconds since 1970; 0: unknown."""
    return 0 if moment is None else int(moment.timestamp())


routes = [
    Route("/v1/models", listed, methods=["GET"]),
    Route("/v1/models/{model:path}", one, methods=["GET"]),
]
