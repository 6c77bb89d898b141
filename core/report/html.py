"""HTML as values: elements whose texts are escaped, so that no text can become markup.

There is no way to put markup in as text. Knows nothing of pages.
"""

import re
import unicodedata
from collections.abc import Iterable
from html import escape

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")
_ATTRIBUTE = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")
_EMPTY = frozenset({"br", "hr", "meta"})
_HANDLERS = re.compile(r"on|style$|src|action|formaction", re.I)  # what could run or load
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class Html(str):
    """Markup; only this module makes it."""


Part = Html | str | None
Parts = Part | Iterable["Parts"]


def element(name: str, /, *inside: Parts, **attributes: str | int | float | bool | None) -> Html:
    """An element.

    Args:
        name: its tag.
        inside: elements and texts, in any nesting; None is left out. Texts are escaped.
        attributes: `class_` is `class`, and other underscores are dashes; None and False are left
            out, True stands alone. A link leads into the page itself.
    """
    if not _NAME.fullmatch(name) or name in ("script", "style", "iframe", "object", "embed"):
        raise ValueError(f"no element {name!r} here")
    told = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _EMPTY:
        return Html(f"<{name}{told}>")
    return Html(f"<{name}{told}>{joined(inside)}</{name}>")


def joined(parts: Parts) -> Html:
    """Elements and texts, one after another."""
    if parts is None:
        return Html("")
    if isinstance(parts, Html):
        return parts
    if isinstance(parts, str):
        return Html(escape(legal(parts)))
    return Html("".join(map(joined, parts)))


def legal(text: str) -> str:
    """Text without what controls a reader or turns the text around it; surrogates are U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_legal, text.replace("\r\n", "\n")))


def _legal(character: str) -> str:
    if character in "\n\t":
        return character
    category = unicodedata.category(character)
    if category == "Cs":
        return "\ufffd"
    if category in ("Zl", "Zp") or character == "\r":
        return "\n"
    return "" if category == "Cc" or character in _TURNING else character


def _attribute(key: str, value: str | int | float | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if not _ATTRIBUTE.fullmatch(name) or _HANDLERS.match(name):
        raise ValueError(f"no attribute {name!r} here")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if name == "href" and not re.fullmatch(r"#[a-z0-9-]+", text):
        raise ValueError("a link leads into the page itself")
    return f' {name}="{escape(legal(text))}"'
