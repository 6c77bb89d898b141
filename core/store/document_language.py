"""The language of a document, from the beginnings of its sources.

It depends on nothing but the text, so a document that was stopped, resumed or appended to has that
of one reading.
"""

from longctx.core.store.document import Document
from longctx.core.tokens.language import language_of

SOURCES, BYTES = 16, 8192  # the first sources, and how much of each


def document_language(document: Document) -> str:
    """The language that the beginnings of a document's first sources are in.

    Args:
        document: open, whole or a checkpoint.

    Returns:
        ISO 639-1 code, or "" where it is unknown.

    Raises:
        StateMismatch: its text is damaged.
    """
    texts = []
    for number, source in enumerate(document.manifest.sources[:SOURCES]):
        raw = document.text(number, 0, min(source.size, BYTES))
        texts.append(raw.decode(source.codec, errors="replace"))
    return language_of(texts)
