"""Reads files of questions about a document, in two forms, and checks them.

JSON lines (any file that does not end in .yaml or .yml): one question per line; empty lines and
those that begin with `#` are skipped. YAML: `document`, the source that the questions are about,
and a list `questions`. A question has `question`, and `answers` or `answer` and `accept`; it may
say where its answer is: `line`, or `where` with `byte_offset` or `line`, and `path` (or `doc`), the
source's name or the end of its path. Every error names the line or the number of the question.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longctx.core.common.errors import UsageError
from longctx.core.common.regular_files import parsed_json
from longctx.core.measure.eval import data_files
from longctx.core.profile import safe_yaml

FORM = 'Each line is {"question": "...", "answers": ["..."]}, and may have "where" or "line".'
YAML_FORM = "It has a list 'questions', each with 'question' and 'answer', and maybe 'line'."
YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class Item:
    """One question of a file.

    Attributes:
        file: the file's name, as given.
        unit, number: "line" or "question", and its number in the file, from 1.
        question: its words.
        answers: accepted answers; with an offset, the document has the first of them there.
        source: name of the source, or the end of its path; empty: any, or the only one.
        offset: byte of the source at which the answer begins; None: not given.
        line: line of the source on which the answer begins, from 1; None: not given.
    """

    file: str
    unit: str
    number: int
    question: str
    answers: tuple[str, ...]
    source: str = ""
    offset: int | None = None
    line: int | None = None

    def wrong(self, why: str, remedy: str) -> UsageError:
        """The error for this question."""
        return _wrong(self.file, self.unit, self.number, why, remedy)


def read_items(path: Path) -> list[Item]:
    """The questions of a file.

    Raises:
        UsageError: no such file, no question in it, or an invalid question.
        UnreadableInput: a file of JSON lines is not UTF-8 text.
    """
    items = _of_yaml(path) if path.suffix.lower() in YAML else _of_lines(path)
    if not items:
        form = YAML_FORM if path.suffix.lower() in YAML else FORM
        raise UsageError(f"no questions in '{path}'", "it has none", form)
    return items


def _of_yaml(path: Path) -> list[Item]:
    values = safe_yaml.read_file(path, f"'{path}'")
    listed = values.get("questions") if isinstance(values, dict) else None
    source = values.get("document", "") if isinstance(values, dict) else ""
    if not isinstance(listed, list):
        raise UsageError(f"no questions in '{path}'", "it has no list 'questions'", YAML_FORM)
    if not isinstance(source, str):
        raise UsageError(f"cannot read '{path}'", "its 'document' is no name", YAML_FORM)
    numbered = enumerate(listed, 1)
    return [_Reading(path, "question", n, YAML_FORM).item(one, source) for n, one in numbered]


def _of_lines(path: Path) -> list[Item]:
    lines = data_files.read(path, "Check the name of the file.", encoding="utf-8-sig").split("\n")
    told = [(n, line) for n, line in enumerate(lines, 1) if line.strip()]
    return [_line(path, n, line) for n, line in told if not line.lstrip().startswith("#")]


def _line(path: Path, number: int, line: str) -> Item:
    reading = _Reading(path, "line", number, FORM)
    try:
        values = parsed_json(line)
    except ValueError as error:
        raise reading.wrong(f"it is no JSON: {error}") from error
    return reading.item(values, "")


@dataclass(frozen=True)
class _Reading:
    """Makes an `Item` of one question's values; errors name the question."""

    path: Path
    unit: str
    number: int
    form: str

    def item(self, values: Any, source: str) -> Item:
        """The question; `source` is what its file is about."""
        values = values if isinstance(values, dict) else {}
        question = values.get("question")
        if not _is_words(question):
            raise self.wrong("it has no 'question' in words")
        answers = self._answers(values)
        try:
            "\n".join((question, *answers)).encode()
        except UnicodeEncodeError as error:  # JSON may contain a lone surrogate
            raise self.wrong(f"its words are no text: {error}") from error
        return Item(
            str(self.path), self.unit, self.number, question, answers, *self._where(values, source)
        )

    def _answers(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        listed, one, more = (values.get(key) for key in ("answers", "answer", "accept"))
        if listed is None and one is None:
            raise self.wrong("it has no 'answer': it is missing, or stands in a comment")
        if listed is not None and (one is not None or more is not None):
            raise self.wrong("it has 'answers' and also 'answer' or 'accept'")
        if listed is not None and not _is_list(listed):
            raise self.wrong("it has no list 'answers' of one or more in words")
        if listed is None and not _is_words(one):
            raise self.wrong("its 'answer' is no text: words and numbers stand in quotes")
        if more is not None and not _is_list(more):
            raise self.wrong("its 'accept' is no list of one or more in words")
        return tuple(listed) if listed is not None else (str(one), *(more or ()))

    def _where(self, values: Mapping[str, Any], source: str) -> tuple[str, int | None, int | None]:
        where = values.get("where")
        if where is not None and not isinstance(where, dict):
            raise self.wrong("its 'where' is no object")
        where = where or {}
        source = where.get("path") or where.get("doc") or source
        if not isinstance(source, str):
            raise self.wrong("its 'where' names no source in 'path' or 'doc'")
        offset, line = where.get("byte_offset"), where.get("line", values.get("line"))
        if not _is_number(offset, 0):
            raise self.wrong("its 'byte_offset' is no number of 0 or more")
        if not _is_number(line, 1):
            raise self.wrong("its 'line' is no number of 1 or more")
        return source, offset, line

    def wrong(self, why: str) -> UsageError:
        """The error for this question."""
        return _wrong(str(self.path), self.unit, self.number, why, self.form)


def _wrong(file: str, unit: str, number: int, why: str, remedy: str) -> UsageError:
    return UsageError(f"cannot use {unit} {number} of '{file}'", why, remedy)


def _is_words(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_words, value))


def _is_number(value: Any, least: int) -> bool:
    return value is None or (type(value) is int and value >= least)
