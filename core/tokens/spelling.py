"""The bytes that each token of a vocabulary stands for, and which tokens continue a text.

Byte-level vocabularies (GPT-2's map of bytes to letters) and those of SentencePiece (a letter of
its own for a space, `<0x0A>` for a byte) are known. Knows nothing of models.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from longctx.core.common.errors import UsageError

_BYTE = re.compile(r"<0x([0-9A-F]{2})>\Z")
_SPACE = "\u2581"  # a space, as SentencePiece writes it
_NEVER = 0xFF  # a byte of no text, which stands between texts


class Spelling:
    """The tokens that are ordinary text, by their bytes.

    Those with white space other than single spaces are left out, since the texts that are continued
    have none. So are special tokens.

    Args:
        tokenizer: a fast transformers tokenizer.

    Raises:
        UsageError: it is known of none of its tokens which bytes they are.
    """

    def __init__(self, tokenizer: Any):
        self._ids: dict[bytes, tuple[int, ...]] = {}
        self._bytes: dict[int, bytes] = {}
        self._longest = [0] * 256
        for number, spelled in token_bytes(tokenizer):
            if spelled and _is_plain(spelled):
                self._bytes[number] = spelled
                self._ids[spelled] = (*self._ids.get(spelled, ()), number)
                first = spelled[0]
                self._longest[first] = max(self._longest[first], len(spelled))

    def spelled(self, path: Iterable[int]) -> bytes:
        """The bytes of a path of its tokens."""
        return b"".join(self._bytes[number] for number in path)

    def continuing(self, text: bytes, places: Iterable[int]) -> dict[int, list[int]]:
        """The tokens that stand in a text at some places.

        Args:
            text: the text; 0xFF is in no token.
            places: offsets in it, ascending.

        Returns:
            By token id, the offsets behind it, ascending.
        """
        found: dict[int, list[int]] = {}
        known, longest, size = self._ids, self._longest, len(text)
        for place in places:
            if place == size:
                continue
            for end in range(place + 1, min(size, place + longest[text[place]]) + 1):
                for number in known.get(text[place:end], ()):
                    found.setdefault(number, []).append(end)
        return found

    def beginning(self, text: bytes, places: Iterable[int]) -> dict[int, list[int]]:
        """The same where one space may come first that is not in the text.

        A token that is this space alone leaves the places as they are.
        """
        places = [*places]
        found = self.continuing(text, places)
        known, longest, size = self._ids, self._longest[ord(" ")], len(text)
        for place in places:
            for end in range(place, min(size, place + longest - 1) + 1):
                for number in known.get(b" " + text[place:end], ()):
                    found.setdefault(number, []).append(end)
        return {number: sorted(ends) for number, ends in found.items()}


def token_bytes(tokenizer: Any) -> Iterator[tuple[int, bytes]]:
    """Each token's id and bytes, special tokens left out; those of unknown form are empty.

    Args:
        tokenizer: a fast transformers tokenizer.

    Raises:
        UsageError: it is of neither form.
    """
    backend = tokenizer.backend_tokenizer
    decoder = backend.decoder
    parts = {*_types(json.loads(decoder.__getstate__()) if decoder else None)}
    added = backend.get_added_tokens_decoder()
    if "ByteLevel" in parts:
        letters = {letter: byte for byte, letter in byte_letters().items()}
        spell = _of_letters
    elif parts & {"Metaspace", "ByteFallback"} or {"Replace", "Fuse"} <= parts:
        letters, spell = {}, _of_pieces
    else:
        raise UsageError(
            "cannot quote with this model",
            "it is not known which bytes the tokens of its tokenizer stand for "
            f"(its decoder is {' and '.join(sorted(parts)) or 'missing'})",
            "Use --no-quote, or a model with a byte-level or SentencePiece tokenizer.",
        )
    for token, number in backend.get_vocab(with_added_tokens=False).items():
        if number not in added:
            yield number, spell(token, letters)
    for number, token in added.items():
        if not token.special:
            yield number, token.content.encode("utf-8", "replace")


def byte_letters() -> dict[int, str]:
    """The letter by which GPT-2's tokenizer writes each byte: its own where that can be seen."""
    seen = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {
        **{byte: chr(byte) for byte in seen},
        **{byte: chr(256 + number) for number, byte in enumerate(hidden)},
    }


def _types(decoder: Any) -> Iterator[str]:
    """The types of a decoder and of the parts that it is a sequence of."""
    if isinstance(decoder, dict):
        yield decoder["type"]
        for part in decoder.get("decoders", ()):
            yield from _types(part)


def _of_letters(token: str, letters: dict[str, int]) -> bytes:
    if not all(letter in letters for letter in token):
        return b""
    return bytes(letters[letter] for letter in token)


def _of_pieces(token: str, letters: dict[str, int]) -> bytes:
    byte = _BYTE.match(token)
    if byte:
        return bytes([int(byte[1], 16)])
    return token.replace(_SPACE, " ").encode("utf-8", "replace")


def _is_plain(spelled: bytes) -> bool:
    """Whether a token can stand in a text in which all white space is single spaces."""
    if _NEVER in spelled or b"  " in spelled:
        return False
    return not re.search(rb"[\t-\r\x1c-\x1f]", spelled)
