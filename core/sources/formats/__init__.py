"""Formats that text is made of before it is read, one file each; the folder is the registry.

`book.html` is converted by `html.py`: its function `convert(file, name, share)` gives `Piece`s,
its `MARKS` says what their numbers count, `NEEDS` names a library beside Python's own, and `STREAM`
whether the file is read as it comes (else all of it is held in memory).
"""

import importlib
import pkgutil
from functools import cache
from pathlib import PurePath
from types import ModuleType

OTHER_ENDINGS = {"htm": "html", "xhtml": "html", "ndjson": "jsonl"}


@cache
def names() -> tuple[str, ...]:
    """The formats that there are."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def of(file: str) -> str:
    """The format of a file, by the ending of its name; empty: it is read as the text that it is."""
    ending = PurePath(file).suffix.lower().removeprefix(".")
    name = OTHER_ENDINGS.get(ending, ending)
    return name if name in names() else ""


def load(name: str) -> ModuleType:
    """The module of a format."""
    return importlib.import_module(f"{__name__}.{name}")
