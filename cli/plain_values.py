"""Option values that need no check: Typer's check imports pydantic, which takes 0.1 s.

They are missing values, defaults, text for a text option, and paths without requirements.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OTHER = object()  # never an option's value
_ASKED = ("exists", "writable", "resolve_path", "allow_dash", "parser", "path_type")  # of a path


def spare(option: Any) -> None:
    """Makes Typer check only those values of an option or argument that need it."""
    check = option.get_runtime_param
    if "get_runtime_param" in vars(option):  # that of --help is always the same object
        return
    option.get_runtime_param = lambda: _Check(check)


@dataclass(frozen=True)
class _Check:
    """Typer's check of one option, made when it is first needed.

    Attributes:
        whole: makes it.
    """

    whole: Callable[[], Any]

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """A value as the command gets it; Typer's error if it is invalid."""
        taken = plain(value, param)
        return self.whole().coerce(value, param=param, ctx=ctx) if taken is _OTHER else taken


def plain(value: Any, param: Any) -> Any:
    """A value as Typer would give it; `_OTHER` where Typer has to decide."""
    kind, asked = param.type_descriptor.annotation, param.type_descriptor.parameter_info
    several = param.multiple or param.nargs == -1
    if value is None:
        return () if several else None
    if asked.parser is not None:
        return _OTHER
    if several:
        texts = isinstance(value, list | tuple) and kind == list[str]
        return [*value] if texts and all(map(_is_text, value)) else _OTHER
    if kind is str and _is_text(value):
        return value
    if kind is Path:
        return Path(value) if _is_any_path(value, asked) else _OTHER
    usual = kind in (int, float, bool) and type(value) is kind and value == param.default
    return value if usual else _OTHER


def _is_text(value: Any) -> bool:
    """Whether it is text that can be encoded, without undecodable bytes."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_any_path(value: Any, asked: Any) -> bool:
    """Whether a path has no requirements to meet, and is readable as text."""
    if any(getattr(asked, name) for name in _ASKED) or not (asked.file_okay and asked.dir_okay):
        return False
    if not _is_text(value) or "\0" in value:
        return False
    return not os.path.exists(value) or os.access(value, os.R_OK)
