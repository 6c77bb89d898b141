"""Finds the tokens of a document that hold the answers to questions.

A question with a byte offset is counted by that place. Any other is counted by text: all places
where an accepted answer occurs as whole words, in any case and spacing; if the question names a
line, only those that begin on it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from longctx.core.measure.case import CaseQuestion, Span, is_named
from longctx.core.measure.eval.qa_questions import Item
from longctx.core.store.document import Document

PLACE, LINE, TEXT = "place", "line", "text"  # how a question is counted
SHOWN = 40  # bytes of the text at a place, in an error
NAMED = 5  # places or sources that an error names


@dataclass(frozen=True)
class PlacedQuestion:
    """A question with the places of its answer in a document.

    Attributes:
        item: the question as in its file.
        query: what is asked; its spans are the bytes of the answer, wherever it occurs.
        counted: PLACE: it is gathered if the token of the answer's first byte is; LINE or TEXT: if
            all tokens of one of the places are.
        tokens: [first, end) of each place; empty: the answer is nowhere.
    """

    item: Item
    query: CaseQuestion
    counted: str
    tokens: tuple[tuple[int, int], ...]

    def is_among(self, chosen: Tensor) -> bool:
        """Whether gathered tokens, (n,) ascending, contain one of the places."""
        wanted = torch.tensor(self.tokens, dtype=torch.long).view(-1, 2)
        held = torch.searchsorted(chosen, wanted)
        return bool((held.diff(dim=1) == wanted.diff(dim=1)).any())


def place(items: Iterable[Item], document: Document) -> list[PlacedQuestion]:
    """Finds where each answer is.

    Args:
        items: questions of one or more files.
        document: the document they ask about.

    Raises:
        UsageError: the document has no such source, the offset is beyond its end or the first
            answer is not there, or no accepted answer begins on the line.
    """
    sources = [_Source(document, number) for number in range(len(document.manifest.sources))]
    return [_placed(item, sources) for item in items]


class _Source:
    """One source of a document, read when it is first needed."""

    def __init__(self, document: Document, number: int):
        self.info = document.manifest.sources[number]
        self.encoding = self.info.encoding or "utf-8"
        self._document, self._number = document, number

    def bytes(self, start: int, end: int) -> bytes:
        """Bytes [start, end), up to the end of the source."""
        return self._document.text(self._number, start, min(end, self.info.size))

    def place(self, offset: int) -> str:
        """Where the byte at `offset` is, as cited."""
        return self._document.place(self._number, offset)

    def tokens(self, start: int, end: int) -> tuple[int, int]:
        """The document's tokens [first, end) that hold bytes [start, end)."""
        # Tokens that begin at the same byte are parts of one character; the last one has its bytes.
        ends = torch.tensor([start, end - 1])
        first, last = (torch.searchsorted(self._starts, ends, right=True) - 1).tolist()
        return self.info.first_token + max(0, first), self.info.first_token + max(0, last) + 1

    def occurrences(self, words: str) -> Iterator[tuple[int, int]]:
        """Bytes [start, end) of each occurrence of these words, in order."""
        done, at = 0, 0  # characters and bytes before a match, counted from one match to the next
        for match in _pattern(words).finditer(self._text):
            at += self._size(done, match.start())
            yield at, at + self._size(*match.span())
            done = match.start()

    def _size(self, start: int, end: int) -> int:
        return len(self._text[start:end].encode(self.encoding, self._errors))

    @property
    def _errors(self) -> str:
        """The error handler that keeps the number of bytes of damaged text."""
        wide = self.encoding.startswith(("utf-16", "utf-32"))
        return "replace" if wide else "surrogateescape"

    @cached_property
    def _text(self) -> str:
        return self.bytes(0, self.info.size).decode(self.encoding, self._errors)

    @cached_property
    def _starts(self) -> Tensor:
        rows = torch.arange(self.info.first_token, self.info.first_token + self.info.tokens)
        return self._document.take("tokens", rows, ("starts",))["starts"]


def _pattern(words: str) -> re.Pattern[str]:
    """Matches words as `text_match.contained` does: whole, in any case and spacing."""
    spaced = r"\s+".join(map(re.escape, words.split()))
    return re.compile(rf"(?<!\w){spaced}(?!\w)", re.IGNORECASE)


def _placed(item: Item, sources: Sequence[_Source]) -> PlacedQuestion:
    if item.offset is not None:
        return _at_offset(item, item.offset, _only(item, sources))
    if item.line is not None:
        return _on_line(item, _only(item, sources))
    named = sources if not item.source else [_only(item, sources)]
    found = [(source, *span) for source in named for span in _standing(item, source)]
    return _of_text(item, TEXT, found)


def _at_offset(item: Item, offset: int, source: _Source) -> PlacedQuestion:
    name = source.info.name
    remedy = "Correct 'byte_offset', or ingest the right text."
    if offset >= source.info.size:
        why = f"its byte {offset:,} is beyond '{name}', which has {source.info.size:,}"
        raise item.wrong(why, remedy)
    answer = item.answers[0].encode(source.encoding, "replace")
    end = offset + len(answer)
    if source.bytes(offset, end) != answer:
        shown = source.bytes(offset, offset + SHOWN).decode(source.encoding, "replace")
        why = f"at byte {offset:,} of '{name}' stands {shown!r}"
        raise item.wrong(f"{why}, not its first answer {item.answers[0]!r}", remedy)
    first, _ = source.tokens(offset, end)
    spans = (Span(offset, end, name),)
    query = CaseQuestion("qa", item.question, item.answers, spans)
    return PlacedQuestion(item, query, PLACE, ((first, first + 1),))


def _on_line(item: Item, source: _Source) -> PlacedQuestion:
    standing = [(span, source.place(span[0])) for span in _standing(item, source)]
    found = [(source, *span) for span, place in standing if place == str(item.line)]
    if not found:
        others = [*dict.fromkeys(place for _, place in standing)]
        more = ", ..." if len(others) > NAMED else ""
        where = f"only at {', '.join(others[:NAMED])}{more}" if others else "nowhere in it"
        why = f"its answer does not stand on line {item.line} of '{source.info.name}', {where}"
        raise item.wrong(why, "Correct 'line' or the answer, or ingest the right text.")
    return _of_text(item, LINE, found)


def _of_text(item: Item, counted: str, found: Sequence[tuple[_Source, int, int]]) -> PlacedQuestion:
    spans = tuple(Span(start, end, source.info.name) for source, start, end in found)
    tokens = tuple(source.tokens(start, end) for source, start, end in found)
    return PlacedQuestion(
        item, CaseQuestion("qa", item.question, item.answers, spans), counted, tokens
    )


def _standing(item: Item, source: _Source) -> list[tuple[int, int]]:
    """Bytes [start, end) of each accepted answer in a source, in order."""
    return sorted({span for words in item.answers for span in source.occurrences(words)})


def _only(item: Item, sources: Sequence[_Source]) -> _Source:
    """The one source that a question names by its name or the end of its path."""
    names = [source.info.name for source in sources]
    found = [source for source in sources if is_named(source.info.name, item.source)]
    if len(found) == 1:
        return found[0]
    count = "several sources" if found else "no source"
    named = f"named {item.source!r}" if item.source else "to choose without a 'path'"
    known = ", ".join(f"'{name}'" for name in names[:NAMED]) + ", ..." * (len(names) > NAMED)
    raise item.wrong(f"the document has {count} {named}", f"Its sources are {known}.")
