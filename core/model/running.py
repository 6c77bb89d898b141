"""One pass of a decoder's own layers over a memory: position-free, and of any depth.

The model finds our attention function by name and calls it with q and k before the rotary
embedding, whose module says here that nothing turns. Knows nothing of methods and memories.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from longctx.core.model.architectures import Module
from longctx.core.model.plain import Output, Plain

# The memory and layers of the running pass: some architectures do not pass keywords on.
_running: ContextVar[tuple[Any, tuple]] = ContextVar("longctx")


def attend(
    module: Module, query: Tensor, key: Tensor, value: Tensor, mask: None, **_: Any
) -> tuple[Tensor, None]:
    """The attention of a layer of the running pass, as transformers calls it."""
    memory, layers = _running.get()
    out = memory.attend(layers[module.layer_idx], query[0], key[0], value[0])  # (H, T, D)
    return out.transpose(0, 1)[None], None  # (1, T, H, D)


@contextmanager
def attending(memory: Any, layers: tuple) -> Iterator[None]:
    """Inside, the attention of forward passes goes through a memory."""
    token = _running.set((memory, layers))
    try:
        yield
    finally:
        _running.reset(token)


@contextmanager
def position_free(base: Module) -> Iterator[None]:
    """Inside, q and k stay position-free: the rotary module returns cos = 1 and sin = 0."""

    def identity(module: nn.Module, args: Any, out: tuple[Tensor, Tensor]):
        return torch.ones_like(out[0]), torch.zeros_like(out[1])

    handle = base.rotary_emb.register_forward_hook(identity)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def standing_in(base: Module, hidden: Tensor) -> Iterator[None]:
    """Inside, a decoder returns these hidden states (1, n, E) for any input."""
    before, output = vars(base).get("forward"), _output(base)
    base.forward = lambda *_, **__: output(last_hidden_state=hidden)
    try:
        yield
    finally:
        del base.forward
        if before is not None:
            base.forward = before


def _output(base: Module) -> Any:
    """The class of what a decoder returns."""
    if isinstance(base, Plain):
        return Output
    from transformers.modeling_outputs import MoeModelOutputWithPast

    return MoeModelOutputWithPast


@contextmanager
def firstlayers_of(base: Module, depth: int | None) -> Iterator[None]:
    """Inside, a decoder has only its first `depth` layers; None leaves it whole."""
    whole = base.layers
    base.layers = whole if depth is None else whole[:depth]
    try:
        yield
    finally:
        base.layers = whole


class _Embedded(Exception):
    """Ends a pass before the first layer; its only argument is that layer's input."""


def embedded(base: Module, ids: Tensor) -> Tensor:
    """The first layer's input (T, E) for ids (1, T): some models scale their embeddings."""

    def end(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        raise _Embedded(args[0] if args else kwargs["hidden_states"])

    handle = base.norm.register_forward_pre_hook(end, with_kwargs=True)
    positions = torch.zeros(ids.shape, dtype=torch.long, device=ids.device)
    try:
        with firstlayers_of(base, 0):
            base(input_ids=ids, position_ids=positions, use_cache=False)
    except _Embedded as found:
        return found.args[0][0]
    finally:
        handle.remove()
    raise RuntimeError("the model has no last norm")


def run(base: Module, layers: tuple, memory: Any, depth: int | None, **inputs: Tensor) -> Tensor:
    """One pass of input_ids or inputs_embeds (1, T, ...) over a memory; see `Decoder.read`.

    Raises:
        EarlyExit: raised by the memory.
    """
    tokens = next(iter(inputs.values())).shape[1]
    # All at position 0: the angles are ours, and a large position would change the state of
    # rotary modules whose frequencies grow with it.
    positions = torch.zeros(1, tokens, dtype=torch.long, device=base.device)
    with attending(memory, layers), position_free(base), firstlayers_of(base, depth):
        out = base(**inputs, position_ids=positions, use_cache=False)
    return out.last_hidden_state[0]  # (T, E)
