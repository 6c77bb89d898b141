"""A memory that keeps only the document's tokens, which are recomputed for a question.

The base of methods that run no layers before there is a question. Each decides which tokens are
recomputed.
"""

from torch import Tensor

from longctx.core.contracts.memory import Snapshot, Stored
from longctx.core.contracts.method import Capabilities, Method
from longctx.core.model.adapter import Layer


class TokensAlone(Method, abstract=True):
    """Keeps no memory while reading; see `Method` for the arguments."""

    capabilities = Capabilities(searches=False)

    @property
    def depth(self) -> int:
        """No layers; see `Way`."""
        return 0

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Never reached: reading runs no layers."""
        raise AssertionError("nothing is read before the question")

    def snapshot(self) -> Snapshot:
        """Keeps nothing."""
        return {}

    def restore(
        self, snapshot: Snapshot, stored: Stored | None = None, reading: bool = True
    ) -> None:
        """Has nothing to restore."""

    def snapshot_bytes(self, tokens: int, itemsize: int) -> int:
        """A snapshot is empty."""
        return 0
