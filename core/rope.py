"""A model's own rotary embedding, at whatever positions a method assigns.

The angles always come from the model's module, never rebuilt from its frequencies: attention
scaling (YaRN, longrope) and length-dependent frequencies (dynamic NTK, longrope) live there. Knows
nothing of methods and memories.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

# These choose their frequencies from the largest position of a call, so one window needs one call.
LENGTH_DEPENDENT = ("dynamic", "longrope")
ROUND = 1024  # other tables are built for rounded lengths, so that decoding seldom rebuilds them


class Rope:
    """cos and sin of one rotary module for the positions of one window.

    Args:
        module: the decoder's rotary module, `forward(x, position_ids) -> (cos, sin)`.
        apply: the architecture's `apply_rotary_pos_emb(q, k, cos, sin)`.
    """

    def __init__(self, module: nn.Module, apply: Callable[..., tuple[Tensor, Tensor]]):
        self._module = module
        self._apply = apply
        self.length_dependent = str(getattr(module, "rope_type", "")) in LENGTH_DEPENDENT
        self._tables: dict[tuple, tuple[Tensor, Tensor]] = {}

    def rotate(self, x: Tensor, positions: Tensor | slice, length: int) -> Tensor:
        """Rotates x to positions inside a window of `length` positions.

        Args:
            x: (heads, n, D), position-free.
            positions: n positions, each below `length`, as indices or a slice.
            length: positions in the whole window; all tensors that meet in one attention must be
                rotated with the same one, since some models choose their frequencies by it.

        Returns:
            (heads, n, D) in the dtype of x.
        """
        cos, sin = self._table(length, x)
        none = x[None, :0]  # the architectures rotate q and k together; here k is empty
        rotated, _ = self._apply(x[None], none, cos[None, positions], sin[None, positions])
        return rotated[0]

    def same_basis(self, length: int, other: int) -> bool:
        """Whether keys rotated in a window of one length may meet queries of another."""
        if not self.length_dependent or length == other:
            return True
        probe = torch.empty(0)
        return torch.equal(self._table(length, probe)[0][1], self._table(other, probe)[0][1])

    def _table(self, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        size = length if self.length_dependent else -(-length // ROUND) * ROUND
        key = (size, like.dtype, like.device)
        if key not in self._tables:
            if len(self._tables) >= 4:
                self._tables.clear()
            self._tables[key] = self._angles(size, like)
        return self._tables[key]

    @torch.no_grad()
    def _angles(self, size: int, like: Tensor) -> tuple[Tensor, Tensor]:
        # A call at position 0 puts back the frequencies that a longer call before left grown
        # (dynamic NTK keeps them); `.forward` passes by the hook that makes attention
        # position-free.
        self._module.forward(like, torch.zeros(1, 1, dtype=torch.long, device=like.device))
        positions = torch.arange(size, device=like.device)[None]
        cos, sin = self._module.forward(like, positions)
        return cos[0], sin[0]  # (size, rotary dimensions)
