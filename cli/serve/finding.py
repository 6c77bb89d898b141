"""`POST /v1/find`: the best passages for a query, as `longctx find --json` prints them."""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from longctx.cli.serve.answering import place, require
from longctx.cli.serve.asked import ALL, document_of
from longctx.cli.serve.fields import read

if TYPE_CHECKING:
    from longctx import Findings

MOST = 1000  # passages


async def find(request: Request) -> JSONResponse:
    """Searches a document, or all of them."""
    body, state = await read(request), request.app.state
    body.require_known("model", "query", "k", "gather_by", "regexp", "gather", "files")
    name = document_of(body, body.text("model") or ALL)
    query, regexp = body.text("query") or "", body.text("regexp")
    if not query.strip() and regexp is None:
        body.refuse("query", "is missing; or give 'regexp'")
    most = body.whole("k")
    most = 10 if most is None else most
    if not 1 <= most <= MOST:
        body.refuse("k", f"must be from 1 to {MOST}")
    how = {
        "k": most,
        "gather_by": body.text("gather_by") or state.options.asked.get("gather_by"),
        "regexp": regexp,
        "gather": body.whole("gather"),
        "files": bool(body.flag("files")),
    }
    if how["gather"] is not None and how["gather"] < 1:
        body.refuse("gather", "must be 1 or more")
    await require(state.library, name)

    def found() -> "Findings":
        return place(state, name).find(query, **how)

    findings = await state.work.run(found)
    return JSONResponse(findings.as_dict())


routes = [Route("/v1/find", find, methods=["POST"])]
