"""What Tab completes at the prompt of `ask`: commands, and behind `/doc` the documents' names.

A name with signs that `/doc` would read otherwise is quoted.
"""

import shlex
from collections.abc import Callable, Iterable, Sequence

from longctx.cli import render

NAMES = "doc"  # the command that takes names of documents
SWITCHES = {"sources": ("on", "off")}


class Completer:
    """Completes a line for readline, which asks for one completion after another.

    Args:
        commands: those of the prompt, without the slash.
        names: gives the documents' names.
    """

    def __init__(self, commands: Iterable[str], names: Callable[[], Sequence[str]]):
        self._commands, self._names = sorted(commands), names
        self._found: list[str] = []

    def __call__(self, line: str, number: int) -> str | None:
        """The completion of this number of a line up to the cursor; None: there are no more.

        Whatever goes wrong, nothing is offered.
        """
        if number == 0:
            try:
                self._found = self.all_of(line)
            except Exception:  # readline would show the error in the line
                self._found = []
        return self._found[number] if number < len(self._found) else None

    def all_of(self, line: str) -> list[str]:
        """The whole lines that a line may become; none for a question."""
        if not line.startswith("/"):
            return []
        command, space, rest = line[1:].partition(" ")
        if not space:
            return [f"/{name} " for name in self._commands if name.startswith(command)]
        if command != NAMES:
            offered = SWITCHES.get(command, ())
            return [f"/{command} {word}" for word in offered if word.startswith(rest)]
        start = _last_word(rest)
        before, word = line[: len(line) - len(rest) + start], rest[start:]
        begun = _unquoted(word)
        found = [name for name in sorted({*self._names()}) if name.startswith(begun)]
        shown = [name for name in found if render.one_line(name) == name]
        # All alike: readline puts what they have in common in the place of what was typed.
        if word != begun or not all(map(_is_plain, shown)):
            shown = ["'" + name.replace("'", "'\"'\"'") + "'" for name in shown]
        return [before + name for name in shown]


def _last_word(text: str) -> int:
    """Where the word that is being typed begins; spaces in quotation marks separate none."""
    start, quote, escaped = 0, "", False
    for place, sign in enumerate(text):
        if escaped or (sign == "\\" and quote != "'"):
            escaped = not escaped
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign == " ":
            start = place + 1
    return start


def _is_plain(name: str) -> bool:
    """Whether `/doc` reads a name as it stands."""
    try:
        return shlex.split(name) == [name]
    except ValueError:
        return False


def _unquoted(word: str) -> str:
    """A word that may still lack its closing quotation mark, as `/doc` would read it."""
    for end in ("", "'", '"'):
        try:
            parts = shlex.split(word + end)
        except ValueError:
            continue
        return parts[0] if parts else ""
    return word
