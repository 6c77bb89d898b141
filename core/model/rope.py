"""A model's own rotary embedding, at any positions that a method assigns.

The angles always come from the model's module and are never rebuilt from its frequencies:
attention scaling (YaRN, longrope) and length-dependent frequencies (dynamic NTK, longrope) live
there. Knows nothing of methods and memories.
"""

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from longctx.kernels.selected_attention_ref import rotate_half

# These derive frequencies from the largest position of a call, so one window needs one call.
LENGTH_DEPENDENT = ("dynamic", "longrope")
ROUND = 1024  # other tables are built for rounded lengths, so that decoding rarely rebuilds them
PROBED = 8  # positions at which an architecture's function is compared with `rotate_half`


class Rope:
    """cos and sin of one rotary module for the positions of one window.

    Args:
        module: the decoder's rotary module, `forward(x, position_ids) -> (cos, sin)`.
        apply: the architecture's `apply_rotary_pos_emb(q, k, cos, sin)`.
        layer_type: its type of layer, if the module has angles for several types.
        dims: leading dimensions of a head that `apply` gets; None for all.
    """

    def __init__(
        self,
        module: nn.Module,
        apply: Callable[..., tuple[Tensor, Tensor]],
        layer_type: str | None = None,
        dims: int | None = None,
    ):
        self._module = module
        self._apply = apply
        self._which = () if layer_type is None else (layer_type,)
        self._dims = dims
        kind: Any = getattr(module, "rope_type", "")
        kind = kind if layer_type is None else kind[layer_type]
        self.length_dependent = str(kind) in LENGTH_DEPENDENT
        self._tables: dict[tuple, tuple[Tensor, Tensor]] = {}
        self._doubled: tuple[Tensor, tuple[Tensor, Tensor]] | None = None

    def copied(self, device: str) -> "Rope":
        """One like it with a module and tables of its own, on a device."""
        made = copy.copy(self)
        made._module, made._tables = copy.deepcopy(self._module).to(device), {}
        return made

    def rotate(self, x: Tensor, positions: Tensor | slice, length: int) -> Tensor:
        """Rotates x to positions inside a window of `length` positions.

        Args:
            x: (heads, n, D), position-free.
            positions: n positions, each below `length`, as indices or a slice.
            length: positions in the whole window; all tensors of one attention must be rotated
                with the same length, since some models choose their frequencies by it.

        Returns:
            (heads, n, D) in the dtype of x.
        """
        cos, sin = self.tables(length, x)
        return self.turn(x, cos[positions], sin[positions])

    def turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotates x (heads, n, D) by rows (n, ...) of its tables."""
        part = x[None, ..., : self._dims]
        none = part[:, :0]  # the architectures rotate q and k together; here k is empty
        rotated, _ = self._apply(part, none, cos[None], sin[None])
        if self._dims is None:
            return rotated[0]
        return torch.cat([rotated[0], x[..., self._dims :]], dim=-1)

    def unrotate(self, x: Tensor, positions: Tensor | slice, length: int) -> Tensor:
        """Inverts `rotate`, up to rounding; see there."""
        wide = torch.promote_types(x.dtype, torch.float32)
        cos, sin = (table[positions].to(wide) for table in self.tables(length, x))
        # (cos, sin) rotates and scales, which (cos, -sin) / (cos² + sin²) inverts.
        stretch = cos.square() + sin.square()
        part = x[None, ..., : self._dims].to(wide)
        back, _ = self._apply(part, part[:, :0], (cos / stretch)[None], (-sin / stretch)[None])
        if self._dims is None:
            return back[0].to(x.dtype)
        return torch.cat([back[0].to(x.dtype), x[..., self._dims :]], dim=-1)

    def same_basis(self, length: int, other: int) -> bool:
        """Whether keys rotated in a window of one length match queries rotated in another."""
        if not self.length_dependent or length == other:
            return True
        probe = torch.empty(0)
        # Nothing rotates at position 0: a window of length 1 is tested as one of length 2.
        ours, others = (self.tables(max(2, n), probe)[0][1] for n in (length, other))
        return torch.equal(ours, others)

    @cached_property
    def half_split(self) -> bool:
        """Whether `rotate` is `rotate_half` of these tables, with equal halves; found by testing.

        False for interleaved dimensions and for tables of half the width.
        """
        length, like = PROBED, torch.empty(0)
        cos, sin = self.tables(length, like)
        if not all(torch.equal(*x.tensor_split(2, dim=-1)) for x in (cos, sin)):
            return False
        # A function that rotates only part of each head is tested on wider heads too.
        whole, part = (self._turns_halves(cos, sin, extra) for extra in (0, 2))
        return whole is True and part is not False

    @cached_property
    def _half_wide(self) -> bool:
        """Whether `rotate` is `rotate_half` of these tables side by side with themselves."""
        like = torch.empty(0)
        cos, sin = (torch.cat([x, x], dim=-1) for x in self.tables(PROBED, like))
        return self._turns_halves(cos, sin, 0) is True

    def half_tables(self, length: int, like: Tensor) -> tuple[Tensor, Tensor] | None:
        """cos and sin (>= length, R) for `rotate_half`; None if it does not rotate like that.

        Args:
            length, like: as of `tables`.
        """
        tables = self.tables(length, like)
        if self.half_split:
            return tables
        if not self._half_wide:
            return None
        if self._doubled is None or self._doubled[0] is not tables[0]:
            cos, sin = (torch.cat([x, x], dim=-1) for x in tables)
            self._doubled = tables[0], (cos, sin)
        return self._doubled[1]

    def _turns_halves(self, cos: Tensor, sin: Tensor, extra: int) -> bool | None:
        """Whether heads with `extra` more dimensions rotate so; None if that width is refused."""
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(1, PROBED, cos.shape[-1] + extra, generator=generator)
        try:
            rotated = self.rotate(x, slice(PROBED), PROBED)
        except RuntimeError:  # the widths do not match
            return None
        return torch.allclose(rotated, rotate_half(x, cos[:PROBED], sin[:PROBED]), atol=1e-6)

    def tables(self, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin by position for a window of `length`, as `rotate` uses them.

        Args:
            length: positions in the whole window.
            like: a tensor with the dtype and device of what is rotated.

        Returns:
            (>= length, rotary dimensions) each, attention scaling included; do not modify them.
        """
        size = length if self.length_dependent else -(-length // ROUND) * ROUND
        key = (size, like.dtype, like.device)
        if key not in self._tables:
            if len(self._tables) >= 4:
                self._tables.clear()
            self._tables[key] = self._angles(size, like)
        return self._tables[key]

    def held(self) -> list[Tensor]:
        """All tables that it holds now; whoever has recorded what reads them holds them too."""
        doubled = [self._doubled] if self._doubled else []
        return [x for pair in (*self._tables.values(), *(two for _, two in doubled)) for x in pair]

    @torch.no_grad()
    def _angles(self, size: int, like: Tensor) -> tuple[Tensor, Tensor]:
        # A call at position 0 resets frequencies that an earlier, longer call has raised (dynamic
        # NTK keeps them); `.forward` bypasses the hook that makes attention position-free.
        start = torch.zeros(1, 1, dtype=torch.long, device=like.device)
        self._module.forward(like, start, *self._which)
        positions = torch.arange(size, device=like.device)[None]
        cos, sin = self._module.forward(like, positions, *self._which)
        return cos[0], sin[0]  # (size, rotary dimensions)


class NoRope:
    """Replaces `Rope` in layers that the model runs without positions."""

    half_split = True  # it has no tables, so nothing rotates
    length_dependent = False

    def rotate(self, x: Tensor, positions: Tensor | slice, length: int) -> Tensor:
        """Leaves x as it is."""
        return x

    def unrotate(self, x: Tensor, positions: Tensor | slice, length: int) -> Tensor:
        """Leaves x as it is."""
        return x

    def turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Leaves x as it is."""
        return x

    def same_basis(self, length: int, other: int) -> bool:
        """Always: nothing depends on a length."""
        return True

    def tables(self, length: int, like: Tensor) -> tuple[None, None]:
        """No tables."""
        return None, None

    def half_tables(self, length: int, like: Tensor) -> tuple[None, None]:
        """No tables: nothing rotates."""
        return None, None

    def held(self) -> list[Tensor]:
        """None."""
        return []
