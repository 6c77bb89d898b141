"""Detects a text's encoding from its first bytes, or that they are not text.

Knows nothing of files: it serves sources, and formats whose files do not state their encoding.
Rarely needed modules are imported on demand: the parsing process starts often.
"""

import codecs
import re

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources.encodings import BOMS, LEGACY
from longctx.core.sources.unread import unread

LOOKED_AT = 1 << 20  # bytes that are enough to tell UTF-16
UNMARKED = ("utf-16-le", "utf-16-be")  # tried where there are zero bytes but no byte order mark
ALIKE = 0.1  # lead in language coherence that is a tie: French scores higher in cp1250 than cp1252
SPACES = 100  # characters of UTF-16, at least one of which is white space
# Found in binary data mistaken for UTF-16: control and private-use characters, noncharacters, and
# a newline with its bytes swapped.
_NEVER = re.compile("[\0-\7\x0e-\x19\x1c-\x1f\x7f-\x84\x86-\x9f\u0a00\ue000-\uf8ff\ufffe\uffff]")
_STRINGS = re.compile(rb"[\0\n\r -~]*")  # in ASCII, with zeros at their ends


class NotText(UnreadableInput):
    """There is no text to lose: it is empty, binary, or not a file."""


def detect(data: bytes, name: str, found: bool = False, whole: bool = True) -> tuple[str, int]:
    """Python's name of the encoding, and the length of the byte order mark in bytes.

    Args:
        data: the first bytes.
        name: the source's name.
        found: it was found, not named, so the user cannot simply leave it out.
        whole: nothing follows; else the last character may be incomplete.

    Raises:
        NotText: the data is empty, binary, or in no known encoding.
        UnreadableInput: it is binary, and a document by its name.
    """
    marked = ((mark, encoding) for mark, encoding in BOMS if data.startswith(mark))
    mark, encoding = next(marked, (b"", ""))
    if len(data) == len(mark):
        raise NotText(f"cannot read '{name}'", "it is empty", "" if found else "Leave it out.")
    if not encoding and b"\0" in data:
        encoding = _unmarked_utf16(data, whole)
        if not encoding:
            raise unread(name) or NotText(
                f"cannot read '{name}'",
                "it is binary: there are zero bytes in its first MiB, and it is not UTF-16",
                "" if found else "Convert it to text, or leave it out.",
            )
    if not encoding:
        encoding = "utf-8" if _nearly_utf8(data, whole) else _guess(data, name)
    return encoding, len(mark)


def _unmarked_utf16(data: bytes, whole: bool) -> str:
    """Which UTF-16 the bytes, some of them zero, are in; empty if they are binary."""
    data, whole = data[:LOOKED_AT], whole and len(data) <= LOOKED_AT
    for encoding in UNMARKED:
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(data, whole)
        except UnicodeDecodeError:
            continue
        if _has_words(text) and not (_is_of_pairs(text) or _is_of_strings(data, text)):
            return encoding
    return ""


def _has_words(text: str) -> bool:
    """Whether there is enough white space, and nothing that never occurs in text."""
    spaces = sum(map(text.count, " \t\r\n"))
    return spaces * SPACES >= len(text) and not _NEVER.search(text)


def _is_of_pairs(text: str) -> bool:
    """Whether most wide characters are two of ASCII, or one and a zero.

    So are strings with zeros at their ends, also where some of them are not ASCII. Of Chinese a
    quarter is, and all of hiragana: what begins with a byte up to "0" does not count.
    """
    import numpy as np

    codes = np.frombuffer(text.encode("utf-16-le"), "<u2")
    first, second = codes >> 8, codes & 0xFF
    counted = first > ord("0")
    pairs = counted & (first < 0x7F) & ((second == 0) | (second >= 0x20) & (second < 0x7F))
    return bool(2 * pairs.sum() > counted.sum())


def _is_of_strings(data: bytes, text: str) -> bool:
    """Whether it is ASCII except for zeros, and would be mostly wide characters."""
    return bool(_STRINGS.fullmatch(data)) and 2 * len(text.encode("ascii", "ignore")) < len(text)


def _nearly_utf8(data: bytes, whole: bool) -> bool:
    """Whether the errors are rare, or fewer than the characters that only UTF-8 would give."""
    text, _ = codecs.utf_8_decode(data, "replace", whole)
    bad = text.count("\ufffd") - data.count("\ufffd".encode())
    valid = len(text) - len(text.encode("ascii", "ignore")) - bad
    return bad <= valid or bad * 1000 <= len(data)


def _guess(data: bytes, name: str) -> str:
    from charset_normalizer import from_bytes

    whole_lines = data[: data.rfind(b"\n") + 1] or data
    matches = from_bytes(whole_lines, cp_isolation=list(LEGACY))
    best = matches.best()
    if best is None:
        raise NotText(f"cannot read '{name}'", "its encoding is not known", "Convert it to UTF-8.")
    least = best.coherence - ALIKE
    equal = [m for m in matches if m.chaos <= best.chaos and m.coherence >= least]
    names = {encoding for match in equal for encoding in match.could_be_from_charset}
    return min(names.intersection(LEGACY), key=LEGACY.index)
