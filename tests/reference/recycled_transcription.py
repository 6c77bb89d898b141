"""Recycled Attention, token by token and head by head in float64.

The tests' truth: slow, literal, and independent of the code that it judges. Section numbers are the
paper's; what it leaves open is marked "ours". The pseudo-code of its Figure 3
is followed by 2.3's words: prefill, top K by the last token's attention, then S - 1 steps over the
recycled cache and one over everything, in turn. It keeps token numbers where the method keeps keys
and values, and looks every token's key up in one list of all, position-free.

Ours: a layer with a sliding window recycles nothing; each token sees its last `window` tokens.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from llama_transcription import (
    Attended,
    LayerWeights,
    Weights,
    after_attention,
    attend,
    rms_norm,
    rotary_table,
    rotate,
    softmax,
    states_of,
)

__all__ = ["Run", "Settings", "Weights", "decode"]

Heads = list[list[np.ndarray]]  # [head][token], position-free


@dataclass(frozen=True)
class Settings:
    """The numbers of 3.3 and 6."""

    budget: int  # K: tokens of the recycled cache
    stride: int  # S: a full step every S steps
    pool: int = 1  # 7: the variant with max pooling of Table 2
    similarity: float | None = None  # s of section 6; None: the stride alone counts
    compare: int = 10  # QC of section 6
    windows: tuple[int | None, ...] | None = None  # of layers; None: the model's for all


@dataclass
class Layer:
    """What one layer holds.

    Attributes:
        keys, values: [key/value head][token], the full cache C_f of 2.3.
        ranked: [key/value head], tokens of the recycled cache C_r, best first, as the last full
            step chose them and as far as they are left.
        since: tokens read after the last full step.
        query: the mean query of the last full step (6).
        compared: steps since the last comparison, or full step.
    """

    keys: Heads
    values: Heads
    ranked: list[list[int]] = field(default_factory=list)
    since: list[int] = field(default_factory=list)
    query: np.ndarray | None = None
    compared: int = 0


@dataclass
class Run:
    """What happened while an answer was read token by token.

    Attributes:
        logits: [step], after the prompt and after each token.
        full: (step, layer) of every full step; steps count from 1.
        chosen: (step, layer) to what was chosen, [key/value head], best first; step 0 is the
            prompt's last token.
        attended: (step, layer) to the tokens attended to, [key/value head], ascending.
    """

    logits: list[np.ndarray] = field(default_factory=list)
    full: list[tuple[int, int]] = field(default_factory=list)
    chosen: dict[tuple[int, int], list[list[int]]] = field(default_factory=dict)
    attended: dict[tuple[int, int], list[list[int]]] = field(default_factory=dict)


# ---- 2.3: prefill, then step by step


def decode(w: Weights, prompt: list[int], answer: list[int], settings: Settings) -> Run:
    """Read a prompt in full, and each token of an answer with Recycled Attention."""
    windows = settings.windows or (w.window,) * len(w.layers)
    read, logits = prefill(w, prompt, windows)
    run = Run([logits])
    layers = [layer for layer, _, _ in read]
    for index, (layer, queries, attended) in enumerate(read):
        if windows[index] is None:
            # 2.3: the cache begins with the top K of a_L, the last token's attention.
            layer.ranked = top_tokens(w, attended.probability[-1], settings)
            layer.query = np.mean(queries[-1], axis=0)
            run.chosen[0, index] = [list(head) for head in layer.ranked]
    for step, token in enumerate(answer, 1):
        state = [w.embedding[token]]
        for index, weights in enumerate(w.layers):
            q = appended(w, layers[index], weights, state)
            out = attended_by(w, layers[index], q, (step, index), windows[index], settings, run)
            state = after_attention(w, weights, state, out)
        run.logits.append(w.lm_head @ rms_norm(state[0], w.norm, w.eps))
    return run


def prefill(
    w: Weights, prompt: list[int], windows: tuple[int | None, ...]
) -> tuple[list[tuple[Layer, list[list[np.ndarray]], Attended]], np.ndarray]:
    """Full attention over a prompt: of each layer its cache, its queries [t][h] and what they saw.

    Also returns the logits after its last token.
    """
    read, hidden = [], [w.embedding[i] for i in prompt]
    for index, weights in enumerate(w.layers):
        states = states_of(w, weights, hidden)
        queries = [s.q for s in states]
        keys = [[s.k[g] for s in states] for g in range(w.key_heads)]
        values = [[s.v[g] for s in states] for g in range(w.key_heads)]
        attended = attend(replace(w, window=windows[index]), queries, keys, values)
        read.append((Layer(keys, values), queries, attended))
        hidden = after_attention(w, weights, hidden, attended)
    return read, w.lm_head @ rms_norm(hidden[-1], w.norm, w.eps)


def appended(
    w: Weights, layer: Layer, weights: LayerWeights, state: list[np.ndarray]
) -> list[np.ndarray]:
    """Adds one token's key and value to a layer's cache; its queries, [h]."""
    (states,) = states_of(w, weights, state)
    for g in range(w.key_heads):
        layer.keys[g].append(states.k[g])
        layer.values[g].append(states.v[g])
    return states.q


@dataclass(frozen=True)
class Output:
    """What `after_attention` wants."""

    output: list[list[np.ndarray]]


def attended_by(
    w: Weights,
    layer: Layer,
    q: list[np.ndarray],
    at: tuple[int, int],
    window: int | None,
    settings: Settings,
    run: Run,
) -> Output:
    """One token's attention in one layer, which has its key and value already."""
    token = len(layer.keys[0]) - 1
    everything = list(range(token + 1))
    if window is not None:
        return Output([over(w, layer, q, token, [everything[-window:]] * w.key_heads)[0]])
    if is_full(layer, q, settings):
        out, weights = over(w, layer, q, token, [everything] * w.key_heads)
        run.full.append(at)
        run.attended[at] = [everything] * w.key_heads
        # 2.3: the recycled cache is made anew from what this token attended to.
        layer.ranked, layer.since = top_tokens(w, weights, settings), []
        layer.query, layer.compared = np.mean(q, axis=0), 0
        run.chosen[at] = [list(head) for head in layer.ranked]
        return Output([out])
    layer.since.append(token)
    seen = [sorted(head + layer.since) for head in layer.ranked]
    run.attended[at] = seen
    out, _ = over(w, layer, q, token, seen)
    for head in layer.ranked:
        # 2.3: the size stays fixed; the recycled token with the lowest score goes.
        if len(head) + len(layer.since) > settings.budget:
            head.pop()
    return Output([out])


def is_full(layer: Layer, q: list[np.ndarray], settings: Settings) -> bool:
    """Whether a step is a full one. Ours: it is too when no recycled token is left."""
    if not layer.ranked[0]:
        return True
    if settings.similarity is None:
        return len(layer.since) + 1 == settings.stride  # S - 1 recycled steps come before
    layer.compared += 1
    if layer.compared < settings.compare:
        return False
    layer.compared = 0
    # 6: of all the layer's query heads; ours: without position.
    now, then = np.mean(q, axis=0), layer.query
    cosine = now @ then / (np.linalg.norm(now) * np.linalg.norm(then))
    return not min(cosine, 1.0) > settings.similarity


def over(
    w: Weights, layer: Layer, q: list[np.ndarray], token: int, seen: list[list[int]]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Attention of one token to `seen` tokens, [key/value head], at their original positions.

    Returns:
        [query head]: the output, and the weights of the seen tokens.
    """
    cos, sin = rotary_table(w, token + 1)
    outputs, weights, group = [], [], w.query_heads // w.key_heads
    for g in range(w.key_heads):
        keys = np.array([rotate(layer.keys[g][j], cos[j], sin[j]) for j in seen[g]])
        values = np.array([layer.values[g][j] for j in seen[g]])
        for h in range(g * group, g * group + group):
            query = rotate(q[h], cos[token], sin[token])
            received = softmax(keys @ query / np.sqrt(w.head_dim))
            outputs.append(received @ values)
            weights.append(received)
    return outputs, weights


# ---- 2.3 and 3.1: which tokens are recycled


def top_tokens(w: Weights, weights: list[np.ndarray], settings: Settings) -> list[list[int]]:
    """The top K tokens of each key/value head, best first; weights [query head][token].

    3.1: one score for the query heads of a group, their largest. 3.3: pooled over neighbours.
    """
    group = w.query_heads // w.key_heads
    chosen = []
    for g in range(w.key_heads):
        score = [
            max(weights[h][j] for h in range(g * group, g * group + group))
            for j in range(len(weights[0]))
        ]
        chosen.append(best(score, settings.pool)[: settings.budget])
    return chosen


def best(score: list[float], pool: int) -> list[int]:
    """All tokens, best first; ours: of equal ones the higher unpooled first, then the earlier."""
    reach = pool // 2
    pooled = [max(score[max(0, j - reach) : j + reach + 1]) for j in range(len(score))]
    return sorted(range(len(score)), key=lambda j: (-pooled[j], -score[j], j))
