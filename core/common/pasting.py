"""Names in printed commands, quoted so that a pasted name is one word and runs nothing.

Printed text passes through `clean`, which removes terminal control characters. A name changed by
that would be another name, or break out of its quotes, so a placeholder is printed instead.
"""

import shlex
from collections.abc import Iterable


def word(name: str, instead: str) -> str:
    """A name, quoted as one word for a shell.

    Args:
        name: any text.
        instead: the placeholder for a name that cannot be shown unchanged.
    """
    return shlex.quote(name) if _is_shown_as_it_is(name) else instead


def option(flag: str, name: str) -> str:
    """An option with a name as its value, whatever the name begins with."""
    between = "=" if name.startswith("-") else " "
    return f"{flag}{between}{word(name, 'NAME')}"


def file(path: str) -> str:
    """A file as an argument of a command."""
    here = "./" if path.startswith("-") else ""  # not an option, and not standard input
    return word(f"{here}{path}", "FILE")


def files(paths: Iterable[str]) -> str:
    """Files as arguments of a command; a placeholder if there are none."""
    return " ".join(map(file, paths)) or "FILE"


def _is_shown_as_it_is(name: str) -> bool:
    """Whether printing leaves it unchanged: no control characters, only single inner spaces."""
    return bool(name) and name.isprintable() and " ".join(name.split()) == name
