"""Safe splits: where a text can be cut without changing its tokens, proven per tokenizer.

Knows nothing of texts that arrive in blocks, nor of how the tokens are used.
"""

import hashlib
import json
import re
import string
import unicodedata
from collections.abc import Iterator
from itertools import chain, cycle, product
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer
from tokenizers.models import BPE

AHEAD = 32  # characters seen after a cut; the patterns in use look ahead by one


def plain_backend(backend: Tokenizer) -> Tokenizer:
    """A copy that reads special tokens as plain text, truncates nothing and adds nothing."""
    copy = Tokenizer.from_str(backend.to_str())
    copy.encode_special_tokens = True
    copy.no_truncation()
    copy.no_padding()
    copy.post_processor = None  # some move the offsets past a token's leading space
    return copy


# Components that work from left to right, or by character, and never look back.
_BY_CHARACTER = {"Metaspace", "Digits", "Punctuation", "CharDelimiterSplit", "Split"}
_FORWARD = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "BertNormalizer", "Prepend"}
_FORWARD |= {"Replace", "ByteLevel", "Whitespace", "WhitespaceSplit", "BertPreTokenizer"}
_FORWARD |= _BY_CHARACTER
_LITERALS = re.compile(r"\[(?:\\.|[^\]\\])*\]|\\[^bBAGKyYzZ]")
_LOOKS_BACK = re.compile(r"\(\?<|\\[bBAGKyYzZ]|[$^]")
_AFTER_NEWLINE = re.compile(r"(\n|<0x0A>)(?!\n|<0x0A>|$)")

_KINDS = {"L": "letter", "P": "punctuation"}
_RIGHT = [chr(point) for point in range(0x21, 0x7F)]
_RIGHT += "éßЯλאاअก中あア한Աა“”„«»—…。、「」¿¡•·†‰§¶؟।"
_LEFT = [*"abZ7 \t\u00a0\u2028\x85\x0b\u200dé中。😀☃", *string.punctuation, "e\u0301", "'s"]
_ENDS = ["\n", "\n\n", "\n\n\n", "\r\n", " \n", "\n\t\n"]
_NEXT = ["", "a b", "1, ", ".: ", "=\n", " x", "'s "]
# Every left context, each after the text following the last cut: `right.join(_PROBE)` is a text.
_PROBE = [after + "".join(left) for after, left in zip(cycle(_NEXT), product(_LEFT, _ENDS))]
_PROBE = ["\n", *_PROBE, " x"]


def spans(encoding: Encoding) -> tuple[np.ndarray, np.ndarray]:
    """(n,) and (n,) int64: the characters at which each token starts and ends."""
    flat = np.fromiter(chain.from_iterable(encoding.offsets), dtype=np.int64)
    return flat[::2], flat[1::2]


def safe_cuts(backend: Tokenizer) -> frozenset[str]:
    r"""Shows before which characters a text can be cut after a newline without changing a token.

    The argument, for a cut between "\n" and a character that is not a space, mark or control:

    1. Normalizers: those admitted work character by character or, composing, never compose or
       reorder across a newline; a replacement that contains one is not admitted. What they prepend
       to a text comes before the newline that starts each piece, and is dropped with it.
    2. Added tokens: none contains a newline before another character or absorbs the spaces on
       its left, so none spans the cut.
    3. Pre-tokenizers: those admitted work from left to right, and patterns that look back (or
       anchor to the ends of the text) are not admitted. So if one pre-token ends at the cut, those
       after it are as if the text began there, and those before it are the same as long as the
       pattern looks no further ahead than `AHEAD`. That one ends there is tested with every
       printable ASCII character and samples of other letters and punctuation on the right, each
       after words, digits, every ASCII sign, CJK, emoji, marks and spaces with several line ends.
    4. The model sees one pre-token at a time, so its tokens are the same too.

    Without 3, as in SentencePiece's BPE on the whole text: no vocabulary entry has a newline
    before another character, so no merge crosses the cut, and the merges on one side of it do
    not depend on the other side. The pre-tokenizers must then work character by character.

    It takes half a second, so each tokenizer of a process is tried once: many short documents have
    the same one.

    Returns:
        ASCII characters, "letter" and "punctuation" (those outside ASCII); empty if nothing can
        be shown.
    """
    described = hashlib.sha256(backend.to_str().encode()).digest()
    if described not in _found:
        _found[described] = _tried(backend)
    return _found[described]


_found: dict[bytes, frozenset[str]] = {}


def _tried(backend: Tokenizer) -> frozenset[str]:
    parts = [*_parts(backend.normalizer), *_parts(backend.pre_tokenizer)]
    added = backend.get_added_tokens_decoder().values()
    if not all(_goes_forward(part) for part in parts) or getattr(backend.model, "dropout", None):
        return frozenset()
    if any(_AFTER_NEWLINE.search(t.content) or (t.lstrip and not t.special) for t in added):
        return frozenset()
    inside = _merges_end_at_newlines(backend)
    encodings = backend.encode_batch([right.join(_PROBE) for right in _RIGHT])
    shown = [_ends_at_cuts(encoding, inside) for encoding in encodings]
    failed = {_kind(right) for right, ok in zip(_RIGHT, shown, strict=True) if not ok}
    return frozenset(map(_kind, _RIGHT)) - failed


def _parts(component: Any) -> Iterator[dict]:
    """The parts of a normalizer or pre-tokenizer, with sequences flattened."""
    waiting = [json.loads(component.__getstate__())] if component is not None else []
    while waiting:
        part = waiting.pop()
        inner = part.get("normalizers", part.get("pretokenizers"))
        if inner is None:
            yield part
        waiting += inner or []


def _goes_forward(part: dict) -> bool:
    pattern = part.get("pattern", {})
    if part["type"] == "Replace":
        return "\n" not in pattern.get("String", "\n") + part["content"]
    if _AFTER_NEWLINE.search(pattern.get("String", "")):
        return False
    looks_back = _LOOKS_BACK.search(_LITERALS.sub("", pattern.get("Regex", "")))
    return part["type"] in _FORWARD and not looks_back


def _merges_end_at_newlines(backend: Tokenizer) -> bool:
    model, vocabulary = backend.model, backend.get_vocab(with_added_tokens=False)
    if not isinstance(model, BPE) or model.ignore_merges:
        return False
    if model.continuing_subword_prefix or model.end_of_word_suffix:
        return False
    for part in _parts(backend.pre_tokenizer):
        if part["type"] not in _BY_CHARACTER or "Regex" in part.get("pattern", {}):
            return False
    known = "\n" in vocabulary or (model.byte_fallback and "<0x0A>" in vocabulary)
    return known and not any(map(_AFTER_NEWLINE.search, vocabulary))


def _ends_at_cuts(encoding: Encoding, inside: bool) -> bool:
    """Whether a token ends at every cut of a probe and, unless `inside`, a pre-token."""
    cuts = np.cumsum([len(part) + 1 for part in _PROBE[:-1]]) - 1
    first, last = spans(encoding)
    words = np.array(encoding.word_ids, dtype=float)  # None, an added token, becomes NaN
    after = np.searchsorted(first, cuts)  # the first token at or after the cut
    if after[-1] == len(first):
        return False
    before = np.maximum(after - 1, 0)
    apart = (last[before] <= cuts) & (inside | (words[before] != words[after]))
    return bool(np.all(apart | (after == 0)))


def _kind(char: str) -> str:
    return char if char.isascii() else _KINDS.get(unicodedata.category(char)[0], "")


def allowed(char: str, cuts: frozenset[str]) -> bool:
    """Whether a cut before `char` is safe, even if a normalizer decomposes it."""
    return _kind(char) in cuts and _kind(unicodedata.normalize("NFKD", char)[0]) in cuts
