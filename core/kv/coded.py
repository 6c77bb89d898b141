"""Stored rows of keys or values: position-free, in their own number format.

Independent of where they are and what they are for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from longctx.core.contracts.memory import Place
from longctx.kernels.quantize import quantize


class Coded(NamedTuple):
    """Rows as they are stored.

    Attributes:
        rows: (n, G, D), int8 or floating-point.
        scales: (n, G) float16, factors of int8 rows; None for others.
    """

    rows: Tensor
    scales: Tensor | None = None

    def each(self, change: Callable[[Tensor], Tensor]) -> "Coded":
        """The rows, and the scales if any, each changed."""
        return Coded(change(self.rows), None if self.scales is None else change(self.scales))

    def part(self, first: int, last: int) -> "Coded":
        """Rows [first, last)."""
        return self.each(lambda x: x[first:last])

    def at(self, index: Tensor | int) -> "Coded":
        """The rows at `index` (S,)."""
        return self.each(lambda x: x[index])

    def copied(self) -> "Coded":
        """A copy of the rows."""
        return self.each(Tensor.clone)

    def cleared(self) -> "Coded":
        """Sets the rows to zero in place."""
        for x in self:
            if x is not None:
                x.zero_()
        return self

    def decoded(self, dtype: torch.dtype) -> Tensor:
        """The rows (n, G, D) in a floating-point dtype."""
        if self.scales is None:
            return self.rows.to(dtype)
        return self.rows.to(dtype) * self.scales.to(dtype)[..., None]


@dataclass(frozen=True)
class RowForm:
    """The form of stored rows.

    Attributes:
        heads, dim: G and D.
        stored: dtype on disk; int8 has scales.
        place: where the model computes, and in which dtype.
    """

    heads: int
    dim: int
    stored: torch.dtype
    place: Place

    @property
    def held(self) -> torch.dtype:
        """The dtype in memory: int8, or the model's, which saves a conversion."""
        return torch.int8 if self.stored == torch.int8 else self.place.dtype

    def code(self, x: Tensor) -> Coded:
        """Rows (n, G, D) as they are stored."""
        if self.stored != torch.int8:
            # A part of a product with more in it would keep all of that in memory.
            return Coded(x.to(self.stored).contiguous())
        wide = torch.promote_types(x.dtype, torch.float32)
        return Coded(*quantize(x.to(wide)))

    def empty(self, n: int, **where: Any) -> Coded:
        """Room for n rows in memory."""
        rows = torch.empty((n, self.heads, self.dim), dtype=self.held, **where)
        if self.held != torch.int8:
            return Coded(rows)
        return Coded(rows, torch.empty((n, self.heads), dtype=torch.float16, **where))

    def bytes(self, stored: bool = False) -> int:
        """Bytes of a row in memory, or on disk."""
        dtype = self.stored if stored else self.held
        return self.heads * (self.dim * dtype.itemsize + 2 * (dtype == torch.int8))


def pairs(one: Coded, other: Coded) -> list[tuple[Tensor, Tensor]]:
    """The rows of both, and the scales of both if any."""
    return [(x, y) for x, y in zip(one, other, strict=True) if x is not None and y is not None]


def write(target: Coded, at: int, rows: Coded) -> None:
    """Copies rows into a buffer from row `at` on."""
    for into, new in pairs(target, rows):
        into[at : at + len(new)].copy_(new, non_blocking=True)
