"""Documents of an exact number of tokens, made of haystack pieces with needles between them.

`fit` joins drafts, trims one end of the text to the exact count, and reports which tokens hold each
needle. A document is tokenized whole, like a user's, so its needles have the tokens they would have
there. Knows nothing of questions, frames, or what makes a needle.
"""

from dataclasses import dataclass

import numpy as np
from tokenizers import Encoding, Tokenizer

NEAR = sorted(range(-12, 13), key=abs)  # cuts to try around the expected one, in tokens
ANCHOR = 64  # tokens beside a cut to count again, to see whether it is exact
SLACK = 1 / 24  # share of extra haystack tokens: joined pieces have fewer tokens than single ones
SLACKS = 6  # the most of such shares; how many fewer they have depends on the tokenizer and text


@dataclass(frozen=True)
class Draft:
    """What a document is made of.

    Attributes:
        pieces: consecutive pieces of a haystack.
        needles: (depth from 0 to 1, text) of the needles put between them, in any order.
        tokens: tokens that the document must have.
    """

    pieces: list[str]
    needles: list[tuple[float, str]]
    tokens: int


@dataclass(frozen=True)
class Document:
    """A text of an exact length.

    Attributes:
        text: with all needles.
        ids: (n,) int32, its tokens.
        needles: (first, last + 1) token of each needle, in the draft's order.
    """

    text: str
    ids: np.ndarray
    needles: list[tuple[int, int]]


@dataclass(frozen=True)
class _Joined:
    """An untrimmed document, with the characters of each needle."""

    text: str
    needles: list[tuple[int, int]]

    @property
    def free(self) -> tuple[int, int]:
        """Where the first needle starts and the last one ends; text outside may be trimmed."""
        starts, ends = zip(*self.needles, strict=True) if self.needles else ((), ())
        return min(starts, default=len(self.text)), max(ends, default=0)


def with_slack(tokens: int, attempt: int) -> int:
    """Tokens of haystack to take for a document that needs so many, more after each failure."""
    return int(max(1, tokens) * (1 + SLACK * (1 + attempt % SLACKS)))


def fit(drafts: list[Draft], backend: Tokenizer) -> list[Document | None]:
    """Makes a document from each draft; None where no exact count was found (draw another one)."""
    joined = [_joined(draft) for draft in drafts]
    encodings = _encoded(backend, [whole.text for whole in joined])
    parts = zip(drafts, joined, encodings, strict=True)
    spans = [_span(draft.tokens, *rest, backend) for draft, *rest in parts]
    texts = [whole.text[start:end] for whole, (start, end) in zip(joined, spans, strict=True)]
    encodings = _encoded(backend, texts)
    made = zip(texts, joined, spans, encodings, strict=True)
    documents = [
        _document(text, whole.needles, start, encoding)
        for text, whole, (start, _), encoding in made
    ]
    wanted = zip(documents, drafts, strict=True)
    return [made if len(made.ids) == draft.tokens else None for made, draft in wanted]


def _joined(draft: Draft) -> _Joined:
    ends = np.cumsum([0, *map(len, draft.pieces)])
    borders = [int(abs(ends - depth * ends[-1]).argmin()) for depth, _ in draft.needles]
    text = ""
    spans = [(0, 0)] * len(borders)
    for number in range(len(ends)):
        for index in (i for i, border in enumerate(borders) if border == number):
            needle = draft.needles[index][1]
            gap = "\n" if "\n" in needle else _gap(text)
            text += "\n" if "\n" in needle and text and text[-1] != "\n" else ""
            spans[index] = (len(text), len(text) + len(needle))
            text += needle + gap
        text += "".join(draft.pieces[number : number + 1])
    return _Joined(text.rstrip(" "), spans)


def _gap(text: str) -> str:
    """The white space at a text's end: what comes before a needle comes after it too."""
    return text[len(text.rstrip()) :] or "\n"


def _span(tokens: int, whole: _Joined, encoding: Encoding, backend: Tokenizer) -> tuple[int, int]:
    """The characters to keep so that `tokens` tokens are left; nothing if there is no such cut.

    The start of the text is trimmed, or the end if the first needle is too near the start.
    """
    excess, text = len(encoding) - tokens, whole.text
    if excess <= 0:
        return (0, len(text)) if excess == 0 else (0, 0)
    first, last = whole.free
    for token in (excess + near for near in NEAR if 0 < excess + near < len(encoding)):
        cut = encoding.token_to_chars(token)[0]
        anchor = min(token + ANCHOR, len(encoding) - 1)
        after = encoding.token_to_chars(anchor)[0]
        for start in (cut + (text[cut] == " "), cut):
            if start <= first and _count(backend, text[start:after]) == anchor - excess:
                return start, len(text)
    for token in (tokens + near for near in NEAR if 0 < tokens + near < len(encoding)):
        end = encoding.token_to_chars(token)[0]
        anchor = max(token - ANCHOR, 0)
        before = encoding.token_to_chars(anchor)[0]
        if end >= last and _count(backend, text[before:end]) == tokens - anchor:
            return 0, end
    return 0, 0


def _document(text: str, needles: list[tuple[int, int]], cut: int, encoding: Encoding) -> Document:
    spans = [
        (encoding.char_to_token(start - cut), encoding.char_to_token(end - cut - 1) + 1)
        for start, end in needles
        if text
    ]
    return Document(text, np.array(encoding.ids, dtype=np.int32), spans)


def _encoded(backend: Tokenizer, texts: list[str]) -> list[Encoding]:
    return backend.encode_batch(texts, add_special_tokens=False)


def _count(backend: Tokenizer, text: str) -> int:
    return len(backend.encode(text, add_special_tokens=False))
