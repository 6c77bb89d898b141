"""The plugin of the command line `llm` (https://llm.datasette.io): documents as fragments.

`llm` loads it by the entry point of this package; nothing of ours imports it.
"""

import llm

import longctx
from longctx.core.common.errors import UsageError

PREFIX = "longctx"
PASSAGES = 8
WHOLE = 16_384  # tokens of a document that is given whole


@llm.hookimpl
def register_fragment_loaders(register) -> None:
    """Makes `longctx:` a kind of fragment."""
    register(PREFIX, load)


def load(argument: str) -> list[llm.Fragment]:
    """Passages of a document that longctx has read, each with file and line.

    longctx:NAME#QUESTION   the passages of NAME that fit a question best
    longctx:#QUESTION       those of all documents of the library
    longctx:NAME            the whole text, if it has at most 16,384 tokens
    """
    name, _, question = argument.partition("#")
    with longctx.Library() as library:
        if not question.strip():
            return _whole(library.document(name or None))
        found = library.find(question, [name] if name else None, k=PASSAGES)
        return [
            _fragment(passage.document, passage.cite, passage.text) for passage in found.passages
        ]


def _whole(document: "longctx.Document") -> list[llm.Fragment]:
    """Every text of a document.

    Raises:
        UsageError: it is too long for a prompt.
    """
    if document.tokens > WHOLE:
        raise UsageError(
            f"'{document.name}' is too long to be given whole",
            f"it has {document.tokens:,} tokens",
            f"Add a question: {PREFIX}:{document.name}#QUESTION.",
        )
    return [
        _fragment(document.name, source, document.text(source=number))
        for number, source in enumerate(document.sources)
    ]


def _fragment(document: str, cite: str, text: str) -> llm.Fragment:
    return llm.Fragment(f"[{cite}]\n{text}\n", f"{PREFIX}:{document}/{cite}")
