"""Questions on a document from a file, each with the place of its answer; all of it is checked.

One JSON object a line: `question`, `answers` (the first as it stands at the place, the others as
they are accepted too) and `where` (`byte_offset`, and `path` or `doc`: the source's name or the end
of it). Every error names the line of the file. Knows nothing of models.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from longctx.core.errors import UnreadableInput, UsageError
from longctx.core.eval.case import Query, Span, is_named
from longctx.core.store.document import Document

FORM = (
    'Each line is {"question": "...", "answers": ["..."], "where": {"path": "...", '
    '"byte_offset": 0}}.'
)
SHOWN = 40  # bytes of what stands at a place, in an error


@dataclass(frozen=True)
class Item:
    """One line of a file.

    Attributes:
        line: its number, from 1.
        question: the words.
        answers: accepted ones; the first is how the document has it.
        source: name of the source, or the end of it; empty: the only one.
        offset: byte of the source at which the answer begins.
    """

    line: int
    question: str
    answers: tuple[str, ...]
    source: str
    offset: int


@dataclass(frozen=True)
class Placed:
    """A question with the place of its answer in a document.

    Attributes:
        item: of the file.
        query: what is asked; its span is the answer's bytes in the source.
        token: of the document, which holds the answer's first byte.
    """

    item: Item
    query: Query
    token: int


def read_items(path: Path) -> list[Item]:
    """The lines of a file; empty ones are left out.

    Raises:
        UsageError: there is no such file, no question in it, or a line that is none.
        UnreadableInput: it is not UTF-8 text.
    """
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        why = "it is not UTF-8 text"
        raise UnreadableInput(f"cannot read '{path}'", why, "Convert it first.") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"cannot read '{path}'", why, "Check the name of the file.") from error
    items = [_item(path, n, line) for n, line in enumerate(lines, 1) if line.strip()]
    if not items:
        raise UsageError(f"no questions in '{path}'", "it has no lines", FORM)
    return items


def place(path: Path, items: list[Item], document: Document) -> list[Placed]:
    """Finds the place of each answer.

    Args:
        path: of the file, for errors.
        items: its lines.
        document: what they ask about.

    Raises:
        UsageError: a source that the document does not have, an offset beyond it, or another text
            there than the first answer.
    """
    starts: dict[int, torch.Tensor] = {}
    return [_placed(path, item, document, starts) for item in items]


def _item(path: Path, number: int, line: str) -> Item:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise wrong(path, number, f"it is no JSON: {error}", FORM) from error
    values = values if isinstance(values, dict) else {}
    question, answers, where = (values.get(key) for key in ("question", "answers", "where"))
    if not _is_words(question):
        raise wrong(path, number, "it has no 'question' in words", FORM)
    if not isinstance(answers, list) or not answers or not all(map(_is_words, answers)):
        raise wrong(path, number, "it has no list 'answers' of one or more in words", FORM)
    try:
        "\n".join((question, *answers)).encode()
    except UnicodeEncodeError as error:  # JSON may name half of a character of two halves
        raise wrong(path, number, f"its words are no text: {error}", FORM) from error
    where = where if isinstance(where, dict) else {}
    offset, source = where.get("byte_offset"), where.get("path") or where.get("doc") or ""
    if type(offset) is not int or offset < 0:
        raise wrong(path, number, "its 'where' has no 'byte_offset' of 0 or more", FORM)
    if not isinstance(source, str):
        raise wrong(path, number, "its 'where' names no source in 'path' or 'doc'", FORM)
    return Item(number, question, tuple(answers), source, offset)


def _is_words(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _placed(path: Path, item: Item, document: Document, starts: dict[int, torch.Tensor]) -> Placed:
    number = _source(path, item, document)
    source = document.manifest.sources[number]
    if item.offset >= source.size:
        why = f"its byte {item.offset:,} is beyond '{source.name}', which has {source.size:,}"
        raise wrong(path, item.line, why, "Correct 'byte_offset', or ingest the right text.")
    answer = item.answers[0].encode(source.encoding or "utf-8", "replace")
    end = item.offset + len(answer)
    if document.text(number, item.offset, min(end, source.size)) != answer:
        there = document.text(number, item.offset, min(item.offset + SHOWN, source.size))
        shown = there.decode(source.encoding or "utf-8", "replace")
        why = f"at byte {item.offset:,} of '{source.name}' stands {shown!r}"
        why += f", not its first answer {item.answers[0]!r}"
        raise wrong(path, item.line, why, "Correct 'byte_offset', or ingest the right text.")
    if number not in starts:
        tokens = torch.arange(source.first_token, source.first_token + source.tokens)
        starts[number] = document.take("tokens", tokens, ("starts",))["starts"]
    # Of tokens that begin at the same byte, parts of one character, the last one has its bytes.
    token = int(torch.searchsorted(starts[number], item.offset, right=True)) - 1
    query = Query("qa", item.question, item.answers, (Span(item.offset, end, source.name),))
    return Placed(item, query, source.first_token + max(0, token))


def _source(path: Path, item: Item, document: Document) -> int:
    """The index of the source that a line names: its whole name, or the last parts of it."""
    names = [source.name for source in document.manifest.sources]
    found = [n for n, name in enumerate(names) if is_named(name, item.source)]
    if len(found) == 1:
        return found[0]
    count = "several sources" if found else "no source"
    named = f"named {item.source!r}" if item.source else "to choose without a 'path'"
    why = f"'{document.manifest.name}' has {count} {named}"
    known = ", ".join(f"'{name}'" for name in names[:5]) + (", ..." if len(names) > 5 else "")
    raise wrong(path, item.line, why, f"Its sources are {known}.")


def wrong(path: Path, line: int, why: str, remedy: str) -> UsageError:
    """The error of one line of a file."""
    return UsageError(f"cannot use line {line} of '{path}'", why, remedy)
