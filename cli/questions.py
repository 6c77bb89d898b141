"""Questions from a file or from standard input, one by one as they arrive.

Three forms: plain text (one question a line), JSON lines, and YAML as in samples/questions/. In
files a line that begins with `#` is a comment.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from longctx.core.common import file_limits
from longctx.core.common.errors import UnreadableInput, UsageError
from longctx.core.common.regular_files import parsed_json, read_text

FORMS = "Give one question a line, or an object with the key 'question' for each."


def from_stdin() -> Iterator[str]:
    """One question a line; each is yielded as soon as its line arrives.

    Raises:
        UsageError: a line is too long to be a question.
        UnreadableInput: a line is not UTF-8 text.
    """
    return _lines(_decoded(raw) for raw in _raw_lines())


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        what, why = "cannot read questions from standard input", "they are not UTF-8 text"
        raise UnreadableInput(what, why, "Convert them first.") from error


def from_file(path: Path) -> list[str]:
    """The questions of a file, by its ending: .jsonl, .yaml, .yml, else plain text.

    Raises:
        UsageError: there is no such file, it has no questions, or something in it is none.
        UnreadableInput: it is not UTF-8 text.
    """
    try:
        text = read_text(path, file_limits.QUESTIONS, handed=True)
    except UnicodeDecodeError as error:
        raise UnreadableInput(
            f"cannot read '{path}'", "it is not UTF-8 text", "Convert it first."
        ) from error
    except OSError as error:
        raise UsageError(
            f"cannot read '{path}'", error.strerror or str(error), "Check --questions."
        ) from error
    found = (
        _yaml_questions(text, path) if path.suffix in (".yaml", ".yml") else _by_line(text, path)
    )
    if not found:
        raise UsageError(f"no questions in '{path}'", "nothing in it is one", FORMS)
    return found


def _by_line(text: str, path: Path) -> list[str]:
    lines = [line for line in _lines(text.splitlines()) if not line.startswith("#")]
    return [_json_question(line, path) for line in lines] if path.suffix == ".jsonl" else lines


def _raw_lines() -> Iterator[bytes]:
    most = file_limits.QUESTION
    while raw := sys.stdin.buffer.readline(most + 1):
        if len(raw) > most:
            why = f"it has a line of more than {most:,} bytes"
            raise UsageError("cannot read questions from standard input", why, FORMS)
        yield raw


def _lines(lines: Iterable[str]) -> Iterator[str]:
    stripped = (line.strip().removeprefix("\ufeff") for line in lines)
    return (line for line in stripped if line)


def _json_question(line: str, path: Path) -> str:
    try:
        return _question(parsed_json(line), path)
    except ValueError as error:
        raise UsageError(f"cannot read '{path}'", f"{error} in {line[:80]!r}", FORMS) from error


def _yaml_questions(text: str, path: Path) -> list[str]:
    from longctx.core.profile import safe_yaml

    if len(text) > safe_yaml.LARGEST:
        why = f"it has {len(text):,} characters, and {safe_yaml.LARGEST:,} are the most"
        raise UsageError(f"cannot read '{path}'", why, "Give them one a line, or as JSON lines.")
    values = safe_yaml.read(text, f"'{path}'")
    entries = values.get("questions") if isinstance(values, dict) else None
    if not isinstance(entries, list):
        raise UsageError(f"no questions in '{path}'", "it has no list 'questions'", FORMS)
    return [_question(entry, path) for entry in entries]


def _question(entry: Any, path: Path) -> str:
    words = entry.get("question") if isinstance(entry, dict) else None
    if not isinstance(words, str):
        raise UsageError(f"no question in '{path}'", f"found {str(entry)[:80]!r}", FORMS)
    return words
