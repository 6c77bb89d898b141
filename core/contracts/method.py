"""What a reading method is: everything that a file in `core/methods/` has to define.

Such a file has a frozen dataclass `Options(MethodOptions)` and a class `Method`, which inherits
`Method` below, and `Scoring` or `Recallable` if it answers that way. Abstract members must be
defined, or the class cannot be created; all others have a default. The folder is the registry.
Nothing here knows any method.
"""

import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
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
from longctx.core.profile.described import Described


class MethodOptions:
    """A method's options: the base of every frozen dataclass `Options`.

    Not a dataclass itself: its fields would come first, and manifests keep the order of fields.
    Its attributes are for `bench` and `--kv-dtype`; a field or property may override each.

    Attributes:
        parts: names of the methods it is composed of. Its options then have a field of each name,
            filled from that method's section of the profile.
        chunk: tokens read at a time; None if nothing is computed while reading.
        budget: tokens that each layer's cache keeps after a chunk; None for all.
        kv_dtype: how keys and values are kept; None if this cannot be chosen.
        window: if nothing is evicted, most tokens attended to.
        near: if nothing is evicted, tokens of the first chunk: as many are always attended to.
    """

    parts: ClassVar[tuple[str, ...]] = ()
    chunk: Any = None
    budget: Any = None
    kv_dtype: Any = None
    window: Any = None
    near: Any = None

    def fitted(self, window: int) -> Self:
        """The options fitted to a model's window, in tokens; changes are reported to the user.

        Raises:
            UsageError: they cannot be made to fit.
        """
        return self

    @classmethod
    def by_rule(cls, model: Described, window: int) -> dict[str, Any]:
        """Options for a model that no profile is made for; the defaults for what is not in them.

        Args:
            model: its shape.
            window: tokens that it was trained on.
        """
        return {}

    @classmethod
    def recorded(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Options as a document records them, with what an older version did not yet record."""
        return values

    def require_heads(self, model: Described) -> None:
        """Refuses heads that a model does not have, before it is loaded.

        Raises:
            UsageError: names the head, and what the model has.
        """

    @property
    def reading(self) -> "MethodOptions":
        """The options used for reading: its own, or those of a part."""
        return self

    def with_reading(self, part: Any) -> Self:
        """A copy with another `reading`."""
        return part

    @classmethod
    def measured(cls, layers: int, window: int) -> Self:
        """Options for measuring speed, on random weights with `layers` layers.

        Args:
            layers: number of layers of the model.
            window: the model's window in tokens.
        """
        return cls()

    def sized(self, chunk: int | None, budget: int | None) -> Self:
        """A copy with another chunk and budget (None: as the other one, or unchanged).

        Raises:
            UsageError: everything is kept, so there is no budget.
            ValueError: the two do not fit together.
        """
        own: Any = self  # an instance of a subclass, a dataclass
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
        """Other options that must be smaller with this chunk and budget."""
        return {}


@dataclass(frozen=True)
class Capabilities:
    """What is known about a method's class before a model is loaded.

    Attributes:
        searches: it keeps data for retrieval, if it scores or recalls.
        rereads: a short document may keep nothing of it; it is read again instead.
        last_in_part: of the last layer that it runs, only the projections are computed.
        with_kv: the method that `ingest --keep-kv` uses instead; None if there is none.
        by_source: sources may be read one by one: a row depends on its own source alone, and a
            question needs no snapshot of them.
        renews: a chunk replaces what is kept and does not change it, so a snapshot stays as it is.
    """

    searches: bool = True
    rereads: bool = False
    last_in_part: bool = False
    with_kv: str | None = None
    by_source: bool = False
    renews: bool = False


class Way(Contract, abstract=True):
    """Answers questions about what was read; by itself, it recomputes tokens without scores.

    Attributes:
        gather: document and prefix tokens that are gathered for a question; None for all.
        edges: (first, last) document tokens that are always gathered.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()
    gather: int | None = sys.maxsize
    edges: tuple[int, int] = (0, 0)

    @property
    @abstractmethod
    def depth(self) -> int:
        """Layers that the model runs (0: none, only tokens are kept)."""

    @property
    def searches(self) -> bool:
        """Whether a document can be searched this way."""
        able = self.capabilities.searches and isinstance(self, Scoring | Recallable)
        return able and self.gather is not None


class Scoring(Way, abstract=True):
    """Scores every document token; the best tokens are recomputed with the question."""

    @abstractmethod
    def score(self, read: Callable[[Chunked], None], scored: Tensor, stored: Stored) -> Scores:
        """Scores every document token against a question; leaves the memory as it was.

        Args:
            read: runs the question's T tokens through the model into a given memory, `chunk` of
                that memory at a time.
            scored: (T,) bool, the tokens of the user's own words: only they score.
            stored: the document's rows.

        Raises:
            StateMismatch: the rows are not what `rows` gives.
        """

    @abstractmethod
    def embed(self, read: Callable[[Chunked], None]) -> tuple[Tensor, Tensor]:
        """A question's embeddings, to compare with the rows of the group `embeddings`.

        Args:
            read: see `score`.

        Returns:
            int8 vectors (T, heads, D) and float16 scales (T, heads).
        """


class Recallable(Way, abstract=True):
    """A question and its answer attend to what was kept."""

    @abstractmethod
    def recall(self) -> Recalled:
        """A memory for one question; this one does not change."""


class Method(Memory, Way, abstract=True):
    """Reads documents: a memory that can be saved and restored.

    Args:
        options: the method's options.
        layers: the model's layers.
        place: where to keep tensors.

    Attributes:
        ways: what can answer from its state, by method name, the default first; empty if only
            this method can.
    """

    ways: Mapping[str, Way] = {}

    def __init__(self, options: Any, layers: tuple[Layer, ...], place: Place = HERE):
        self.options, self._layers, self._place = options, layers, place

    @property
    def depth(self) -> int:
        """All layers that it was given; see `Way`."""
        return len(self._layers)

    @property
    def chunk(self) -> int:
        """Tokens of the input that it reads next; it may change from chunk to chunk."""
        return self.options.chunk or 4096  # where no layer is computed, the size matters little

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """What the store must keep for a later process to resume from here.

        It is written while reading continues: these tensors must not change any more.
        """

    @abstractmethod
    def restore(self, snapshot: Snapshot, stored: Stored, reading: bool) -> None:
        """Restores a snapshot and whatever else it needs of a document.

        Args:
            snapshot: tensors on the CPU, in the dtype in which they were computed.
            stored: the document's rows.
            reading: reading will continue, which may replace the files under `stored`; else they
                stay as long as this method is used.

        Raises:
            StateMismatch: it is not a snapshot of this method with these options and layers.
        """

    @abstractmethod
    def snapshot_bytes(self, tokens: int, itemsize: int) -> int:
        """The most bytes that a snapshot takes after `tokens` tokens.

        Args:
            tokens: number of tokens of prefix and document.
            itemsize: bytes per element of keys and values.
        """

    def rows(self, skip: int = 0) -> Groups:
        """Per-token rows of the chunk just read, first dimension T - skip; returned only once.

        They are written while reading continues: these tensors must not change any more.

        Args:
            skip: first tokens of the chunk that get no rows, as they belong to the prefix, not to
                the document. What is needed of them is kept for the snapshot.
        """
        return {}

    def row_bytes(self) -> int:
        """Bytes of rows that the store keeps per token."""
        return 0

    def held_bytes(self, tokens: int) -> Held:
        """Memory held after `tokens` tokens: only what grows beyond what one or two chunks show."""
        return Held()


class Replayable(Method, abstract=True):
    """Does the same work for each whole chunk once its memory is full, so that can be recorded.

    Or while it has room where it grows. Nothing on the host decides then what is computed, but for
    how many tokens were read.

    Attributes:
        in_place: a chunk is added to its states where they have room, and replaces none.
    """

    in_place: ClassVar[bool] = False

    @property
    @abstractmethod
    def seen(self) -> int:
        """Tokens of the input read so far."""

    @abstractmethod
    def states(self) -> list[Tensor]:
        """All tensors that the next chunk depends on, in an order of their own; none: not yet."""

    def fits(self, tokens: int) -> bool:
        """Whether the states can take a chunk of so many tokens."""
        return True

    @abstractmethod
    def replaying(self, states: Sequence[Tensor], seen: Tensor | int) -> Self:
        """A memory for one chunk with these states.

        Args:
            states: as `states` gives them; those of layers that it does not read stay as they are.
            seen: tokens of the input read before; () int64 on the device of its layers where
                another number is meant each time.
        """

    @abstractmethod
    def taken(self) -> dict[Any, Tensor]:
        """What `rows_of` needs of the layers that have read a chunk; returned only once."""

    @abstractmethod
    def rows_of(self, taken: Mapping[Any, Tensor], skip: int = 0) -> Groups:
        """The rows of a chunk.

        Args:
            taken: of all layers.
            skip: see `rows`.
        """

    @abstractmethod
    def hold(self, states: Sequence[Tensor], seen: int) -> None:
        """Goes on from states that later chunks change in place; snapshots are copies then."""


class ReplayableQuestions(Replayable, abstract=True):
    """Reads a question behind states that stay as they are, so that can be recorded too."""

    @abstractmethod
    def take(self, taken: Mapping[Any, Tensor], tokens: int) -> None:
        """Takes what another memory gave as `taken`, for the first of the tokens that it read."""


class Growing(Method, abstract=True):
    """Evicts nothing: the more tokens were read before a chunk, the longer it takes."""

    @abstractmethod
    def fill(self, tokens: int) -> None:
        """Fills its memory with random contents, as if `tokens` tokens had been read.

        So the speed of late chunks is measured without reading the earlier ones.
        """


def can_be_made_again(method: Method, tokens: int, window: int, layers: int) -> bool:
    """Whether all that a method keeps may be left out: reading again costs less than an answer.

    Args:
        method: a method that has read them.
        tokens: of prefix and document.
        window: tokens that the model was trained on.
        layers: of the model, all of which an answer runs.
    """
    rereads = method.capabilities.rereads and tokens <= window
    return rereads and tokens * method.depth <= layers * (method.gather or 0)
