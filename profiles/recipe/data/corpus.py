"""Reads folders of text for the recipe: plain or xz-compressed books, source code.

The order is fixed (sorted paths), so that runs agree. Knows nothing of tokens.
"""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PLAIN = {".txt", ".md", ".py", ".log"}


def read_text(path: Path) -> str:
    """A file's text, decompressed if its name ends in `.xz`."""
    raw = path.read_bytes()
    if path.suffix == ".xz":
        raw = lzma.decompress(raw)
    return raw.decode("utf-8", errors="replace").replace("\r\n", "\n")


def text_files(folder: Path) -> list[Path]:
    """The text files of a folder and its subfolders, sorted; a file is the only one of itself.

    Raises:
        FileNotFoundError: there is none.
    """
    if folder.is_file():
        return [folder]
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in PLAIN or (path.suffix == ".xz" and path.with_suffix("").suffix in PLAIN)
    )
    if not found:
        raise FileNotFoundError(f"no text files under {folder}: give a folder of .txt or .py files")
    return found


def read_texts(folder: Path) -> Iterator[str]:
    """The texts of `text_files`, one at a time."""
    return map(read_text, text_files(folder))


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a file of JSON lines (also .xz)."""
    return [json.loads(line) for line in read_text(path).rstrip("\n").split("\n")]


def chunks(text: str, size: int = 400_000) -> Iterator[str]:
    """Splits a long text at line ends into pieces of about `size` characters."""
    start = 0
    while start < len(text):
        end = min(len(text), start + size)
        if end < len(text):
            end = max(text.rfind("\n", start + size // 2, end), start + 1)
        yield text[start:end]
        start = end
