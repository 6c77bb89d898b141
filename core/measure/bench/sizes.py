"""Chunk and budget of any method, wherever its options have them.

A method reads by the options that have a `chunk`: its own, or those of one of its parts. With a
`budget` it evicts; without one it keeps everything, and attends to a `window` of it.
"""

from dataclasses import fields, is_dataclass, replace
from typing import Any

from longctx.core.common.errors import UsageError

Size = tuple[int | None, int | None]  # chunk and budget, as a user gives them


def reading_options(options: Any) -> Any:
    """The options by which a method reads: its own, or of its parts those that keep everything."""
    parts = [value for value in _values(options).values() if is_dataclass(value)]
    return min(parts or [options], key=lambda part: budget_of(part) or 0)


def budget_of(options: Any) -> int | None:
    """Tokens that each layer's cache keeps; None: all."""
    return getattr(options, "budget", None)


def attended(options: Any) -> int:
    """Tokens that are attended to beside the chunk, or with it where everything is kept."""
    return budget_of(options) or options.window


def sized(options: Any, chunk: int | None = None, budget: int | None = None) -> Any:
    """The same options with another chunk and budget; ends that do not fit are made shorter.

    Args:
        options: of any method that reads in chunks.
        chunk, budget: tokens; None: as the other one, or as they are.

    Raises:
        UsageError: the method has no budget, or they do not fit one another.
    """
    part = reading_options(options)
    try:
        other = (_kept_whole if budget_of(part) is None else _evicting)(part, chunk, budget)
    except ValueError as error:
        raise UsageError(
            f"cannot read with chunk {chunk} and budget {budget}", str(error), "Use other sizes."
        ) from error
    if part is options:
        return other
    names = [name for name, value in _values(options).items() if value is part]
    return replace(options, **dict.fromkeys(names, other))


def _evicting(options: Any, chunk: int | None, budget: int | None) -> Any:
    chunk, budget = chunk or budget or options.chunk, budget or chunk or options.budget
    most = {"first": budget // 4, "last": budget // 4, "queries": chunk}  # where it has them
    given = {name: value for name, value in _values(options).items() if name in most}
    shorter = {name: min(value, most[name]) for name, value in given.items() if value is not None}
    return replace(options, chunk=chunk, budget=budget, **shorter)


def _kept_whole(options: Any, chunk: int | None, budget: int | None) -> Any:
    if budget is not None:
        raise UsageError(
            "--budget is not for this method",
            "it keeps everything that it reads",
            "Leave it out; --chunk says how much is read at a time.",
        )
    return replace(options, chunk=chunk or options.chunk)


def _values(options: Any) -> dict[str, Any]:
    return {option.name: getattr(options, option.name) for option in fields(options)}
