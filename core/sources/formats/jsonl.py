"""JSON lines: each record as `key: value` lines, strings as they read; other lines as they are."""

import json
from collections.abc import Generator, Iterator
from typing import Any, BinaryIO

from longctx.core.sources import formats
from longctx.core.sources.detect import NotText
from longctx.core.sources.limits import CONVERTED, Share, require_held
from longctx.core.sources.pieces import Piece, decoded, tidy


class Format(formats.Format):
    """One piece per record."""

    marks = "line"
    streams = True

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        number = 0
        while line := file.readline(CONVERTED + 1):
            number += 1
            require_held(name, len(line))
            if b"\0" in line:
                raise NotText(f"cannot read '{name}'", "it is binary", "Convert it to UTF-8.")
            text, bad = decoded(line, "utf-8-sig" if number == 1 else "utf-8")
            if text.strip():
                yield Piece(tidy(_record(text, share)), number, undecodable=bad)


def _record(line: str, share: Share) -> str:
    """The text of a record.

    Raises:
        TooMuch: nested keys, repeated before each value, make it too long.
    """
    size, lines = 0, []
    try:
        for each in _lines("", json.loads(line)):
            lines.append(each)
            size += len(each) + 1
            share.budget.require_room(size)
    except (ValueError, RecursionError):
        return line.rstrip("\r\n") + "\n"
    blank = "\n" * (len(lines) > 1)  # between records of several lines
    return "".join(f"{line}\n" for line in lines) + blank


def _lines(key: str, value: Any) -> Iterator[str]:
    """The lines of a value; nested keys are joined by dots."""
    if isinstance(value, dict) and value:
        for inner, item in value.items():
            yield from _lines(f"{key}.{inner}" if key else inner, item)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for index, item in enumerate(value):
            yield from _lines(f"{key}.{index}" if key else str(index), item)
    else:
        yield f"{key}: {_shown(value)}" if key else _shown(value)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
