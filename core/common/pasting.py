"""Names in printed commands, quoted so that a pasted one is one word and runs nothing.

What is printed passes `clean`, which takes away what steers a terminal. A name that does not come
through that as it is would be another name, or break out of its quotes, so a word stands in its
place for the reader to fill in.
"""

import shlex
from collections.abc import Iterable


def word(name: str, instead: str) -> str:
    """A name as a shell takes it for one word.

    Args:
        name: any text.
        instead: what stands for a name that cannot be shown as it is.
    """
    return shlex.quote(name) if _is_shown_as_it_is(name) else instead


def option(flag: str, name: str) -> str:
    """An option with a name as its value, whatever that begins with."""
    between = "=" if name.startswith("-") else " "
    return f"{flag}{between}{word(name, 'NAME')}"


def document(name: str) -> str:
    """A document's name at the end of a command."""
    end = "-- " if name.startswith("-") else ""  # no option
    return f"{end}{word(name, 'NAME')}"


def file(path: str) -> str:
    """A file as it is given to a command."""
    here = "./" if path.startswith("-") else ""  # no option, and not standard input
    return word(f"{here}{path}", "FILE")


def files(paths: Iterable[str]) -> str:
    """Files as they are given to a command; where there are none, a word for one."""
    return " ".join(map(file, paths)) or "FILE"


def _is_shown_as_it_is(name: str) -> bool:
    """Whether nothing that prints changes it: no controls, and no space but single ones inside."""
    return bool(name) and name.isprintable() and " ".join(name.split()) == name
