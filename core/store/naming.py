"""What a document is called: a title in any script for people, a safe name for its folder.

Titles are stored and compared in Unicode's composed form (NFC). Opens no file, and looks at a path
only to see whether it is a folder.
"""

import hashlib
import os
import re
import unicodedata
from pathlib import Path

NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,100}")
LONGEST = 100  # characters of a name
TITLE = 200  # characters of a title at most
_MARK = 8  # hex digits that tell apart names that lost letters
_CONTROL = ("Cc", "Cs", "Zl", "Zp")  # of Unicode: controls, lone surrogates, line ends


def is_title(text: str) -> bool:
    """Whether a manifest may have `text` as its title."""
    return 0 < len(text) <= TITLE and not any(
        unicodedata.category(character) in _CONTROL for character in text
    )


def composed(text: str) -> str:
    """A title as stored and compared."""
    return unicodedata.normalize("NFC", text)


def called(text: str) -> tuple[str, str | None]:
    """The name and the title of a document that a user calls `text`.

    Returns:
        The name; and the title, None if it equals the name. A text that can be neither comes back
        as it is: a library refuses it.
    """
    title = composed(text)
    usable = is_title(title) and not set("/\\") & set(title) and any(map(str.isalnum, title))
    if NAME.fullmatch(text) or not usable:
        return text, None
    return safe_name(title), title


def called_after(path: str) -> tuple[str, str | None]:
    """The name and the title of a document after a file, a folder or `-`, without the suffix."""
    own = Path(os.path.abspath(path))  # "." and ".." have no name of their own
    stem = "stdin" if path == "-" else own.name if own.is_dir() else own.stem
    return named(stem.removesuffix(".tar"))


def named(text: str) -> tuple[str, str | None]:
    """The name and the title made from any text; there is always a name."""
    shown = "".join("\ufffd" if unicodedata.category(c) == "Cs" else c for c in composed(text))
    kept = "".join(c for c in shown if unicodedata.category(c) not in _CONTROL).strip()[:TITLE]
    name = safe_name(kept)
    is_name = NAME.fullmatch(kept) or not any(map(str.isalnum, kept))
    return name, None if is_name else kept


def safe_name(title: str) -> str:
    """A folder's name for a title; the same title always gives the same name.

    Accents are dropped, other characters become `-`. Where letters are lost, or the end of a long
    title, a hash of the title is added to tell it from others.
    """
    apart = unicodedata.normalize("NFKD", title)
    plain = "".join(c for c in apart if not unicodedata.combining(c))
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in plain)
    kept = kept.strip(".-")
    if len(kept) <= LONGEST and not any(c.isalnum() and not c.isascii() for c in plain):
        return kept or "document"
    mark = hashlib.sha256(title.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK]
    kept = re.sub("-{2,}", "-", kept)[: LONGEST - _MARK - 1].rstrip(".-")
    return f"{kept or 'document'}-{mark}"
