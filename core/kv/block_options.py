"""Divides an input into first tokens, blocks and a local window that fit a model.

Independent of the method: options that all block methods share are here, others with the method.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from longctx.core.common.errors import UsageError
from longctx.core.contracts.method import MethodOptions
from longctx.core.profile.described import Described

KV_DTYPES = {"auto": None, "bf16": torch.bfloat16, "int8": torch.int8}


@dataclass(frozen=True)
class BlockOptions(MethodOptions):
    """Options that all block methods share.

    Attributes:
        first: tokens at the start of the input that are always attended to.
        local: least number of latest tokens always attended to, including the chunk being read.
        block: tokens of a block.
        chunk: tokens of the input read at a time, after the first `first + local`.
        retrieved: most blocks that a chunk attends to.
        run: tokens of a block whose mean key is one of its index vectors; each query is compared
            with them. 0: the index of the method's paper.
        in_order: whether first and retrieved tokens stand one after another before the local
            window; else all of them are at one distance, as in the papers.
        cached: retrieved blocks of a document on disk that stay in memory, for each layer.
        decay: factor on a cached block's worth each time the cache is used.
        gather: most tokens shown as passages.
        kv_dtype: how keys and values are kept: auto (as they are computed), bf16 or int8.
    """

    first: int = 128
    local: int = 4096
    block: int = 128
    chunk: int = 512
    retrieved: int = 16
    run: int = 4
    in_order: bool = True
    cached: int = 32
    decay: float = 0.1
    gather: int = 8192
    kv_dtype: str = "auto"

    def __post_init__(self) -> None:
        for name in ("local", "block", "chunk", "retrieved", "gather"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")
        for name in ("local", "chunk"):
            if getattr(self, name) % self.block:
                raise ValueError(
                    f"{name}: expected a multiple of block, {self.block}, got {getattr(self, name)}"
                )
        if self.run < 0 or (self.run and self.block % self.run):
            raise ValueError(f"run: expected 0 or a divisor of block, {self.block}, got {self.run}")
        if self.first < 0 or self.chunk > self.local:
            raise ValueError(f"expected first >= 0 and chunk <= local, got {self}")
        if self.cached < self.retrieved:
            raise ValueError(f"cached: expected at least retrieved, got {self.cached}")
        if not 0 <= self.decay <= 1:
            raise ValueError(f"decay: expected 0 to 1, got {self.decay}")
        if self.kv_dtype not in KV_DTYPES:
            raise ValueError(f"kv_dtype: expected one of {', '.join(KV_DTYPES)}")

    @property
    def near(self) -> int:
        """Tokens of the first chunk, before any block leaves the local window."""
        return self.first + self.local

    @property
    def window(self) -> int:
        """Most tokens attended to: a local window may be almost a block longer than `local`."""
        return self.first + self.local + self.block - 1 + self.retrieved * self.block

    @property
    def positions(self) -> int:
        """Most tokens of a local window, and the one distance's positions."""
        return self.local + self.block

    @property
    def rotated(self) -> int:
        """Most positions in use."""
        return self.window + 1 if self.in_order else self.positions

    def left(self, total: int) -> int:
        """Blocks that have left the local window when there are `total` tokens."""
        return max(0, total - self.first - self.local) // self.block

    def start(self, total: int) -> int:
        """Where the local window begins then: after the first tokens, at a block's border."""
        return min(total, self.first + self.left(total) * self.block)

    def fitted(self, window: int) -> Self:
        """Retrieves fewer blocks; see `MethodOptions.fitted`.

        Raises:
            UsageError: not even one fits.
        """
        near = self.window - self.retrieved * self.block
        retrieved = min(self.retrieved, (window - near) // self.block)
        if retrieved < 1:
            raise UsageError(
                f"first + local = {self.near} leave no room for a block of {self.block} and one "
                "that is not whole",
                f"the model's window is {window} tokens",
                "Set `local` of the method in a profile (docs/profiles.md).",
            )
        return replace(self, retrieved=retrieved)

    @classmethod
    def recorded(cls, values: dict[str, Any]) -> dict[str, Any]:
        """A document from before there were runs has the index and the distance of the paper."""
        return {"run": 0, "in_order": False, **values}

    @classmethod
    def by_rule(cls, model: Described, window: int) -> dict[str, Any]:
        """The paper's sizes where they fit; else a quarter of the window is local, half is shown.

        A block is at most a sixteenth of the window, and so are the first tokens.
        """
        usual = cls()
        gather = min(usual.gather, max(1, window // 2))
        if usual.window <= window:
            return {"gather": gather}
        block = min(usual.block, max(1, window // 16))
        first, local = min(usual.first, block), max(1, window // 4 // block) * block
        near = first + local + block - 1
        return {
            "first": first,
            "local": local,
            "block": block,
            "run": math.gcd(block, usual.run),
            "chunk": min(usual.chunk // block * block, local),
            "retrieved": min(usual.retrieved, max(1, (window - near) // block)),
            "gather": gather,
        }

    @classmethod
    def measured(cls, layers: int, window: int) -> Self:
        """A local window of at most half the model's; see `MethodOptions.measured`."""
        local = min(cls.local, window // 2)
        return cls(local=local, chunk=min(cls.chunk, local))
