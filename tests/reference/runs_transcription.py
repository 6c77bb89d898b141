"""How well blocks fit a chunk by the mean keys of their runs, head by head in float64.

Ours, and no paper's: what each query of each head would give of its attention to every block, if
the mean keys of the runs of tokens in all blocks were all the keys there are. Of a chunk with more
than `ASKING` queries, the means of as many parts ask, the longer parts first.
"""

import numpy as np
from llama_transcription import softmax

ASKING = 64  # a name of its own: the tests replace it together with the one that they judge


def run_scores(
    of_heads: list[tuple[list[np.ndarray], list[np.ndarray]]], blocks: list[range], run: int
) -> list[float]:
    """The score of each block.

    Args:
        of_heads: of each head that asks, the chunk's queries and the keys of all tokens.
        blocks: the tokens of each block.
        run: tokens of a run.
    """
    scores = [0.0] * len(blocks)
    for queries, keys in of_heads:
        means, owners = [], []
        for number, tokens in enumerate(blocks):
            for start in range(0, len(tokens), run):
                means.append(np.mean([keys[j] for j in tokens[start : start + run]], axis=0))
                owners.append(number)
        for query in asking(queries):
            logits = [np.sum(query * mean) / np.sqrt(len(query)) for mean in means]
            for owner, share in zip(owners, softmax(np.array(logits)), strict=True):
                scores[owner] += float(share)
    return scores


def asking(queries: list[np.ndarray]) -> list[np.ndarray]:
    """The queries, or the means of `ASKING` parts of them."""
    if len(queries) <= ASKING:
        return queries
    short, more = divmod(len(queries), ASKING)
    parts, start = [], 0
    for number in range(ASKING):
        end = start + short + (number < more)
        parts.append(np.mean(queries[start:end], axis=0))
        start = end
    return parts
