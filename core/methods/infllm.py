"""InfLLM: blocks are retrieved by what represents them; by default the means of short runs of keys.

Xiao et al., "InfLLM: Training-Free Long-Context Extrapolation for LLMs with an Efficient Context
Memory", NeurIPS 2024. A baseline; Ltri-LLM keeps the same window but retrieves blocks differently.
With `run: 0` blocks are represented as in the paper, by the keys that their neighbours attended to
most, and compared with the mean query. That finds few needles: what a question will ask for is not
what the text around it attended to (docs/benchmarks/accuracy.md, "Blocks"). With `in_order: false`
what is retrieved stands at one distance, as in the paper.
"""

from dataclasses import dataclass

from torch import Tensor

from longctx.core.contracts.memory import Rows
from longctx.core.kv.block_index import RowForm
from longctx.core.kv.block_options import BlockOptions
from longctx.core.kv.block_vectors import best_blocks, most_shared, representatives, run_means
from longctx.core.kv.retrieving import ChosenBlocks, LayerChunk, Retrieving
from longctx.core.model.adapter import Layer


@dataclass(frozen=True)
class Options(BlockOptions):
    """Options of InfLLM; the defaults are those of the published code, but for
    `run` and `in_order`.

    Attributes:
        vectors: keys of a block, for each query head, whose mean represents it, where `run` is 0.
    """

    vectors: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.vectors <= self.block:
            raise ValueError(f"vectors: expected 1 to block, got {self.vectors}")


class Method(Retrieving):
    """The memory of InfLLM.

    Known differences from the paper and its published code: unless `run` is 0, a block is
    represented by the mean keys of its runs, and each query of a question is compared with them
    (`shares`); unless `in_order` is false, first and retrieved tokens stand one after another; a
    local window begins at a block's border; attention received is that within the
    local window, from all queries that a token was local to; ties of attention go to the earlier
    token, ties of scores to the earlier block; each token of an answer retrieves again. Layers with
    a sliding window keep their window and retrieve nothing.
    """

    name, per_head = "infllm", True

    def forms(self, layer: Layer) -> dict[str, RowForm]:
        """Vectors of runs, or one of all query heads; see `Retrieving.forms`."""
        if run := self.options.run:
            runs = self.options.block // run
            return {"runs": RowForm((runs, layer.kv_heads, layer.head_dim))}
        return {"vectors": RowForm((layer.query_heads, layer.head_dim))}

    def index(self, layer: Layer, keys: Tensor, received: Tensor, notes: Rows) -> Rows:
        """See `run_means`, or `representatives`."""
        if self.options.run:
            return {"runs": run_means(keys, self.options.run)}
        return {"vectors": representatives(keys, received, self.options.vectors)}

    def choose(self, layer: Layer, read: LayerChunk, index: Rows) -> ChosenBlocks:
        """The blocks that fit the chunk best; see `most_shared`, or `best_blocks`."""
        count = self.options.retrieved
        if self.options.run:
            return ChosenBlocks(most_shared(read.q, index["runs"], layer.scale, count))
        return ChosenBlocks(best_blocks(read.q, index["vectors"], count))
