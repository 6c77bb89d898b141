"""Answers questions about documents longer than any model's window.

    import longctx

    document = longctx.ingest("book.txt")
    print(document.ask("Who found the map?"))

docs/python.md describes this interface; nothing in it is loaded before it is used. The command line
(`longctx`, `python -m longctx`) is in `cli`, what both call in `core`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longctx.core.api.document import Document
    from longctx.core.api.documents import Documents
    from longctx.core.api.library import Library
    from longctx.core.api.model import Model
    from longctx.core.api.passages import Findings, FoundPassage
    from longctx.core.api.shortly import ingest
    from longctx.core.api.stream import AnswerStream
    from longctx.core.ask.answer import Answer
    from longctx.core.ask.follow_up import Exchange
    from longctx.core.ask.place import Passage
    from longctx.core.ask.server.messages import Sent
    from longctx.core.common.errors import (
        Locked,
        LongctxError,
        NoAnswer,
        NotFound,
        StateMismatch,
        UnreadableInput,
        UsageError,
    )
    from longctx.core.ingest.ingested import Ingested
    from longctx.core.ingest.job import Progress
    from longctx.core.report.answers import Shown, answers_page

_ERRORS = "longctx.core.common.errors"
_PLACES = {
    "Answer": "longctx.core.ask.answer",
    "AnswerStream": "longctx.core.api.stream",
    "Document": "longctx.core.api.document",
    "Documents": "longctx.core.api.documents",
    "Exchange": "longctx.core.ask.follow_up",
    "Findings": "longctx.core.api.passages",
    "FoundPassage": "longctx.core.api.passages",
    "Ingested": "longctx.core.ingest.ingested",
    "Library": "longctx.core.api.library",
    "Locked": _ERRORS,
    "LongctxError": _ERRORS,
    "Model": "longctx.core.api.model",
    "NoAnswer": _ERRORS,
    "NotFound": _ERRORS,
    "Passage": "longctx.core.ask.place",
    "Progress": "longctx.core.ingest.job",
    "Sent": "longctx.core.ask.server.messages",
    "Shown": "longctx.core.report.answers",
    "StateMismatch": _ERRORS,
    "UnreadableInput": _ERRORS,
    "UsageError": _ERRORS,
    "answers_page": "longctx.core.report.answers",
    "ingest": "longctx.core.api.shortly",
}

__all__ = [
    "Answer",
    "AnswerStream",
    "Document",
    "Documents",
    "Exchange",
    "Findings",
    "FoundPassage",
    "Ingested",
    "Library",
    "Locked",
    "LongctxError",
    "Model",
    "NoAnswer",
    "NotFound",
    "Passage",
    "Progress",
    "Sent",
    "Shown",
    "StateMismatch",
    "UnreadableInput",
    "UsageError",
    "answers_page",
    "ingest",
]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        from importlib import import_module

        found = globals()[name] = getattr(import_module(_PLACES[name]), name)
        return found
    if name == "__version__":
        from importlib.metadata import version

        from longctx.core.common.distribution import NAME

        return version(NAME)
    raise AttributeError(f"module 'longctx' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
