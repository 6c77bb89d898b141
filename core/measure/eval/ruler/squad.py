"""Reads files of paragraphs with questions: SQuAD's JSON, or JSON lines."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longctx.core.common.errors import UsageError
from longctx.core.common.regular_files import parsed_json
from longctx.core.measure.eval import data_files

FORMS = (
    "Give SQuAD's JSON, or JSON lines with 'context' (a text or several), 'question' and 'answers'."
)


@dataclass(frozen=True)
class SquadQuestion:
    """A question of a file.

    Attributes:
        question, answers: as in the file.
        contexts: its paragraphs.
        related: other paragraphs of the same article.
    """

    question: str
    answers: tuple[str, ...]
    contexts: tuple[str, ...]
    related: tuple[str, ...] = ()


@dataclass(frozen=True)
class Squad:
    """All questions of a file that have an answer, and all paragraphs, each once."""

    questions: tuple[SquadQuestion, ...]
    paragraphs: tuple[str, ...]


def read_squad(path: Path) -> Squad:
    """Reads a file of questions.

    Raises:
        UsageError: there is no such file, it is invalid, or has no question with an answer.
        UnreadableInput: it is not UTF-8 text.
    """
    text = data_files.read(path, FORMS)
    entries = [*_parsed(path, text)]
    questions = tuple(asked for asked in entries if asked.question and asked.answers)
    if not questions:
        raise UsageError(f"no questions in '{path}'", "none of it has an answer", FORMS)
    paragraphs = dict.fromkeys(context for asked in entries for context in asked.contexts)
    return Squad(questions, tuple(paragraphs))


def _parsed(path: Path, text: str) -> Iterator[SquadQuestion]:
    try:
        whole = parsed_json(text)
    except ValueError:
        whole = None
    if isinstance(whole, dict) and "data" in whole:
        try:
            yield from _articles(whole["data"])
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"cannot read '{path}'", f"{error} is wrong in it", FORMS) from error
        except ValueError as error:
            raise UsageError(f"cannot read '{path}'", f"in it {error}", FORMS) from error
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield _line(parsed_json(line))
            except (ValueError, KeyError, TypeError) as error:
                what = f"cannot read line {number} of '{path}'"
                raise UsageError(what, f"{error} in {line[:60]!r}", FORMS) from error


def _articles(data: Any) -> Iterator[SquadQuestion]:
    for article in data:
        contexts = [_text(paragraph["context"]) for paragraph in article["paragraphs"]]
        for paragraph, context in zip(article["paragraphs"], contexts, strict=True):
            related = tuple(other for other in dict.fromkeys(contexts) if other != context)
            yield SquadQuestion("", (), (context,))  # a paragraph without questions counts too
            for qa in paragraph["qas"]:
                answers = () if qa.get("is_impossible") else _answers(qa["answers"])
                yield SquadQuestion(_text(qa["question"]), answers, (context,), related)


def _line(entry: Any) -> SquadQuestion:
    contexts = entry["context"] if isinstance(entry["context"], list) else [entry["context"]]
    answers = _answers(entry["answers"])
    return SquadQuestion(_text(entry["question"]), answers, tuple(map(_text, contexts)))


def _answers(values: Any) -> tuple[str, ...]:
    """The texts in a list of texts or of objects with a text, or in an object with such a list."""
    texts = values["text"] if isinstance(values, dict) else values
    if isinstance(texts, str):
        raise TypeError("'answers' is no list")
    found = [_text(value["text"] if isinstance(value, dict) else value) for value in texts]
    return tuple(dict.fromkeys(answer for answer in found if answer))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:40]!r} is no text")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON may contain a lone surrogate
        raise ValueError(f"{value[:40]!r} is no text: {error}") from error
    return value.strip()
