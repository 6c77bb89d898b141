"""SnapKV, token by token and head by head in float64: literal, slow, independent of what it judges.

The prompt's last tokens observe: what they attend to before themselves is averaged, pooled, and the
best of it kept with them. What it leaves open is marked "ours".
"""

import numpy as np
from llama_transcription import Weights, after_attention, rms_norm
from recycled_transcription import Output, appended, best, over, prefill

__all__ = ["Weights", "decode"]

Kept = list[list[list[int]]]  # [layer][key/value head], tokens ascending


def decode(
    w: Weights, prompt: list[int], answer: list[int], budget: int, window: int, pool: int
) -> tuple[list[np.ndarray], Kept]:
    """Logits after the prompt and after each token of an answer, and what was kept of the prompt.

    The answer's tokens are all kept.
    """
    read, logits = prefill(w, prompt, (None,) * len(w.layers))
    found, layers = [logits], [layer for layer, _, _ in read]
    kept = [chosen(w, attended.probability, budget, window, pool) for _, _, attended in read]
    for n, token in enumerate(answer, len(prompt)):
        state = [w.embedding[token]]
        for layer, own, weights in zip(layers, kept, w.layers, strict=True):
            q = appended(w, layer, weights, state)
            seen = [[*head, *range(len(prompt), n + 1)] for head in own]
            state = after_attention(w, weights, state, Output(over(w, layer, q, n, seen)[:1]))
        found.append(w.lm_head @ rms_norm(state[0], w.norm, w.eps))
    return found, kept


def chosen(
    w: Weights, probability: list[list[np.ndarray]], budget: int, window: int, pool: int
) -> list[list[int]]:
    """What one layer keeps, [key/value head]; probability [t][h], one number for each token.

    Ours: the mean is over the group's query heads too; ties as in `best`.
    """
    n, group = len(probability), w.query_heads // w.key_heads
    kept = []
    for g in range(w.key_heads):
        heads = range(g * group, g * group + group)
        score = [
            float(np.mean([probability[t][h][j] for t in range(n - window, n) for h in heads]))
            for j in range(n - window)
        ]
        kept.append(sorted(best(score, pool)[: budget - window]) + list(range(n - window, n)))
    return kept
