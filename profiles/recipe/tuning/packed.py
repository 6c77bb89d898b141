"""Sequences of any lengths as one row of tokens, without padding between them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Ids = Sequence[int] | np.ndarray


@dataclass(frozen=True)
class Packed:
    """Sequences one after another.

    Attributes:
        ids: (N,) tokens; what no sequence fills is a last sequence of padding.
        positions: (N,) each token's place in its sequence.
        bounds: (S + 1,) int32, where the sequences start, and N; padded with N.
        longest: tokens that no sequence exceeds.
    """

    ids: Tensor
    positions: Tensor
    bounds: Tensor
    longest: int

    def to(self, device: str | torch.device) -> "Packed":
        """The same on a device."""
        ids, positions, bounds = (
            t.to(device, non_blocking=True) for t in (self.ids, self.positions, self.bounds)
        )
        return Packed(ids, positions, bounds, self.longest)


def pack(sequences: Sequence[Ids], size: int, most: int, longest: int) -> Packed:
    """Packs sequences into `size` tokens, with room for `most` of them.

    The shapes depend on `size` and `most` alone, so that a compiled layer stays compiled.

    Args:
        sequences: each with at most `longest` tokens; together at most `size`.
        size: N.
        most: S, at least one more than the sequences and the pieces of padding.
        longest: see `Packed`.

    Raises:
        ValueError: they do not fit.
    """
    lengths = [len(one) for one in sequences]
    rest = size - sum(lengths)
    if rest < 0 or max(lengths, default=0) > longest:
        raise ValueError(f"{sum(lengths):,} tokens do not fit into {size:,}")
    lengths += [longest] * (rest // longest) + ([rest % longest] if rest % longest else [])
    if len(lengths) > most:
        raise ValueError(f"{len(lengths):,} sequences, more than {most:,}")
    ids = np.zeros(size, np.int64)
    ids[: size - rest] = np.concatenate([np.zeros(0, np.int64), *map(np.asarray, sequences)])
    bounds = np.full(most + 1, size, np.int32)
    bounds[: len(lengths) + 1] = np.concatenate([[0], np.cumsum(lengths)])
    positions = np.concatenate([np.arange(length) for length in lengths])
    return Packed(
        torch.from_numpy(ids), torch.from_numpy(positions), torch.from_numpy(bounds), longest
    )
