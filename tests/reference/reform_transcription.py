"""REFORM ("Compress, Gather, and Recompute"), token by token and head by head in float64.

The tests' truth: slow, literal, and independent of the code that it judges. Section and appendix
numbers are the paper's ("4" is its experimental settings). What the paper leaves open is marked
"ours", and the function's docstring says how it is filled. It knows whole inputs as lists of token
ids, and nothing of files, dtypes or devices.
"""

from dataclasses import dataclass

import numpy as np
from llama_transcription import (
    Attended,
    Weights,
    after_attention,
    attend,
    full_logits,
    states_of,
)

__all__ = [
    "Reading",
    "Settings",
    "Weights",
    "answer_logits",
    "gather",
    "read",
    "score",
]

Entry = tuple[int, np.ndarray, np.ndarray]  # absolute input position, position-free key, value
Cache = list[list[list[Entry]]]  # [layer below the highest tapped][key/value head], in input order


@dataclass(frozen=True)
class Settings:
    """REFORM's numbers, in tokens. The paper (4): chunk = budget = 32,768, first = last = 256."""

    chunk: int
    budget: int  # all that a cache keeps, first and last included
    first: int
    last: int
    heads: tuple[tuple[int, str, int], ...]  # (layer, "q" | "k" | "v", head); four in C.6
    gather: int  # 8,192 or 16,384 (4), first and last included (C.4, D.2)
    pool: int = 64  # on each side: 129 tokens (3.3, 4.5)
    queries: int = 128  # whose attention decides the eviction (4)
    accumulate: bool = False  # H2O's running sum over chunks


@dataclass
class Reading:
    """What reading leaves: the document tokens' embeddings and what a question attends to.

    Attributes:
        embeddings: [document token][head], unit vectors in float64.
        kept: (chunk, layer, key/value head) to the absolute positions kept after that chunk.
        cache: the kept entries after the last whole chunk, then the tail's.
    """

    embeddings: list[list[np.ndarray]]
    kept: dict[tuple[int, int, int], list[int]]
    cache: Cache

    @property
    def quantised(self) -> tuple[np.ndarray, np.ndarray]:
        """int8 (n, heads, D) and float16 scales (n, heads)."""
        return quantise_all(self.embeddings)


# ---- 3.1 Recurrent chunked forwarding with early exit


def read(w: Weights, ids: list[int], settings: Settings, prefix: int = 0) -> Reading:
    """Read prefix and document; the input's first `prefix` tokens get no embeddings in the result.

    Ours: chunks are counted from the input's start; a last part of less than a chunk (the tail) is
    read like a chunk, but nothing is evicted after it.
    """
    top = highest_layer(settings)
    cache: Cache = [[[] for _ in range(w.key_heads)] for _ in range(top)]
    kept: dict[tuple[int, int, int], list[int]] = {}
    carried = [[np.zeros(0) for _ in range(w.key_heads)] for _ in range(top)]
    embeddings: list[list[np.ndarray]] = []
    for number, start in enumerate(range(0, len(ids), settings.chunk)):
        part = ids[start : start + settings.chunk]
        tapped, cache, attended = encode(w, part, start, cache, settings)
        embeddings += tapped
        if len(part) < settings.chunk:
            break  # the tail
        for layer in range(top):
            for g in range(w.key_heads):
                entries = cache[layer][g]
                mass = attention_mass(w, attended[layer], g, settings)
                if settings.accumulate:
                    mass[: len(carried[layer][g])] += carried[layer][g]  # new tokens start from 0
                stay = survivors(w, [position for position, _, _ in entries], mass, settings)
                cache[layer][g] = [entries[i] for i in stay]
                kept[number, layer, g] = [entries[i][0] for i in stay]
                carried[layer][g] = mass[stay]
    return Reading(embeddings[prefix:], kept, cache)


def highest_layer(settings: Settings) -> int:
    """Early exit (3.1): nothing runs above the highest tapped layer."""
    return max(layer for layer, _, _ in settings.heads)


def encode(
    w: Weights, part: list[int], start: int, cache: Cache, settings: Settings
) -> tuple[list[list[np.ndarray]], Cache, list[Attended]]:
    """One chunk (or tail, or question) through layers 0..l, l being the highest tapped one.

    In every layer below l it attends causally to [kept cache | itself] at consecutive positions
    from 0 (3.1); in layer l only q, k and v are computed (early exit). `start` is the absolute
    position of its first token.

    Returns:
        The embeddings [token][head], the cache with the part's entries after it, and the
        attention of each layer below l.
    """
    top = highest_layer(settings)
    taps: list[list[np.ndarray]] = [[np.zeros(0)] * len(settings.heads) for _ in part]
    candidates: Cache = []
    attended: list[Attended] = []
    hidden = [w.embedding[i] for i in part]
    for index in range(top + 1):
        layer = w.layers[index]
        states = states_of(w, layer, hidden)
        for slot, (tapped_layer, kind, head) in enumerate(settings.heads):
            if tapped_layer == index:
                for t in range(len(part)):
                    taps[t][slot] = normalised(getattr(states[t], kind)[head])
        if index == top:
            break  # early exit
        candidates.append([list(cache[index][g]) for g in range(w.key_heads)])
        for g in range(w.key_heads):
            for t in range(len(part)):
                candidates[index][g].append((start + t, states[t].k[g], states[t].v[g]))
        keys = [[key for _, key, _ in candidates[index][g]] for g in range(w.key_heads)]
        values = [[value for _, _, value in candidates[index][g]] for g in range(w.key_heads)]
        attended.append(attend(w, [s.q for s in states], keys, values))
        hidden = after_attention(w, layer, hidden, attended[index])
    return taps, candidates, attended


def attention_mass(w: Weights, attended: Attended, g: int, settings: Settings) -> np.ndarray:
    """The attention that each candidate gets from the chunk's last queries (4: 128 of them).

    Ours: post-softmax probabilities, summed over these queries and over the group's query heads.
    """
    group = w.query_heads // w.key_heads
    mass = np.zeros_like(attended.probability[0][0])
    tokens = len(attended.probability)
    for t in range(max(0, tokens - settings.queries), tokens):
        for h in range(g * group, (g + 1) * group):
            mass += attended.probability[t][h]
    return mass


def survivors(w: Weights, positions: list[int], mass: np.ndarray, settings: Settings) -> list[int]:
    """Indices of the candidates that stay after a whole chunk, ascending.

    Heavy hitters by attention (3.1), the first and the last tokens always (4). Ours: exactly
    `budget` stay, these included; first means of the whole input, last of the chunk just read;
    ties go to the earlier token. A layer with a sliding window selects nothing: its last `window`
    tokens stay.
    """
    count = len(positions)
    if w.window is not None:
        return list(range(max(0, count - w.window), count))
    if count <= settings.budget:
        return list(range(count))
    recent = count - min(settings.last, settings.chunk)
    always = [i for i in range(count) if positions[i] < settings.first or i >= recent]
    if len(always) > settings.budget:
        raise ValueError(
            f"{len(always)} first and last tokens exceed a budget of {settings.budget}"
        )
    rest = [i for i in range(count) if i not in always]
    rest.sort(key=lambda i: (-mass[i], i))
    return sorted(always + rest[: settings.budget - len(always)])


# ---- 3.2 Cross-layer context embeddings


def normalised(vector: np.ndarray) -> np.ndarray:
    """e / ||e|| (3.2); a zero vector stays zero."""
    length = np.sqrt(np.sum(vector * vector))
    return vector / length if length > 0 else vector


def quantise(vector: np.ndarray) -> tuple[np.ndarray, np.float16]:
    """Ours: int8 with one float16 scale, by which (as rounded) the vector is divided."""
    scale = np.float16(np.max(np.abs(vector)) / 127)
    if scale == 0:
        return np.zeros(len(vector), dtype=np.int8), scale
    rounded = np.rint(vector / np.float64(scale))  # halves to even
    return np.clip(rounded, -127, 127).astype(np.int8), scale


def quantise_all(embeddings: list[list[np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """[token][head] vectors to int8 (n, heads, D) and float16 (n, heads)."""
    pairs = [[quantise(vector) for vector in token] for token in embeddings]
    values = [[value for value, _ in token] for token in pairs]
    scales = [[scale for _, scale in token] for token in pairs]
    return np.array(values, dtype=np.int8), np.array(scales, dtype=np.float16)


def cosine(a: np.ndarray, a_scales: np.ndarray, b: np.ndarray, b_scales: np.ndarray) -> float:
    """Similarity of two tokens, (heads, D) int8 each: the mean of the heads' cosines (3.2)."""
    total = 0.0
    for head in range(len(a)):
        dot = int(np.dot(a[head].astype(np.int32), b[head].astype(np.int32)))
        total += dot * float(a_scales[head]) * float(b_scales[head])
    return total / len(a)


# ---- 3.3 On-demand cache recomputation


def score(
    reading: Reading,
    w: Weights,
    settings: Settings,
    question_ids: list[int],
    scored: list[bool],
) -> tuple[np.ndarray, np.ndarray]:
    """Raw and pooled score of every document token, (n,) each.

    The question is encoded against [evicted cache | tail] and tapped like the document. Template
    and special tokens are encoded, but `scored` leaves them out (C.6). Max over the question's
    tokens, then over the neighbours (3.3), clipped at the ends (ours).
    """
    # The absolute positions given here (0...) only label entries that are thrown away.
    tapped, _, _ = encode(w, question_ids, 0, reading.cache, settings)
    q_values, q_scales = quantise_all(tapped)
    values, scales = reading.quantised
    n = len(reading.embeddings)
    raw = np.zeros(n)
    for j in range(n):
        raw[j] = max(
            cosine(values[j], scales[j], q_values[i], q_scales[i])
            for i in range(len(question_ids))
            if scored[i]
        )
    pooled = np.zeros(n)
    for j in range(n):
        pooled[j] = max(raw[max(0, j - settings.pool) : j + settings.pool + 1])
    return raw, pooled


def gather(raw: np.ndarray, pooled: np.ndarray, settings: Settings, prefix: int) -> list[int]:
    """The `gather` document tokens to recompute, ascending; token 0 is the first after the prefix.

    The first and last tokens of the document always (4), the rest by pooled score (3.3). Ours: ties
    go to the higher raw score, then to the earlier token.
    """
    del prefix  # gather counts document tokens; the prefix comes on top of it
    n = len(raw)
    if settings.gather >= n:
        return list(range(n))
    always = [j for j in range(n) if j < settings.first or j >= n - settings.last]
    if len(always) > settings.gather:
        raise ValueError(
            f"{len(always)} first and last tokens exceed a gather of {settings.gather}"
        )
    rest = [j for j in range(n) if j not in always]
    rest.sort(key=lambda j: (-pooled[j], -raw[j], j))
    return sorted(always + rest[: settings.gather - len(always)])


def answer_logits(
    w: Weights,
    prefix_ids: list[int],
    document_ids: list[int],
    selected: list[int],
    question_ids: list[int],
) -> np.ndarray:
    """Logits after the last token of [prefix | selected, in document order | question] (3.3).

    Recomputed through every layer, with the model's own attention, at consecutive positions from 0.
    """
    gathered = [document_ids[j] for j in sorted(selected)]
    return full_logits(w, prefix_ids + gathered + question_ids)[-1]
