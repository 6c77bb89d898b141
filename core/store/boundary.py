"""The boundary of a document: the last place from which reading can continue when it grows.

The end of a document will not do: its last tokens may change when more text follows, and its last
chunk is seldom whole. So the snapshot after the last whole chunk before them is stored too, without
the tensors that are the beginning of the document's own. Knows no method.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longctx.core.store.confined import Confined
from longctx.core.store.shards import Rows, damaged

if TYPE_CHECKING:
    import torch

SHAPE = ".shape"  # suffix for a tensor that is the beginning of the snapshot's


@dataclass(frozen=True)
class Boundary:
    """A chunk end before which no token changes, whatever is appended to the document.

    Attributes:
        tokens: tokens before it; 0: the document can only be read again from its first token.
        snapshot: the method's snapshot there; none for 0.
        forced_splits: places before it where text without line breaks was cut.
    """

    tokens: int
    snapshot: Rows
    forced_splits: int

    def told(self) -> dict[str, Any]:
        """What the manifest's report says about it."""
        return {"tokens": self.tokens, "forced_splits": self.forced_splits}


def folded(snapshot: Rows, end: Rows) -> Rows:
    """A boundary's snapshot as stored beside the one of the document's end.

    A tensor (a, b, ...) that is `end[:a, :b, ...]` of the same name becomes its shape (dims,).
    """
    import torch

    found = {}
    for name, tensor in snapshot.items():
        if _begins(tensor, end.get(name)):
            found[name + SHAPE] = torch.tensor(tensor.shape, dtype=torch.int64)
        else:
            found[name] = tensor
    return found


def unfolded(stored: Rows, end: Rows, path: Confined | Path) -> Rows:
    """The inverse of `folded`.

    Args:
        stored: tensors of the boundary's file.
        end: the document's snapshot.
        path: the file's, for messages.

    Raises:
        StateMismatch: the snapshot has no such part.
    """
    found = {}
    for name, tensor in stored.items():
        whole = name.removesuffix(SHAPE)
        if whole == name:
            found[name] = tensor
            continue
        shape: list[int] = tensor.tolist()
        whole_numbers = tensor.dim() == 1 and all(type(n) is int for n in shape)
        of = end.get(whole)
        if of is None or not whole_numbers or len(shape) != of.dim():
            raise damaged(path, f"the snapshot has no tensor {whole!r} with such a part")
        if any(not 0 <= n <= most for n, most in zip(shape, of.shape, strict=True)):
            raise damaged(path, f"the part of {whole!r} is larger than the whole")
        found[whole] = _part(of, shape).contiguous()
    return found


def _begins(tensor: "torch.Tensor", whole: "torch.Tensor | None") -> bool:
    import torch

    if whole is tensor:  # at a chunk's end; comparing gigabytes takes a while
        return True
    if whole is None or whole.dtype != tensor.dtype or whole.dim() != tensor.dim():
        return False
    if any(n > most for n, most in zip(tensor.shape, whole.shape, strict=True)):
        return False
    return torch.equal(tensor, _part(whole, tensor.shape))


def _part(whole: "torch.Tensor", shape: "list[int] | torch.Size") -> "torch.Tensor":
    return whole[tuple(slice(n) for n in shape)]
