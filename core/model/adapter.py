"""The one adapter to Hugging Face models: position-free attention, and early exit.

A model is run with q and k as they are before the rotary embedding; a `Memory` decides what they
attend to and rotates them with the model's own embedding. Only this file, `load.py` and
`fused_weights.py` touch a transformers model. Each architecture is a row of `architectures.py`.
"""

import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, overload

import torch
from torch import Tensor, nn

from longctx.core.common import libraries
from longctx.core.common.errors import UsageError
from longctx.core.common.foreign import REMEDY
from longctx.core.model.architectures import Adapter, Module, adapter_of
from longctx.core.model.attention import Values, causal_attention_lse
from longctx.core.model.chunk_parts import chunk_parts_of
from longctx.core.model.chunk_pass import FEWEST, ChunkPass, agrees, tell, wanted
from longctx.core.model.fused_weights import Parts, Trace, beginning_from, parts_of
from longctx.core.model.plain import ATTENTIONS, Plain, PlainBase
from longctx.core.model.rope import NoRope, Rope
from longctx.core.model.running import attend, embedded, run, standing_in
from longctx.core.model.together import as_it_is
from longctx.kernels.door import rotated_chunk

ATTENTION = "longctx"  # our attention function; "flash" in the name would mean something else


class EarlyExit(Exception):
    """Raised by a memory when nothing above the layer's projections is needed."""


@dataclass(frozen=True)
class Layer:
    """What a memory must know about one decoder layer.

    Attributes:
        index: 0-based.
        query_heads, kv_heads, head_dim: H, G and D.
        scale: factor on q·k.
        window: sliding window in tokens; None for full attention.
        rope: the model's own rotary embedding for this layer.
        softcap: bound of the attention logits; None if unbounded.
        sinks: (H,) logit of each query head that takes attention but has no value; None if none.
        device: where it computes, if the layers of the model are on several devices.
    """

    index: int
    query_heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int | None
    rope: Rope | NoRope
    softcap: float | None = None
    sinks: Tensor | None = field(default=None, compare=False)
    device: str | None = field(default=None, compare=False)

    def within(self, tokens: int) -> int:
        """How many of the latest tokens a token attends to at most, itself included."""
        return tokens if self.window is None else min(tokens, self.window)

    def rotate(self, x: Tensor, positions: Tensor | slice, length: int) -> Tensor:
        """Rotates x (heads, n, D) to n positions of a window of `length`; see `Rope.rotate`."""
        return self.rope.rotate(x, positions, length)

    def rotate_chunk(self, q: Tensor, k: Tensor, cached: Tensor) -> tuple[Tensor, Tensor]:
        """Rotates T queries and keys that follow C cached keys, and these; see `rotated_chunk`.

        Args:
            q, k: position-free (H, T, D) and (G, T, D).
            cached: position-free (G, C, D).

        Returns:
            Queries (H, T, D), and all keys (G, C + T, D).
        """
        C, S = cached.shape[1], cached.shape[1] + q.shape[1]
        tables = self.rope.half_tables(S, q)
        if tables is not None:
            return rotated_chunk(q, k, cached, *tables)
        keys = self.rotate(torch.cat([cached, k], dim=1), slice(0, S), S)
        return self.rotate(q, slice(C, S), S), keys

    def attention(self, q: Tensor, k: Tensor, v: Values) -> Tensor:
        """This layer's attention (H, T, D) of rotated q to rotated k; see `causal_attention`."""
        return self.attention_lse(q, k, v)[0]

    def attention_lse(self, q: Tensor, k: Tensor, v: Values) -> tuple[Tensor, Tensor | None]:
        """The same with its log-sum-exps, if available; see `causal_attention_lse`."""
        return causal_attention_lse(q, k, v, self.scale, self.window, self.softcap, self.sinks)


@dataclass(frozen=True)
class Stretch:
    """Layers that follow one another on one device.

    Attributes:
        device: theirs.
        read: takes ids (T,) if they are the first, else states (T, E), and a memory; gives the
            states (T, E) behind them, or None if nothing comes after them.
    """

    device: torch.device
    read: "Callable[[Tensor, Attends], Tensor | None]"


class Attends(Protocol):
    """What a forward pass needs of a memory; see `Memory` in `core/contracts/memory.py`."""

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor, /) -> Tensor:
        """The attention output (H, T, D) of one layer's new tokens."""
        ...


class Decoder:
    """A causal language model that runs over memories.

    Args:
        model: a transformers model, or one of `plain.py`.
        checks: initial value of `checks`; None if no check is remembered.

    Attributes:
        layers: one `Layer` for each decoder layer.
        device, dtype: device and precision of its computations.
        checks: passed checks, by names that say what they depend on.
        placed: a memory as the layers may use it, wherever they are; see `Together`.
    """

    def __init__(self, model: Module, checks: MutableMapping[str, bool] | None = None):
        register(model)
        model.set_attn_implementation(ATTENTION)
        self._model = model.eval()
        self._base = model.base_model
        self.layers = layers_of(self._base, adapter_of(model.config))
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.checks: MutableMapping[str, bool] = {} if checks is None else checks
        self.placed: Callable[[Attends], Attends] = as_it_is
        self._pass: ChunkPass | None = None
        self._tried = self._watched = self._chosen = False

    @property
    def config(self) -> Any:
        """The configuration: of transformers, or of `plain.py`."""
        return self._model.config

    @contextmanager
    def watched(self, keep: Callable[[int, str, Tensor], None]) -> Iterator[None]:
        """Inside, calls `keep(layer, "hidden", states)` with each layer's output (1, T, E).

        A memory sees the input of a layer's attention, not the hidden states that leave the layer.
        """

        def note(index: int) -> Callable[..., None]:
            def hook(module: nn.Module, args: object, out: Tensor | tuple) -> None:
                keep(index, "hidden", out if torch.is_tensor(out) else out[0])

            return hook

        handles = [
            layer.register_forward_hook(note(i)) for i, layer in enumerate(self._base.layers)
        ]
        self._watched = True
        try:
            yield
        finally:
            self._watched = False
            for handle in handles:
                handle.remove()

    @overload
    def read(self, ids: Tensor, memory: Attends) -> Tensor: ...
    @overload
    def read(self, ids: Tensor, memory: Attends, depth: int) -> Tensor | None: ...
    @torch.inference_mode()
    def read(self, ids: Tensor, memory: Attends, depth: int | None = None) -> Tensor | None:
        """Runs T tokens through the first `depth` layers, attending through a memory.

        Args:
            ids: (T,) token ids.
            memory: gets every layer's position-free q, k and v.
            depth: layers to run; None for all; 0 to run nothing.

        Returns:
            The hidden states (T, E) after the last norm; None if a memory ended the pass early.

        Raises:
            EarlyExit: it did so although all layers were to run.
        """
        if depth == 0:
            return None
        if ids.device.type == "cpu" and len(ids):
            self.require_known(ids)
        memory = self.placed(memory)
        # A GPU may still be computing the last chunk: the next copy is queued.
        ids = ids[None].to(self.device, non_blocking=self.device.type == "cuda")
        chunks = self.chunks_by(ids.shape[1])
        try:
            if chunks is not None:
                return chunks.read(ids, memory, depth)
            return run(self._base, self.layers, memory, depth, input_ids=ids)
        except EarlyExit:
            if depth is None:
                raise
            return None

    def stretches(self, tokens: int, depth: int) -> list[Stretch]:
        """What reads a chunk of so many tokens, piece by piece; here in one.

        Args:
            tokens: T.
            depth: layers to run.
        """
        return [Stretch(self.device, lambda ids, memory: self.read(ids, memory, depth))]

    def chunks_by(self, tokens: int) -> ChunkPass | None:
        """What computes a chunk of so many tokens; None: the model's own layers do."""
        if self._watched or tokens < FEWEST:
            return None
        return self.chunk_pass() if self._chosen or wanted(self.device) else None

    def rotary_tables(self) -> list[Tensor]:
        """Those of all layers; who records layers holds them, for ropes may free theirs."""
        ropes = {id(layer.rope): layer.rope for layer in self.layers}
        return [table for rope in ropes.values() for table in rope.held()]

    def read_by(self, chunks: ChunkPass) -> None:
        """Has chunks read by this from now on, where the model's own layers need not."""
        self._pass, self._tried, self._chosen = chunks, True, True

    def chunk_pass(self) -> ChunkPass | None:
        """What runs chunks in few operations; None: the model's own layers do. See `agrees`."""
        if self._tried:
            return self._pass
        self._tried, parts = True, chunk_parts_of(self._base)
        if parts is None:
            tell("the model's own layers", "they are made of other parts")
            return None
        # Nothing of it refers to the decoder: else both would stay after their last use.
        found = ChunkPass(parts, self.layers, partial(embedded, self._base))
        if not agrees(found, self):
            tell("the model's own layers", "they compute something else with their parts")
            return None
        tell("few operations", f"the parts of {self.config.model_type}")
        self._pass = found
        return found

    def require_known(self, ids: Tensor) -> None:
        """Refuses tokens for which there are no weights: a GPU would fail irrecoverably.

        Args:
            ids: (T,) on the host, where checking does not wait for the device.

        Raises:
            UsageError: there is such a token.
        """
        largest = int(ids.max())
        rows = self._base.get_input_embeddings().num_embeddings
        if largest >= rows:
            raise UsageError(
                "the model and its tokenizer do not belong together",
                f"the tokenizer gives token {largest:,}, and the model has {rows:,} tokens",
                REMEDY,
            )

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Logits (n, vocabulary), float32 or wider, of hidden states (n, E)."""
        # The model's own forward: some scale or cap their output logits.
        with standing_in(self._base, hidden[None]):
            logits = self._model(use_cache=False).logits[0]
        return logits.float() if logits.dtype.itemsize < 4 else logits

    def parts(self) -> Parts | None:
        """Its weights by role, if it has the usual ones; see `parts_of`."""
        return parts_of(self._model)

    def traced(self, ids: Tensor, memory: Attends, states: Tensor) -> tuple[Trace, Tensor]:
        """Reads ids (T,) while each part begins from given states; see `beginning_from`.

        Returns:
            What went through the layers, and the last norm's output (T, E) for its states.
        """
        given = ids[None].to(self.device)
        with beginning_from(self._base, states) as trace:
            return trace, run(self._base, self.layers, memory, None, input_ids=given)

    @contextmanager
    def as_it_is(self) -> Iterator[nn.Module]:
        """The model as transformers runs it, for comparisons."""
        model = as_transformers(self._model)
        model.set_attn_implementation("sdpa")
        try:
            yield model
        finally:
            self._model.set_attn_implementation(ATTENTION)


def as_transformers(model: Module) -> Module:
    """The transformers model with the weights of one of `plain.py`; any other is one."""
    if not isinstance(model, Plain):
        return model
    whole, base = libraries.transformers().AutoModelForCausalLM, isinstance(model, PlainBase)
    with torch.device("meta"):
        made = whole.from_config(model.config.full(), dtype=model.dtype)
    inner = made.base_model
    inner.rotary_emb = type(inner.rotary_emb)(inner.config).to(model.device)
    made = inner if base else made
    made.load_state_dict(model.state_dict(), assign=True)
    made.tie_weights()
    return made.eval()


def layers_of(base: Module, row: Adapter) -> tuple[Layer, ...]:
    """What memories must know about each layer of a decoder."""
    attentions = [getattr(layer, row.attention) for layer in base.layers]
    ropes = ropes_of(base, attentions, row)
    heads = base.config.num_attention_heads
    return tuple(
        Layer(
            index=index,
            query_heads=heads,
            kv_heads=heads // row.groups(attention),
            head_dim=row.head_dim(attention),
            scale=attention.scaling,
            window=row.window(attention),
            rope=ropes[index],
            softcap=row.softcap(attention),
            sinks=row.sinks(attention),
        )
        for index, attention in enumerate(attentions)
    )


def ropes_of(base: Module, attentions: list[Module], row: Adapter) -> list[Rope | NoRope]:
    """Each layer's rotary embedding; layers that rotate alike share one and its tables."""
    module = base.rotary_emb
    apply = sys.modules[type(attentions[0]).__module__].apply_rotary_pos_emb
    # A module with several rope types takes the layer's type as an argument.
    typed = isinstance(getattr(module, "rope_type", None), dict)
    kinds = base.config.layer_types if typed else [None] * len(attentions)
    none = NoRope()
    shared = {
        kind: Rope(module, apply, kind, row.rotary_dims(attentions[0])) for kind in set(kinds)
    }
    return [
        shared[kind] if row.rotates(attention) else none
        for kind, attention in zip(kinds, attentions, strict=True)
    ]


# --- attention without position -----------------------------------------------------------------


def register(model: Module | None = None) -> None:
    """Registers our attention function by name; the model finds it through its config.

    Args:
        model: the only one that will need it; None: any of transformers.
    """
    if isinstance(model, Plain):
        ATTENTIONS[ATTENTION] = attend
    else:
        libraries.transformers().AttentionInterface.register(ATTENTION, attend)
