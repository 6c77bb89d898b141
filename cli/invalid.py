"""What is said of an option's value that does not fit: the option, the value, and why.

Typer checks values with pydantic, whose own words name neither the value nor what to give.
"""

import os
import re
from typing import Any

import typer

_SURPLUS = re.compile(r"Got unexpected extra argument\S* \((.*)\)\Z", re.DOTALL)
LONGEST = 60  # characters of a value that are shown
WHOLE, NUMBER = "is no whole number", "is not a number"
SAID = {  # pydantic's kind of error -> ours
    "int_parsing": WHOLE,
    "int_from_float": WHOLE,
    "int_type": WHOLE,
    "int_parsing_size": "has too many digits",
    "float_parsing": NUMBER,
    "float_type": NUMBER,
    "bool_parsing": "is neither true nor false",
    "bool_type": "is neither true nor false",
    "greater_than_equal": "is too small: {ge:.12g} is the least",
    "less_than_equal": "is too large: {le:.12g} is the most",
}


def message(error: Any) -> str:
    """What one of Typer's errors says; that of a value which does not fit in our words."""
    if type(error) is not typer.BadParameter or error.param is None:
        return error.format_message() + _surplus(error)
    found = _first(error.__cause__)
    return f"Invalid value for {_named(error)}: {_why(found) if found else error.message}"


def _surplus(error: Any) -> str:
    """What to do about words that a command does not take; empty where that is not known."""
    surplus = _SURPLUS.match(error.message)
    command = error.ctx.info_name if surplus and error.ctx else ""
    if not surplus or command not in ("ask", "find"):
        return ""
    from longctx.core.common import pasting

    word = surplus[1]
    if os.path.exists(word):
        also = f"\n`longctx ask QUESTION --text {pasting.file(word)}` asks it without keeping it."
        return (
            f"\n'{word}' is a path, and {command} searches what was read before: run "
            f"`longctx ingest {pasting.file(word)}` first; --doc NAME names a document."
        ) + (also if command == "ask" else "")
    return "\nPut several words in quotes; --doc NAME names a document."


def _why(found: dict[str, Any]) -> str:
    """What pydantic found, in our words."""
    shown = f"{found['input']!r}"
    shown = shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."
    inner = found.get("ctx", {})
    said = SAID.get(found["type"])
    if said is not None:
        return f"{shown} {said.format(**inner)}."
    if "error" in inner:  # Typer's own check: of choices, which names the value
        return str(inner["error"])
    return f"{shown} does not fit: {found['msg']}."


def _first(cause: Any) -> dict[str, Any] | None:
    """The first thing that pydantic found; of a list's item, where it is one; None: not pydantic.

    Typer checks the items of a list within the check of the list, so that errors are in an error.
    """
    found = None
    while hasattr(cause, "errors"):
        found = cause.errors()[0]
        cause = found.get("ctx", {}).get("error")
    return found


def _named(error: Any) -> str:
    """The option; its variable where the value is from there."""
    option, ctx = error.param, error.ctx
    source = ctx.get_parameter_source(option.name) if ctx is not None else None
    flags = " / ".join(f"'{flag}'" for flag in option.opts if flag.startswith("-"))
    if source is not None and source.name == "ENVIRONMENT":
        return f"{flags} (from {option.envvar})"
    return flags or option.get_error_hint()
