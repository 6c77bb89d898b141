"""From a question to an answer in the queue's thread, and what is counted of it."""

from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from longctx.cli.serve.asked import Asked
from longctx.cli.serve.work import Pieces

if TYPE_CHECKING:
    from longctx import Answer, AnswerStream, Library


def begun(request: Request, question: Asked) -> "Pieces[Answer]":
    """Takes a place in the queue for a question.

    Raises:
        Refused: the queue is full.
        NotFound: there is no such document.
    """
    state = request.app.state
    library: Library = state.library
    require(library, question.document)

    def begin() -> "AnswerStream":
        if question.document:
            document = library.document(question.document)
            return document.ask(question.question, stream=True, **how)
        return library.ask(question.question, max_docs=state.options.max_docs, stream=True, **how)

    how = {"before": question.before, **question.how}
    return state.work.stream(begin, lambda answer: state.counts.answered(*counted(answer)))


def require(library: "Library", name: str) -> None:
    """Refuses a name that no document has, before anything waits for it.

    Args:
        library: the library.
        name: of a document; empty: all.

    Raises:
        NotFound: there is none of this name, or none at all.
    """
    library.document(name or None)


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
