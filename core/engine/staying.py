"""Weights that stay loaded for several engines. Imports no model libraries."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from longctx.core.model.adapter import Decoder


class Weights:
    """Models that stay loaded.

    Attributes:
        held: them, by what their weights in memory depend on (`Engine.key`).
        before_moving: asked before a reading moves layers to other devices: lets go of what was
            made for where they are; False: something needs them there.
    """

    def __init__(self) -> None:
        self.held: dict[tuple[str, str, torch.dtype], Decoder] = {}
        self.before_moving: Callable[[], bool] = always


def always() -> bool:
    """Nothing else uses the layers."""
    return True


_staying: ContextVar[Weights | None] = ContextVar("weights", default=None)


def staying() -> Weights | None:
    """Where this thread's engines find and keep weights; None: each has its own."""
    return _staying.get()


@contextmanager
def weights_stay(weights: Weights | None = None) -> Iterator[None]:
    """Inside, in this thread, a model is loaded once for all engines that need it.

    For work that reads and asks many documents, each with its own engine. The model's files must
    not change meanwhile.

    Args:
        weights: where they are, and stay afterwards; None: those of the context around this one,
            else they stay until the end.
    """
    before = _staying.set(weights or _staying.get() or Weights())
    try:
        yield
    finally:
        _staying.reset(before)
