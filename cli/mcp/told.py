"""Results as text, for the model that a client runs.

Text of documents is quoted behind "> ", line by line, so that none of it can be taken for words of
this program.
"""

from longctx.cli.mcp.results import Answer, Document, Documents, Found, Ingested, Passage
from longctx.cli.text import clean, counted, one_line


def documents(listed: Documents) -> str:
    """A line for each document."""
    if not listed.documents:
        return "The library has no documents."
    return "\n".join(_document(document) for document in listed.documents)


def found(result: Found, query: str) -> str:
    """The passages, each quoted behind its place."""
    where = ", ".join(map(one_line, result.documents))
    count = counted(len(result.passages), "passage")
    head = f"{count} for {one_line(query)!r} in {where} (found: {result.found})"
    return "\n\n".join([head, *map(_passage, result.passages)])


def answer(result: Answer) -> str:
    """The answer, the sentence that it stands in, and where the passages are."""
    parts = [f"Answer (found: {result.found}):\n{_quoted(result.answer)}"]
    if result.sentence is not None:
        parts.append(f"From {one_line(result.cite or '')}:\n{_quoted(result.sentence)}")
    if result.passages:
        listed = "\n".join(f"{one_line(p.cite)}  {p.uri}" for p in result.passages)
        parts.append(f"Passages it is based on:\n{listed}")
    return "\n\n".join(parts)


def ingested(result: Ingested) -> str:
    """What the document is, and what could not be read."""
    there = ["It was there already, of the same files."] if result.unchanged else []
    unread = [f"not read: {one_line(why)}" for why in result.unread]
    return "\n".join([_document(result.document), *there, *unread])


def _document(document: Document) -> str:
    texts = counted(document.source_count, "text")
    name, status = one_line(document.name), document.status
    return f"{name}: {document.tokens:,} tokens, {texts}, {status}  {document.uri}"


def _passage(passage: Passage) -> str:
    return f"{one_line(passage.cite)}  {passage.uri}\n{_quoted(passage.text)}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in clean(text).strip("\n").split("\n"))
