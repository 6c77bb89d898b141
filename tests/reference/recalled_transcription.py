"""Recycled Attention over ReAttention, token by token and head by head in float64.

All of it is ours: neither paper has the other. A full step is ReAttention's own, for one token;
what is recycled is chosen from its window and keeps its places there, and tokens since stand behind
the window. The answer's first token has a full step, and every `stride`-th after it at the latest.
"""

from dataclasses import dataclass, field

import numpy as np
import reattention_transcription as reattention
import recycled_transcription as recycled
from llama_transcription import (
    Weights,
    after_attention,
    attend,
    rms_norm,
    rotary_table,
    rotate,
    softmax,
    states_of,
)


@dataclass
class Layer:
    """One layer's last full step; the fields are those of `recycled_transcription.Layer`.

    Attributes:
        line: tokens at the places 0, 1, ...: the window, and those since.
        ranked: [key/value head], places of recycled tokens, best first.
        since: places of the tokens since.
    """

    line: list[int] = field(default_factory=list)
    ranked: list[list[int]] = field(default_factory=list)
    since: list[int] = field(default_factory=list)
    query: np.ndarray | None = None
    compared: int = 0


def decode(
    w: Weights,
    reading: reattention.Reading,
    answer: list[int],
    selecting: reattention.Settings,
    settings: recycled.Settings,
) -> recycled.Run:
    """Logits after each token of an answer; what was chosen and attended to are places."""
    reading, run = reattention.copied(reading), recycled.Run()
    layers = [Layer() for _ in w.layers]
    for step, token in enumerate(answer, 1):
        state = [w.embedding[token]]
        for index, weights in enumerate(w.layers):
            (own,) = states_of(w, weights, state)
            keys, values = reading.keys[index], reading.values[index]
            for g in range(w.key_heads):
                keys[g].append(own.k[g])
                values[g].append(own.v[g])
            if w.window is not None:
                seen = reattention.window(w, reading, index, [own.q], selecting)
                rows = [[[x[j] for j in seen] for x in heads] for heads in (keys, values)]
                out = attend(w, [own.q], *rows)
            else:
                layer = layers[index]
                full = begins(layer, own.q, settings)
                if full:
                    line = reattention.window(w, reading, index, [own.q], selecting)
                    layer.line, entries = line, [list(range(len(line)))] * w.key_heads
                else:
                    layer.since.append(len(layer.line))
                    layer.line.append(reading.tokens)
                    entries = [sorted(head + layer.since) for head in layer.ranked]
                result, received = over(w, layer.line, keys, values, own.q, entries)
                out = recycled.Output([result])
                run.attended[step, index] = entries
                if full:
                    run.full.append((step, index))
                    layer.ranked, layer.since = recycled.top_tokens(w, received, settings), []
                    layer.query, layer.compared = np.mean(own.q, axis=0), 0
                    run.chosen[step, index] = [list(head) for head in layer.ranked]
                else:
                    for head in layer.ranked:
                        if len(head) + len(layer.since) > settings.budget:
                            head.pop()
            state = after_attention(w, weights, state, out)
        reading.tokens += 1
        reading.chunks += 1
        run.logits.append(w.lm_head @ rms_norm(state[0], w.norm, w.eps))
    return run


def begins(layer: Layer, q: list[np.ndarray], settings: recycled.Settings) -> bool:
    """Whether a step is a full one: the window has no room for more than the stride."""
    if not layer.ranked or len(layer.since) + 1 == settings.stride:
        return True
    return recycled.is_full(layer, q, settings)


def over(
    w: Weights,
    line: list[int],
    keys: list[list[np.ndarray]],
    values: list[list[np.ndarray]],
    q: list[np.ndarray],
    entries: list[list[int]],
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Attention of the last token of a line to places in it, [key/value head].

    Returns:
        [query head]: the output, and the weights of these places.
    """
    cos, sin = rotary_table(w, len(line))
    outputs, weights = [], []
    for h in range(w.query_heads):
        g = h // (w.query_heads // w.key_heads)
        query = rotate(q[h], cos[len(line) - 1], sin[len(line) - 1])
        turned = np.array([rotate(keys[g][line[p]], cos[p], sin[p]) for p in entries[g]])
        received = softmax(turned @ query / np.sqrt(w.head_dim))
        outputs.append(received @ np.array([values[g][line[p]] for p in entries[g]]))
        weights.append(received)
    return outputs, weights
