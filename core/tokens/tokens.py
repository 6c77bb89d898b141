"""Tokenizes text in pieces, with the same result as at once, each token with its byte offset.

Memory does not grow with the text: it is cut where that provably changes no token
(`safe_splits.py`); a little text on both sides is tokenized too, and its tokens are dropped.
Special tokens written in a document are plain text. Knows nothing of models, stores, or how bytes
become text.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tokenizers import Encoding

from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.sources.reader import Block, Source
from longctx.core.tokens.safe_splits import AHEAD, allowed, plain_backend, safe_cuts, spans

if TYPE_CHECKING:
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

PIECE = 1 << 13  # characters; longer pieces exceed the CPU's caches and take 1.5 times as long
BATCH = 1 << 18  # characters per call, which the tokenizers library spreads over CPU cores
RUN = 1 << 20  # characters without a cut after which the text is split anyway
WHOLE = 64 << 20  # bytes of a source that are tokenized at once if no safe split is known


@dataclass(frozen=True)
class Tokens:
    """Consecutive tokens of one source.

    Args:
        ids: (n,) int32.
        starts: (n,) int64, the byte offset in the source of each token's first character.
            Tokens that share a character share its offset.
        begin, end: the bytes of the source whose tokens these are.
        last: the source ends here; these may change when it grows.
        forced: the text was split after them although that may change its tokens.
    """

    ids: np.ndarray
    starts: np.ndarray
    begin: int
    end: int
    last: bool = False
    forced: bool = False


class _Piece(NamedTuple):
    """A text to tokenize; only the tokens of characters [begin, end) are kept."""

    text: str
    starts: np.ndarray  # (len(text) + 1,) byte offsets
    begin: int
    end: int
    last: bool = False
    forced: bool = False

    @property
    def stop(self) -> int:
        """The byte of the source where the kept characters end."""
        return int(self.starts[self.end])


class TokenStream:
    """Tokenizes sources of any size with one tokenizer.

    `forced_splits` counts the places where a text was split although that may change its tokens.

    Args:
        tokenizer: a fast transformers tokenizer; it is copied, not changed.
        piece: characters per piece.
        run: characters without a safe split after which the text is split anyway.
        whole: bytes accepted per source if no safe split is known for the tokenizer.

    Raises:
        UsageError: the tokenizer has no fast version.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        piece: int = PIECE,
        run: int = RUN,
        whole: int = WHOLE,
    ):
        self._name = tokenizer.name_or_path or type(tokenizer).__name__
        if not tokenizer.is_fast:
            raise UsageError(
                f"cannot use the tokenizer '{self._name}'",
                f"a {type(tokenizer).__name__} does not tell where in the text its tokens are",
                "Use a model that comes with a tokenizer.json.",
            )
        backend: Any = tokenizer.backend_tokenizer
        self._backend = plain_backend(backend)
        self._cuts = safe_cuts(self._backend)
        self._piece, self._run, self._whole = piece, run, whole
        self.forced_splits = 0

    def read(
        self, source: Source, on_bytes: Callable[[bytes], None] | None = None, after: int = -1
    ) -> Iterator[Tokens]:
        """The tokens of a source's header and whole text, in order; no special tokens are added.

        Args:
            source: what to read.
            on_bytes: receives the source's raw bytes, as in `Source.blocks`.
            after: a byte before which the tokens are known: pieces that end there or earlier are
                skipped. The others are unchanged, so the first may begin before it.

        Raises:
            UnreadableInput: the source cannot be read as text.
            UsageError: no safe split is known for the tokenizer, and the source is too large.
        """
        blocks = source.blocks(on_bytes)
        pieces = self._pieces(blocks, source.back) if self._cuts else self._at_once(blocks, source)
        first = next(pieces)
        pieces = chain([first], pieces)
        for batch in _batches(piece for piece in pieces if piece.stop > after):
            texts = [piece.text for piece in batch]
            encodings = self._backend.encode_batch(texts, add_special_tokens=False)
            for piece, encoding in zip(batch, encodings, strict=True):
                tokens = self._tokens(piece, encoding)
                yield self._headed(tokens, source) if piece is first else tokens

    def head(self, header: str) -> np.ndarray:
        """The ids (n,) int32 of a source's header."""
        ids = self._backend.encode(header, add_special_tokens=False).ids
        return np.array(ids, dtype=np.int32)

    def is_cut(self, char: str) -> bool:
        """Whether, for `char` after a newline, the text before it cannot change its token or any
        later one."""
        return allowed(char, self._cuts)

    def _pieces(self, blocks: Iterable[Block], back: int) -> Iterator[_Piece]:
        text, starts, begin = "", np.zeros(1, dtype=np.int64), back
        for block in blocks:
            text = text[begin - back :] + block.text
            starts = np.concatenate([starts[begin - back : -1], block.starts])
            begin = back
            while found := self._next_cut(text, begin):
                cut, ahead = found
                stretch = slice(begin - back, cut + ahead)
                offsets = starts[stretch.start : stretch.stop + 1]
                forced = not ahead
                yield _Piece(text[stretch], offsets, back, cut - stretch.start, forced=forced)
                # The newline before a cut is included: anything prepended to a text goes before it.
                begin, back = cut, 1 if ahead else 0
        rest = len(text) - begin + back
        yield _Piece(text[begin - back :], starts[begin - back :], back, rest, last=True)

    def _next_cut(self, text: str, begin: int) -> tuple[int, int] | None:
        """Where the piece from `begin` ends and how much to see after it; None to read more."""
        limit = len(text) - AHEAD
        near, far = min(begin + self._piece, limit), min(begin + self._run, limit)
        for newline in _newlines(text, begin, near, far):
            if allowed(text[newline + 1], self._cuts):
                return newline + 1, AHEAD
        if begin + self._run > limit:
            return None
        self.forced_splits += 1
        return begin + self._run, 0

    def _at_once(self, blocks: Iterable[Block], source: Source) -> Iterator[_Piece]:
        held: list[Block] = []
        for block in blocks:
            held.append(block)
            if max(source.size, source.expected_size or 0) > self._whole:
                raise UsageError(
                    f"cannot read '{source.name}' with the tokenizer '{self._name}'",
                    f"it is larger than {self._whole:,} bytes, and no place is known where a text"
                    " can be cut for this tokenizer",
                    "Split the source into smaller files.",
                )
        text = "".join(block.text for block in held)
        starts = [block.starts[:-1] for block in held] + [held[-1].starts[-1:]]
        yield _Piece(text, np.concatenate(starts), 0, len(text), last=True)

    def _headed(self, tokens: Tokens, source: Source) -> Tokens:
        """A source's first tokens, after those of its header, which have its first byte offset."""
        head = self.head(source.header)
        ids = np.concatenate([head, tokens.ids])
        starts = np.concatenate([np.full(len(head), tokens.begin, np.int64), tokens.starts])
        return replace(tokens, ids=ids, starts=starts)

    def _tokens(self, piece: _Piece, encoding: Encoding) -> Tokens:
        first, last = spans(encoding)
        for cut in (piece.begin, piece.end):
            if np.any((first < cut) & (last > cut)):
                raise LongctxError(
                    f"cannot cut the text at byte {piece.starts[cut]}",
                    f"the tokenizer '{self._name}' has a token across it, against what its"
                    " probes showed",
                    "Please report this tokenizer.",
                )
        until_end = piece.end == len(piece.text)  # then zero-width tokens at the end count too
        kept = (first >= piece.begin) & ((first < piece.end) | until_end)
        ids = np.array(encoding.ids, dtype=np.int32)[kept]
        begin = int(piece.starts[piece.begin])
        starts = piece.starts[first[kept]]
        return Tokens(ids, starts, begin, piece.stop, piece.last, piece.forced)


def _newlines(text: str, begin: int, near: int, far: int) -> Iterator[int]:
    """Newlines from `begin` to `near`, last first, then those from `near` to `far`."""
    at = max(begin, near)
    while (at := text.rfind("\n", begin, at)) >= 0:
        yield at
    at = max(begin, near) - 1
    while (at := text.find("\n", at + 1, max(begin, far))) >= 0:
        yield at


def _batches(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    batch, size = [], 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece.text)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    yield batch
