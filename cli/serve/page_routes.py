"""The page in the browser, its files, and what it asks: documents, their text, strips, answers.

Questions and readings take their places in the same queues as everybody's; texts and lists need no
model, and do not wait.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from longctx.cli.serve import sse, uploads
from longctx.cli.serve.answering import begun, place, require
from longctx.cli.serve.asked import Asked
from longctx.cli.serve.errors import Refused, as_dict
from longctx.cli.serve.fields import Fields, read
from longctx.core.ask.follow_up import Exchange

if TYPE_CHECKING:
    from longctx import Document, Findings, Library
    from longctx.core.report.strip import Strip

T = TypeVar("T")
FOLDER = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FILES = {file.name: file for file in FOLDER.iterdir() if file.suffix in TYPES}
MOST_FOUND = 100
MOST_MARKS = 200
BINS = 200
SIDE = 4000  # bytes of text on each side of a place


async def page(request: Request) -> Response:
    """The page."""
    return _file("index.html")


async def static(request: Request) -> Response:
    """One of its files."""
    return _file(request.path_params["name"])


async def listed(request: Request) -> Response:
    """All documents."""
    library: Library = request.app.state.library
    return JSONResponse(await run_in_threadpool(lambda: [_told(each) for each in library]))


async def one(request: Request) -> Response:
    """What is known of a document."""
    return JSONResponse(await run_in_threadpool(lambda: _named(request).as_dict()))


async def removed(request: Request) -> Response:
    """Deletes a document, once what is being answered has ended."""
    library: Library = request.app.state.library
    name = request.path_params["name"]
    if not await run_in_threadpool(library.__contains__, name):
        await require(library, name)  # says what is there instead
    await request.app.state.work.run(lambda: library.remove(name))
    return JSONResponse({"deleted": name})


async def text(request: Request) -> Response:
    """Lines of a source around bytes or a line, with what is to be marked in them."""
    query = request.query_params
    source = _number(request, "source", 0)
    line = _number(request, "line") if "line" in query else None
    start = _number(request, "start", 0)
    span = start, _number(request, "end", start)
    around = {side: _number(request, side, SIDE) for side in ("before", "after")}
    marks = [_pair(value, "mark") for value in query.getlist("mark")[:MOST_MARKS]]
    within = [_within(value) for value in query.getlist("chars")[:MOST_MARKS]]

    def shown() -> dict[str, Any]:
        document = _named(request)
        told = document.excerpt(source, span, line=line, **around, marks=marks, within=within)
        return told.as_dict()

    return JSONResponse(await run_in_threadpool(shown))


async def strip(request: Request) -> Response:
    """Where in a document the scores of a query lie; without one, only its sources."""
    bins, query = _number(request, "bins", BINS), request.query_params.get("q", "")
    document = await run_in_threadpool(_named, request)

    def drawn() -> "Strip":
        return document.strip(query, bins)

    run = request.app.state.work.run if query.strip() else run_in_threadpool
    return JSONResponse((await run(drawn)).as_dict())


async def ask(request: Request) -> Response:
    """Answers a question as it is made: events `piece`, then `answer`."""
    body, options = await read(request), request.app.state.options
    body.require_known("document", "question", "before")
    question = body.required("question")
    before = tuple(_exchange(body, item) for item in body.items("before"))
    name = body.text("document") or ""
    pieces = await begun(request, Asked("", name, question, before, dict(options.asked)))
    return await sse.streamed(
        pieces,
        begin=lambda: sse.ALIVE,
        show=lambda piece: sse.event({"text": piece}, "piece"),
        end=lambda answer: sse.event(answer.as_dict(), "answer"),
        fail=lambda refused: sse.event(as_dict(refused)["error"], "error"),
    )


async def find(request: Request) -> Response:
    """The best passages, as `longctx find --json` prints them."""
    body, state = await read(request), request.app.state
    body.require_known("document", "query", "k")
    query, most = body.required("query"), body.whole("k")
    most = 10 if most is None else most
    if not 1 <= most <= MOST_FOUND:
        body.refuse("k", f"must be from 1 to {MOST_FOUND}")
    name = body.text("document") or ""
    await require(state.library, name)

    def found() -> "Findings":
        return place(state, name).find(query, k=most)

    return JSONResponse((await state.work.run(found)).as_dict())


def _file(name: str) -> Response:
    """A file of the page; nothing but those that came with it."""
    file = FILES.get(name)
    if file is None:
        raise Refused(404, "there is no such file", "not_found")
    return FileResponse(file, media_type=TYPES[file.suffix])


def _named(request: Request) -> "Document":
    """The document of a request.

    Raises:
        NotFound: there is none of this name.
    """
    library: Library = request.app.state.library
    return library.document(request.path_params["name"])


def _told(document: "Document") -> dict[str, Any]:
    created = document.created
    return {
        "name": document.name,
        "tokens": document.tokens,
        "status": document.status,
        "sources": [*document.sources],
        "created": created.isoformat() if created else None,
        "size": document.size,
        "model": document.model,
    }


def _exchange(body: Fields, item: Any) -> Exchange:
    """An earlier question with its answer."""
    if not isinstance(item, dict):
        body.refuse("before", "must be a list of objects with 'question' and 'answer'")
    told = Fields(item, "before")
    return Exchange(told.required("question"), told.text("answer") or "")


def _number(request: Request, name: str, usual: int | None = None) -> int:
    """A whole number of the address, at least 0."""
    value = request.query_params.get(name)
    if value is None and usual is not None:
        return usual
    return _whole(value or "", name)


def _whole(value: str, name: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 15):
        raise Refused(400, f"{name!r} must be a whole number", "invalid_value", name)
    return int(value)


def _pair(value: str, name: str) -> tuple[int, int]:
    """Two numbers, `A-B`."""
    first, _, last = value.partition("-")
    return _whole(first, name), _whole(last, name)


def _within(value: str) -> tuple[int, tuple[int, int]]:
    """A byte and two characters behind it, `BYTE:A-B`."""
    byte, _, span = value.partition(":")
    return _whole(byte, "chars"), _pair(span, "chars")


routes = [
    Route("/", page, methods=["GET"]),
    Route("/static/{name}", static, methods=["GET"]),
    Route("/api/documents", listed, methods=["GET"]),
    Route("/api/documents/{name}", one, methods=["GET"]),
    Route("/api/documents/{name}", removed, methods=["DELETE"]),
    Route("/api/documents/{name}/text", text, methods=["GET"]),
    Route("/api/documents/{name}/strip", strip, methods=["GET"]),
    Route("/api/ask", ask, methods=["POST"]),
    Route("/api/find", find, methods=["POST"]),
    Route("/api/ingest", uploads.ingest, methods=["POST"]),
]
