"""InfLLM: blocks are retrieved by the keys that their neighbours attended to most.

Xiao et al., "InfLLM: Training-Free Long-Context Extrapolation for LLMs with an Efficient Context
Memory", NeurIPS 2024. A baseline; Ltri-LLM keeps the same window but retrieves blocks differently.
"""

from dataclasses import dataclass

from torch import Tensor

from longctx.core.contracts.memory import Rows
from longctx.core.kv.block_index import RowForm
from longctx.core.kv.block_options import BlockOptions
from longctx.core.kv.block_vectors import best_blocks, representatives
from longctx.core.kv.retrieving import ChosenBlocks, LayerChunk, Retrieving
from longctx.core.model.adapter import Layer


@dataclass(frozen=True)
class Options(BlockOptions):
    """Options of InfLLM; the defaults are those of the published code.

    Attributes:
        vectors: keys of a block, for each query head, whose mean represents it.
    """

    vectors: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.vectors <= self.block:
            raise ValueError(f"vectors: expected 1 to block, got {self.vectors}")


class Method(Retrieving):
    """The memory of InfLLM.

    Known differences from the paper and its published code: a local window begins at a block's
    border; attention received is that within the local window, from all queries that a token was
    local to; ties of attention go to the earlier token, ties of scores to the earlier block; each
    token of an answer retrieves again. Layers with a sliding window keep their window and retrieve
    nothing.
    """

    name, per_head = "infllm", True

    def forms(self, layer: Layer) -> dict[str, RowForm]:
        """One vector of all query heads; see `Retrieving.forms`."""
        return {"vectors": RowForm((layer.query_heads, layer.head_dim))}

    def index(self, layer: Layer, keys: Tensor, received: Tensor, notes: Rows) -> Rows:
        """Block vectors (B, H, D); see `representatives`."""
        return {"vectors": representatives(keys, received, self.options.vectors)}

    def choose(self, layer: Layer, read: LayerChunk, index: Rows) -> ChosenBlocks:
        """The blocks that best match the chunk's mean query; see `best_blocks`."""
        return ChosenBlocks(best_blocks(read.q, index["vectors"], self.options.retrieved))
