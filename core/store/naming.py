"""What a document is called: a name in any script for people, and a safe name for its folder.

Names are stored and compared in Unicode's composed form (NFC). A folder is called as its document
where that is safe everywhere: small English letters, digits, `.`, `_` and `-`, since other systems
take `Book` and `book` for one, end no name in a dot, and keep `con` and others for themselves.
Elsewhere it has what is left of the name and a hash, and the manifest has the name, as `title`.
Opens no file, and looks at a path only to see whether it is a folder.
"""

import hashlib
import os
import re
import unicodedata
from pathlib import Path

from longctx.core.common.errors import UsageError

NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,100}")  # folders; older versions took capitals
LONGEST = 100  # characters of a folder's name
TITLE = 200  # characters of a document's name at most
_SAFE = re.compile(r"(?!\.)[a-z0-9._-]{0,99}[a-z0-9_-]")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # of Windows, whatever follows
_MARK = 8  # hex digits of the hash of a name
_CONTROL = ("Cc", "Cs", "Zl", "Zp")  # of Unicode: controls, lone surrogates, line ends


def is_title(text: str) -> bool:
    """Whether a manifest may have `text` as its document's name."""
    return 0 < len(text) <= TITLE and not any(
        unicodedata.category(character) in _CONTROL for character in text
    )


def composed(text: str) -> str:
    """A name as stored and compared."""
    return unicodedata.normalize("NFC", text)


def require_name(text: str) -> str:
    """What a user calls a document, as it is stored.

    Raises:
        UsageError: no document can be called so.
    """
    name = composed(text)
    if NAME.fullmatch(name) or (
        is_title(name) and not set("/\\") & set(name) and any(map(str.isalnum, name))
    ):
        return name
    raise UsageError(
        f"{text!r} cannot be the name of a document",
        f"a name has 1 to {TITLE} characters, a letter or digit among them, and no slash or "
        "control character",
        "Choose another name",
    )


def called_after(path: str) -> str:
    """The name of a document after a file, a folder or `-`, without the suffix."""
    own = Path(os.path.abspath(path))  # "." and ".." have no name of their own
    stem = "stdin" if path == "-" else own.name if own.is_dir() else own.stem
    return name_from(stem.removesuffix(".tar"))


def name_from(text: str) -> str:
    """The name made from any text; there is always one."""
    shown = "".join("\ufffd" if unicodedata.category(c) == "Cs" else c for c in composed(text))
    kept = "".join(c for c in shown if unicodedata.category(c) not in _CONTROL).strip()[:TITLE]
    return kept if any(map(str.isalnum, kept)) else "document"


def folder_of(name: str) -> str:
    """The name of a new document's folder: the document's, where that is safe on every system."""
    safe = _SAFE.fullmatch(name) and not _RESERVED.fullmatch(name)
    return name if safe else marked(name)


def marked(name: str) -> str:
    """What is left of a name in a folder's name, with a hash that tells it from others."""
    apart = unicodedata.normalize("NFKD", name).lower()
    plain = "".join(c for c in apart if not unicodedata.combining(c))
    kept = re.sub(r"[^a-z0-9_]+", "-", plain)[: LONGEST - _MARK - 1].strip("-")
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK]
    return f"{kept or 'document'}-{mark}"
