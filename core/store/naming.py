"""What a document is called: a name in any script for people, and a safe name for its folder.

Names are stored and compared in Unicode's composed form (NFC). A folder is called as its document
where that is safe everywhere: small English letters, digits, `.`, `_` and `-`, since other systems
take `Book` and `book` for one, end no name in a dot, and keep `con` and others for themselves.
Elsewhere it has what is left of the name and a hash, and the manifest has the name, as `title`.

Two names that look alike must be one name. So a new name has no character that cannot be seen or
that reorders others: controls, Unicode's format and default-ignorable characters (bidirectional
controls, zero widths, variation selectors, tags, fillers), and blanks other than U+0020 and U+3000.
U+200C and U+200D stay where they change what is seen: next to a virama, and U+200C between two
Arabic letters that would join. In emoji they go: a family becomes its members. Characters of
private use and of newer versions of Unicode are allowed; they show as some glyph.

Older versions allowed them all, so manifests may have them: `shown` escapes them.
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
NAME_BYTES = 255  # of a document's name in UTF-8 at most, as of a file's name on most systems
_TITLE = 255  # characters of a name in a manifest at most
_CLIP = 60  # characters of a name that an error shows
_SAFE = re.compile(r"(?!\.)[a-z0-9._-]{0,99}[a-z0-9_-]")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # of Windows, whatever follows
_MARK = 8  # hex digits of the hash of a name
_CONTROL = ("Cc", "Cs", "Zl", "Zp")  # of Unicode: controls, lone surrogates, line ends

_BLANK = r"\u00a0\u2000-\u200a\u202f\u205f"  # look like U+0020, or are narrower
_UNSEEN = (
    r"\0-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    r"\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_VIRAMA = r"\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca\u1039\u17d2"
_JOINS_NEXT = (  # Arabic letters with a form that joins the letter after them
    r"\u0620\u0626\u0628\u062a-\u062e\u0633-\u063f\u0641-\u0647\u0649\u064a\u066e\u066f"
    r"\u0678-\u0687\u069a-\u06bf\u06c1\u06c2\u06cc\u06ce\u06d0\u06d1\u06fa-\u06fc\u06ff\u0750-\u076f"
)
_JOINS = r"\u0620\u0622-\u063f\u0641-\u064a\u066e-\u0673\u0675-\u06d3\u06fa-\u06ff\u0750-\u076f"
_HIDDEN = re.compile(
    rf"[{_BLANK}{_UNSEEN}]"
    rf"|(?<![{_VIRAMA}])\u200d(?![{_VIRAMA}])"
    rf"|(?<![{_VIRAMA}{_JOINS_NEXT}])\u200c|(?<=[{_JOINS_NEXT}])\u200c(?![{_JOINS}])"
)


def is_title(text: str) -> bool:
    """Whether a manifest may have `text` as its document's name."""
    return 0 < len(text) <= _TITLE and not any(
        unicodedata.category(character) in _CONTROL for character in text
    )


def shown(name: str) -> str:
    """A stored name as people see and type it: hidden characters as `\\u202e`."""
    return _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], name)


def visible(name: str) -> str:
    """A name without what cannot be seen."""
    return _HIDDEN.sub("", name)


def clipped(name: str) -> str:
    """What an error shows of a name that a user gives: as `shown`, at most 60 characters of it."""
    seen = shown(name)
    return seen if len(seen) <= _CLIP else f"{seen[:_CLIP]}..."


def too_long(name: str) -> str:
    """Why a name of a document or a file is too long; empty if it is not."""
    size = len(name.encode("utf-8", "surrogatepass"))
    return f"it has {size} bytes in UTF-8, of {NAME_BYTES} at most" if size > NAME_BYTES else ""


def composed(text: str) -> str:
    """A name as stored and compared."""
    return unicodedata.normalize("NFC", text)


def require_name(text: str) -> str:
    """What a user calls a document, as it is stored.

    Raises:
        UsageError: no document can be called so.
    """
    name = composed(text)
    if why := _why_not(name):
        raise UsageError(
            f"'{clipped(name)}' cannot be the name of a document", why, "Choose another name"
        )
    return name


def _why_not(name: str) -> str:
    """Why no new document can be called so; empty if one can."""
    if why := too_long(name):
        return why
    if hidden := _HIDDEN.search(name):
        sign = hidden[0]
        called = unicodedata.name(sign, "a control character")
        where = f"character {hidden.start() + 1} is U+{ord(sign):04X} ({called})"
        return f"{where}, which cannot be seen"
    if name != name.strip():
        return "it begins or ends with a blank, which cannot be seen"
    if set("/\\") & set(name):
        return "it has a slash"
    if not NAME.fullmatch(name) and not any(map(str.isalnum, name)):
        return "it has no letter or digit"
    return ""


def called_after(path: str) -> str:
    """The name of a document after a file, a folder or `-`, without the suffix."""
    own = Path(os.path.abspath(path))  # "." and ".." have no name of their own
    stem = "stdin" if path == "-" else own.name if os.path.isdir(own) else own.stem
    return name_from(stem.removesuffix(".tar"))


def name_from(text: str) -> str:
    """The name made from any text; there is always one. What cannot be in a name is left out."""
    known = "".join("\ufffd" if unicodedata.category(c) == "Cs" else c for c in composed(text))
    plain = composed(visible(re.sub(f"[{_BLANK}]", " ", known)))
    kept = visible(cut(plain.strip())).strip()
    return kept if any(map(str.isalnum, kept)) else "document"


def cut(name: str, size: int = NAME_BYTES) -> str:
    """As many whole characters of a name as have at most `size` bytes in UTF-8."""
    return name.encode()[:size].decode("utf-8", "ignore")


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
