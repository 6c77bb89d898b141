"""From a question to an answer in the queue's thread, and what is counted of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import State
from starlette.requests import Request

from longctx.cli.serve.asked import Asked
from longctx.cli.serve.work import Pieces

if TYPE_CHECKING:
    from longctx import Answer, Document, Documents, Library


async def begun(request: Request, question: Asked) -> "Pieces[Answer]":
    """Takes a place in the queue for a question.

    Raises:
        Refused: the queue is full.
        NotFound: there is no such document.
    """
    state = request.app.state
    await require(state.library, question.document)

    def ask(on_text: Callable[[str], None]) -> "Answer":
        asked = place(state, question.document)
        how = {"before": question.before, "on_text": on_text, **question.how}
        return asked.ask(question.question, **how)

    return state.work.stream(ask, lambda answer: state.counts.answered(*counted(answer)))


async def require(library: "Library", name: str) -> None:
    """Refuses a name that no document has, before anything waits for it.

    Args:
        library: the library.
        name: of a document; empty: all, of which it shows later whether there are any.

    Raises:
        NotFound: there is none of this name.
    """
    if name:
        await run_in_threadpool(library.document, name)


def place(state: State, name: str) -> "Document | Documents":
    """What is asked or searched: a document, or all of them; they stay open for the next question.

    Args:
        state: the application's.
        name: of a document; empty: all.

    Raises:
        LongctxError: as `longctx.Library.document`.
    """
    library: Library = state.library
    if name:
        return library.document(name)
    asked = library.together(max_docs=state.options.max_docs)
    state.resting.together.add(asked)
    return asked


async def whole(pieces: "Pieces[Answer]") -> "Answer":
    """The answer once it is complete; where its client leaves, it ends."""
    async for _ in pieces:
        pass
    return pieces.answer


def base_of(request: Request) -> str:
    """The server's address as this client calls it; its name was checked."""
    return f"{request.url.scheme}://{request.headers['host']}"


def counted(answer: "Answer") -> tuple[int, int]:
    """Tokens that the answering model read, and made.

    What it read is its question and what was put before it; where it attends to all that was kept,
    the document.
    """
    put = answer.state.get("read")
    before = put["tokens"] if put else answer.tokens["gathered"]
    return answer.tokens["question"] + before, answer.tokens["answer"]


def more(answer: "Answer") -> dict[str, Any]:
    """What no field of OpenAI's objects is for."""
    return {
        "found": answer.found,
        "evidence": answer.evidence,
        "documents": answer.documents,
        "continues": len(answer.continues),
        "tokens": answer.tokens,
        "timings": answer.timings,
    }
