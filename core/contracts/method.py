"""What a reading method is: all that one file in `core/methods/` has to define.

Such a file has a frozen dataclass `Options(MethodOptions)` and a class `Method`, which inherits
`Method` below, and `Scoring` or `Recallable` where it answers so. What is abstract must be defined,
or the class cannot be made; all else has a default. The folder is the registry. Nothing here knows
any method.
"""

import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from torch import Tensor

from longctx.core.common.contract import Contract
from longctx.core.common.errors import UsageError
from longctx.core.contracts.memory import (
    HERE,
    Chunked,
    Groups,
    Held,
    Memory,
    Place,
    Recalled,
    Scores,
    Snapshot,
    Stored,
)
from longctx.core.model.adapter import Layer


class MethodOptions:
    """What a user may choose of a method: the base of every frozen dataclass `Options`.

    It is no dataclass itself: a field would stand where this has it, and manifests keep the order.
    Its attributes are for `bench` and `--kv-dtype`; a field or property replaces each.

    Attributes:
        parts: names of other methods of which it is composed. Its options then have a field of
            each name, filled from that method's section of the profile.
        chunk: tokens read at a time; None: nothing is computed while reading.
        budget: tokens that each layer's cache keeps after a chunk; None: all.
        kv_dtype: how keys and values are kept; None: that cannot be chosen.
        window: where all is kept, tokens attended to at most.
        near: where all is kept, tokens of the first chunk: as many are always attended to.
    """

    parts: ClassVar[tuple[str, ...]] = ()
    chunk: Any = None
    budget: Any = None
    kv_dtype: Any = None
    window: Any = None
    near: Any = None

    def fitted(self, window: int) -> Self:
        """The options as they fit a model's window, in tokens; the user is told what changed.

        Raises:
            UsageError: they cannot be made to fit.
        """
        return self

    @property
    def reading(self) -> "MethodOptions":
        """The options by which it reads: its own, or those of a part."""
        return self

    def with_reading(self, part: Any) -> Self:
        """The same with another `reading`."""
        return part

    @classmethod
    def measured(cls, layers: int, window: int) -> Self:
        """Options to measure speed with, for random weights with so many layers.

        Args:
            layers: of the model.
            window: tokens that it was trained on.
        """
        return cls()

    def sized(self, chunk: int | None, budget: int | None) -> Self:
        """The same with another chunk and budget (None: as the other one, or as they are).

        Raises:
            UsageError: everything is kept, so that there is no budget.
            ValueError: they do not fit one another.
        """
        own: Any = self  # of a subclass, a dataclass
        if own.budget is not None:
            chunk, budget = chunk or budget or own.chunk, budget or chunk or own.budget
            return replace(own, chunk=chunk, budget=budget, **own.shortened(chunk, budget))
        if budget is not None:
            raise UsageError(
                "--budget is not for this method",
                "it keeps everything that it reads",
                "Leave it out; --chunk says how much is read at a time.",
            )
        return replace(own, chunk=chunk or own.chunk)

    def shortened(self, chunk: int, budget: int) -> dict[str, int]:
        """Other options that have to be smaller with such a chunk and budget."""
        return {}


@dataclass(frozen=True)
class Capabilities:
    """What is known of a method's class, before there is a model.

    Attributes:
        searches: it keeps what tells which tokens fit a question.
        rereads: a document of less than a chunk may leave its snapshot out; it is read again.
        last_in_part: of the last layer that it runs, only the projections are computed.
        with_kv: the method that `ingest --keep-kv` reads with in its place; None: there is none.
    """

    searches: bool = True
    rereads: bool = False
    last_in_part: bool = False
    with_kv: str | None = None


class Way(Contract, abstract=True):
    """Answers questions about what was read; by itself, it recomputes tokens without any scores.

    Attributes:
        depth: layers that the model runs (0: none, the tokens are all that is kept).
        gather: document and prefix tokens that are gathered for a question; None: all of them.
        edges: (first, last) document tokens that are always gathered.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()
    depth: int
    gather: int | None = sys.maxsize
    edges: tuple[int, int] = (0, 0)


class Scoring(Way, abstract=True):
    """Gives every document token a score; those that fit best are recomputed with the question."""

    @abstractmethod
    def score(self, read: Callable[[Chunked], None], scored: Tensor, stored: Stored) -> Scores:
        """Scores every document token against a question; leaves the memory as it was.

        Args:
            read: runs the question's T tokens through the model into the memory it is given,
                `chunk` of that memory at a time.
            scored: (T,) bool, the tokens of the user's own words: only they score.
            stored: the document's rows.

        Raises:
            StateMismatch: the rows are not such as `rows` gives.
        """

    @abstractmethod
    def embed(self, read: Callable[[Chunked], None]) -> tuple[Tensor, Tensor]:
        """A question's own embeddings, to compare with the rows of the group `embeddings`.

        Args:
            read: as of `score`.

        Returns:
            int8 vectors (T, heads, D) and float16 scales (T, heads).
        """


class Recallable(Way, abstract=True):
    """A question and its answer attend to what was kept."""

    @abstractmethod
    def recall(self) -> Recalled:
        """A memory for one question; this one stays as it is."""


class Method(Memory, Way, abstract=True):
    """Reads documents: a memory that can be saved and restored.

    Args:
        options: of the method.
        layers: the model's layers.
        place: where to keep tensors.

    Attributes:
        ways: what answers from its state, by the name of the method, the usual one first; none:
            only this one does.
    """

    ways: Mapping[str, Way] = {}

    def __init__(self, options: Any, layers: tuple[Layer, ...], place: Place = HERE):
        self.options, self._layers, self._place = options, layers, place
        self.depth = len(layers)

    @property
    def chunk(self) -> int:
        """Tokens of the input that it reads next; it may change from chunk to chunk."""
        return self.options.chunk or 4096  # where no layer is computed, the size matters little

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """What the store must keep for a later process to go on from here.

        It is written while reading goes on: nothing changes these tensors any more.
        """

    @abstractmethod
    def restore(self, snapshot: Snapshot, stored: Stored, reading: bool) -> None:
        """Takes up a snapshot and what else it needs of a document.

        Args:
            snapshot: tensors on the CPU, in the dtype in which they were computed.
            stored: the document's rows.
            reading: reading will go on, which may replace the files under `stored`; else they
                stay as long as this method is used.

        Raises:
            StateMismatch: it is none of this method with these options and layers.
        """

    @abstractmethod
    def snapshot_bytes(self, tokens: int, itemsize: int) -> int:
        """The most bytes that a snapshot after so many tokens takes.

        Args:
            tokens: of prefix and document.
            itemsize: bytes of an element of keys and values.
        """

    def rows(self, skip: int = 0) -> Groups:
        """Per-token rows of the chunk just read, first dimension T - skip; handed out once.

        They are written while reading goes on: nothing changes these tensors any more.

        Args:
            skip: first tokens of the chunk that get no rows: they are of the prefix, and not of
                the document. What is needed of them is kept for the snapshot.
        """
        return {}

    def row_bytes(self) -> int:
        """Bytes of rows that the store keeps for each token."""
        return 0

    def held_bytes(self, tokens: int) -> Held:
        """Memory held after so many tokens, beside what a chunk or two show: of what grows."""
        return Held()


class Growing(Method, abstract=True):
    """Lets go of nothing: a chunk takes the longer, the more tokens were read before it."""

    @abstractmethod
    def fill(self, tokens: int) -> None:
        """Makes its memory as if so many tokens had been read, with random contents.

        So the speed of late chunks is measured without reading what comes before.
        """


def can_be_made_again(method: Method, tokens: int) -> bool:
    """Whether a snapshot may be left out: to read the tokens again is less than an answer takes.

    Args:
        method: that has read.
        tokens: of prefix and document.
    """
    return method.capabilities.rereads and tokens < min(method.chunk, method.gather or 0)
