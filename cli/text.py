"""Text made safe to show: nothing in it can control a terminal, and figures are easy to read.

Knows nothing of where it is printed.
"""

import re
import unicodedata

CLIP = 200  # characters of the line that represents a passage

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # strings: window titles, links
    r"|\x1b[ -/]*[0-~]"
)
# Format characters that living scripts need: joiners, and signs before numbers.
_HARMLESS = frozenset(
    "\u200c\u200d\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2"
)


class _Visible(dict):
    """A translation table filled with characters as they occur."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        category = unicodedata.category(character)
        removed = (
            category in ("Cc", "Cf") and character not in _HARMLESS and character not in "\n\t"
        )
        shown = {"Cs": "\ufffd", "Zl": "\n", "Zp": "\n"}.get(category, character)
        self[code] = "" if removed else shown
        return self[code]


_VISIBLE = _Visible()


class _Escaped(dict):
    """The same, but shows such characters as Python escapes."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        category = unicodedata.category(character)
        hidden = category in ("Cc", "Cs", "Zl", "Zp") or not clean(character)
        self[code] = ascii(character)[1:-1] if hidden else character
        return self[code]


_ESCAPED = _Escaped()


def clean(text: str) -> str:
    """Text without what a terminal acts on: escape sequences, control and format characters.

    Newlines and tabs stay, other line endings become newlines. Lone surrogates, as in undecodable
    file names, become U+FFFD.
    """
    if text.isascii() and text.isprintable():  # like most cells of a long list
        return text
    return _ESCAPES.sub("", text).translate(_VISIBLE)


def escaped(text: str) -> str:
    """Text on one line, with what `clean` would remove shown as `\\x1b` or `\\u202e`.

    For logs: the original can be recognised, and nothing in it begins another line.
    """
    return text.translate(_ESCAPED)


def one_line(text: str, limit: int = CLIP) -> str:
    """Clean text on one line, cut after `limit` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def counted(count: int, unit: str) -> str:
    """A number of things: 1 file, 1,200 files."""
    return f"{count:,} {unit}" if count == 1 else f"{count:,} {unit}s"


def size(count: int | None) -> str:
    """Bytes for people: 12.3 MB."""
    if count is None:
        return "unknown"
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.95 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def duration(seconds: float) -> str:
    """Seconds for people: 8.2 s, 3:05, 2:03:05."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
