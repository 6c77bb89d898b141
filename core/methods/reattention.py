"""ReAttention: all keys and values are kept position-free; each chunk selects some by top-k.

Liu et al., "ReAttention: Training-Free Infinite Context with Finite Attention Scope", ICLR 2025.
Before a layer attends, the chunk's queries vote for their best keys (2.1); the selected tokens are
placed between the first and the latest ones, at consecutive positions (2.2).
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.core.common.errors import UsageError
from longctx.core.contracts import method as contract
from longctx.core.contracts.memory import (
    HERE,
    Columns,
    Groups,
    Held,
    Place,
    Rows,
    Scores,
    Seen,
    Snapshot,
    Stored,
    Whole,
)
from longctx.core.kv.attempts import Attempts
from longctx.core.kv.block_options import KV_DTYPES
from longctx.core.kv.kept import GROUP, LayerKV
from longctx.core.kv.scanned import Scanned
from longctx.core.kv.windows import everything, exactly, rotated_window
from longctx.core.model.adapter import EarlyExit, Layer
from longctx.core.profile.described import Described
from longctx.kernels.door import (
    Window,
    select_window,
    selected_attention,
    window_attention,
)

VOTING_STEPS = 32  # tokens of an answer whose votes count for the passages


@dataclass(frozen=True)
class Options(contract.MethodOptions):
    """Options of ReAttention; the defaults are the paper's (3.1).

    Attributes:
        first: tokens at the start of the input that are always attended to.
        local: latest tokens always attended to, including the chunk being read.
        chunk: tokens of the input read at a time, after the first `first + local`.
        top_k: keys that each query head chooses for each token.
        voted: number of most voted keys that are selected (k' of the paper).
        span: tokens that a selected key grows to.
        gather: most tokens shown as passages.
        kv_dtype: how keys and values are kept: auto (as they are computed), bf16 or int8.
    """

    first: int = 32
    local: int = 4096
    chunk: int = 512
    top_k: int = 4
    voted: int = 127
    span: int = 32
    gather: int = 8192
    kv_dtype: str = "auto"

    def __post_init__(self) -> None:
        for name in ("local", "chunk", "top_k", "voted", "span", "gather"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")
        if self.first < 0 or self.chunk > self.local:
            raise ValueError(f"expected first >= 0 and chunk <= local, got {self}")
        if self.kv_dtype not in KV_DTYPES:
            raise ValueError(f"kv_dtype: expected one of {', '.join(KV_DTYPES)}")

    @property
    def near(self) -> int:
        """Tokens of the first chunk, where nothing can be selected yet."""
        return self.first + self.local

    @property
    def window(self) -> int:
        """Most tokens attended to."""
        return self.near + self.voted * self.span

    def fitted(self, window: int) -> Self:
        """Selects fewer keys; see `MethodOptions.fitted`.

        Raises:
            UsageError: not even one fits.
        """
        voted = min(self.voted, (window - self.near) // self.span)
        if voted < 1:
            raise UsageError(
                f"first + local = {self.near} leave no room for a span of {self.span}",
                f"the model's window is {window} tokens",
                "Set `local` of `reattention` in a profile (docs/profiles.md).",
            )
        return replace(self, voted=voted)

    @classmethod
    def by_rule(cls, model: Described, window: int) -> dict[str, Any]:
        """The paper's sizes where they fit; else a quarter of the window is local."""
        usual = cls()
        gather = min(usual.gather, max(1, window // 2))
        if usual.window <= window:
            return {"gather": gather}
        local, span = max(1, window // 4), min(usual.span, max(1, window // 16))
        first = min(usual.first, window // 16)
        return {
            "first": first,
            "local": local,
            "chunk": min(usual.chunk, local),
            "voted": min(usual.voted, max(1, (window - first - local) // span)),
            "span": span,
            "gather": gather,
        }

    @classmethod
    def measured(cls, layers: int, window: int) -> Self:
        """A local window of at most half the model's; see `MethodOptions.measured`."""
        local = min(cls.local, window // 2)
        return cls(local=local, chunk=min(cls.chunk, local))


class Method(contract.Growing, contract.Replayable, contract.Recallable, Whole):
    """The memory of ReAttention.

    Differences from the paper, which leaves these open: ties of votes go to the higher best score,
    then to the earlier token; layers with a sliding window keep their window and select nothing; a
    rotary embedding that depends on the length is that of the longest window. Keys and values of a
    chunk are converted to `kv_dtype` before the chunk attends to them, so that a saved state
    answers like the process that read the document. Unlike in the published kernel, every key is a
    candidate. While a document is read, nothing needs the last layer's attention.

    Args:
        options: `Options`.
        layers, place: see `Method` in the contract.
    """

    capabilities = contract.Capabilities(last_in_part=True)
    in_place = True

    def __init__(self, options: Options, layers: tuple[Layer, ...], place: Place = HERE):
        super().__init__(options, layers, place)
        self.gather = options.gather
        stored = KV_DTYPES[options.kv_dtype] or place.dtype
        self._kept = Scanned(layers, stored, place, options.local)
        self._votes = torch.zeros(0)  # (N,) of a question, summed over the layers
        self._steps: int | None = None  # tokens of the answer so far; None: it has not begun
        self._looks = 0  # of these tokens in all layers
        self._seen = torch.zeros(1, dtype=torch.int64, device=place.device)  # entries in all looks

    @property
    def chunk(self) -> int:
        """Tokens read next: `first + local` at the start, where nothing can be selected yet."""
        return self.options.chunk if self._kept.seen else self.options.near

    # --- attending ---

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends the chunk to [first | selected | last]; see `Memory.attend`."""
        if layer.window is not None:
            self._step(layer)
            k, v = self._kept.slide(layer, k, v)
            self._count(min(self._kept.seen, layer.window))
            self._end_reading(layer)
            return exactly(layer, q, k, v)
        kv = self._append(layer, k, v)
        self._end_reading(layer)
        near = self._near(q, kv)
        if near is None:
            return exactly(layer, q, *everything(kv))
        return self._selected(layer, q, kv, near)

    def _end_reading(self, layer: Layer) -> None:
        """A chunk of a document ends with the last layer's keys and values."""
        if self._kept.reads and layer.index == self.depth - 1:
            raise EarlyExit

    def look(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Seen:
        """What one token attends to; see `Whole.look`."""
        kv = self._append(layer, k, v)
        near = self._near(q, kv)
        if near is None:
            S, (k, v) = kv.keys.length, everything(kv)
            q, k = layer.rotate(q, slice(S - 1, S), S), layer.rotate(k, slice(0, S), S)
            return Seen(q, k, v, torch.full((1,), S, device=q.device), S)
        q, k = rotated_window(layer, q, kv.keys, near, self.options.window)
        k, v = (x.transpose(0, 1).contiguous() for x in (k, kv.values.gather(near.tokens)))
        return Seen(q, k, v, near.total, self.options.window)

    def add(self, layer: Layer, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keeps one token without attending; see `Whole.add`."""
        form = self._append(layer, k, v).keys.form
        kept = (form.code(x.transpose(0, 1).contiguous()).decoded(x.dtype) for x in (k, v))
        k, v = (x.transpose(0, 1) for x in kept)
        return k, v

    def _append(self, layer: Layer, k: Tensor, v: Tensor) -> LayerKV:
        self._step(layer)
        return self._kept.append(layer, k, v)

    def _step(self, layer: Layer) -> None:
        """Counts the answer's tokens."""
        if layer.index == 0 and self._steps is not None:
            self._steps += 1

    def _near(self, q: Tensor, kv: LayerKV) -> Window | None:
        """The window that the last tokens, position-free (H, T, D), attend to; None: all tokens."""
        o, total = self.options, kv.keys.length
        last = total - o.local  # where the middle ends, of which tokens are selected
        if not torch.is_tensor(last) and last <= o.first:  # else there are some
            self._count(total)
            return None
        top = kv.keys.top(q, o.first, last, o.top_k)
        self._note(top.votes, q.shape[1])
        near = select_window(top.votes, top.best, o.voted, o.span, o.first, o.local, total)
        self._count(near.total)
        return near

    def _count(self, entries: int | Tensor) -> None:
        """Counts what a token of the answer attends to in a layer."""
        if self._steps is not None:
            self._looks += 1
            here = entries.to(self._seen.device) if torch.is_tensor(entries) else entries
            self._seen += here

    def _selected(self, layer: Layer, q: Tensor, kv: LayerKV, near: Window) -> Tensor:
        """Attention (H, T, D) of the last T tokens of a window to it, at positions from 0."""
        more = {"softcap": layer.softcap, "sinks": layer.sinks}
        values = kv.values.gather(near.tokens)  # (W, G, D)
        if q.shape[1] == 1 and layer.rope.half_split and (held := kv.keys.resident):
            given = held.rows, values, near.tokens, near.total, layer.scale
            tables = layer.rope.tables(self.options.window, q)
            return selected_attention(q, *given, *tables, held.scales, gathered=True, **more)
        q, k = rotated_window(layer, q, kv.keys, near, self.options.window)
        if not any(x is not None for x in more.values()):
            out = window_attention(q, k, values, layer.scale, near.total)
            if out is not None:
                return out
        n = int(near.total)
        return layer.attention(q, *(x[:n].transpose(0, 1) for x in (k, values)))

    # --- replaying ---

    @property
    def seen(self) -> int:
        """See `Replayable.seen`."""
        return self._kept.seen

    def states(self) -> list[Tensor]:
        """Keys and values of all layers, where all are on the device; see `Replayable.states`."""
        kept = self._kept
        reads = kept.reads and not kept.brings and kept.seen >= self.options.near
        return kept.buffers() if reads else []

    def fits(self, tokens: int) -> bool:
        """Whether the buffers have room; see `Replayable.fits`."""
        return self._kept.has_room(tokens)

    def replaying(self, states: Sequence[Tensor], seen: Tensor | int) -> "Method":
        """See `Replayable.replaying`."""
        made = copy.copy(self)
        seen = seen if torch.is_tensor(seen) else torch.tensor(seen, device=states[0].device)
        made._kept = self._kept.placing(states, seen)
        return made

    def taken(self) -> Rows:
        """Keys and values (T, G, D) of the last chunk; see `Replayable.taken`."""
        return self._kept.taken()

    def rows_of(self, taken: Mapping[Any, Tensor], skip: int = 0) -> Groups:
        """Copies: later chunks overwrite what was taken; see `Replayable.rows_of`."""
        return {GROUP: self._kept.rows(skip, {name: x.clone() for name, x in taken.items()})}

    def hold(self, states: Sequence[Tensor], seen: int) -> None:
        """See `Replayable.hold`."""
        self._kept.placed(seen)

    # --- saving ---

    def rows(self, skip: int = 0) -> Groups:
        """Keys and values (T, G, D) of the last chunk, for each layer with full attention."""
        return {GROUP: self._kept.rows(skip)}

    def snapshot(self) -> Snapshot:
        """What has no rows: keys and values of the prefix, and windows of sliding layers."""
        return self._kept.snapshot()

    def restore(self, snapshot: Snapshot, stored: Stored, reading: bool) -> None:
        """Restores a document: its keys are loaded, its values read when they are needed."""
        self._kept.restore(snapshot, stored, reading)

    def snapshot_bytes(self, tokens: int, itemsize: int) -> int:
        """Bytes of the windows of sliding layers."""
        return self._kept.snapshot_bytes(itemsize)

    def row_bytes(self) -> int:
        """Bytes of keys and values of all layers with full attention."""
        return self._kept.row_bytes()

    def held_bytes(self, tokens: int) -> Held:
        """Keys, then values, as far as they fit on the device; the rest in host memory."""
        return self._kept.held_bytes(tokens)

    def fill(self, tokens: int) -> None:
        """As if `tokens` tokens had been read, with random keys; for measurements."""
        self._kept.fill(tokens)

    # --- a question ---

    def recall(self) -> "Method":
        """A memory for one question and its answer; this one does not change."""
        fork = copy.copy(self)
        fork._kept = self._kept.fork()
        fork._votes = torch.zeros(self._kept.seen, device=self._place.device)
        fork._seen = torch.zeros_like(self._seen)
        return fork

    def narrow(self, window: int) -> bool:
        """Selects fewer keys if necessary; see `Whole.narrow`."""
        before, self.options = self.options, self.options.fitted(window)
        return self.options != before

    def begin_answer(self) -> None:
        """Marks the question as read; the votes of the answer's first tokens still count."""
        self._steps = 0

    def attempting(self) -> Attempts | None:
        """See `Recalled.attempting`."""
        kept = self._kept
        far = kept.seen >= self.options.near and kept.on_one_device
        return Attempts(self, kept) if far and kept.buffers() else None

    def trying(self, kept: Scanned) -> "Method":
        """The same for one attempt at some layers, with counts of its own."""
        made = copy.copy(self)
        made._kept, made._steps, made._looks = kept, 0, 0
        made._votes, made._seen = torch.zeros_like(self._votes), torch.zeros_like(self._seen)
        return made

    def keep(self, tried: Sequence["Method"]) -> None:
        """Keeps a token, and what attempts at its layers counted."""
        self._steps = (self._steps or 0) + 1
        for one in tried if self._steps <= VOTING_STEPS else ():
            self._votes += one._votes
        self._looks += sum(one._looks for one in tried)
        self._seen += torch.stack([one._seen for one in tried]).sum(dim=0)
        self._kept.placed(self._kept.seen + 1)

    @property
    def kept(self) -> int:
        """All tokens so far."""
        return self._kept.seen

    def kept_layer(self, index: int) -> Columns:
        """Keys and values of a layer without a sliding window, position-free."""
        kv = self._kept.layer(index)
        return Columns(kv.keys, kv.values)

    def attended(self) -> float:
        """Mean number of tokens that an answer's token attended to, over tokens and layers."""
        return float(self._seen) / max(1, self._looks)

    def scores(self, tokens: int) -> Scores:
        """Votes of each token, over the layers, for the question and the start of the answer.

        Those of a chunk of the question are divided by its tokens, so that it counts as one token
        of the answer does: most words of a question look for nothing in particular, and the answer
        is copied from where its own tokens look.

        Without votes in their span, tokens that are always in the window (the first and the last
        ones) have 0, others -1 pooled.
        """
        o, P = self.options, self._kept.prefix
        raw = self._votes[P : P + tokens].float()
        before, after = o.span // 2, o.span - o.span // 2 - 1
        pooled = F.max_pool1d(F.pad(raw, (after, before))[None], o.span, stride=1)[0]
        place = torch.arange(P, P + len(raw), device=raw.device)  # fewer than asked for: damage
        seen = (pooled > 0) | (place < o.first) | (place >= self._kept.seen - o.local)
        return Scores(raw, torch.where(seen, pooled, -1.0))

    def _note(self, votes: Tensor, tokens: int) -> None:
        """Adds a layer's votes for the middle of the document, by so many tokens."""
        if len(self._votes) and (self._steps or 0) <= VOTING_STEPS:
            middle = self._votes[self.options.first :][: len(votes)]
            middle += votes[: len(middle)].to(middle.device) / tokens
