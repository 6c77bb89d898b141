"""InfLLM, token by token and head by head in float64.

The tests' truth: slow, literal, and independent of the code that it judges. Section numbers are the
paper's (Xiao et al., 2024); what it leaves open is marked "ours". It knows whole inputs as lists of
token ids, and nothing of files, dtypes, devices or caches.

Where the published code and the paper differ, this follows neither blindly:

* 3.2 picks the tokens of a block with the highest representative score, the mean of the logits that
  the tokens of the local window after it give to it. The code sums post-softmax attention instead,
  for each query head, and takes the mean of the four best keys. So does this.
* Post-softmax over what, is open. Ours: over the local window alone, as it stood when the chunk was
  read; summed over the queries of all chunks since the token was read.
* Where blocks begin is open. Ours: behind the first tokens, one after the other; the local window
  begins where a block does, and has at least `local` tokens, those of the chunk included.
* A chunk is scored by the mean of its queries, as in the code; so is each token of an answer.
"""

from dataclasses import dataclass, field

import numpy as np
from llama_transcription import (
    Attended,
    Weights,
    after_attention,
    attend,
    rms_norm,
    rotary_table,
    rotate,
    softmax,
    states_of,
)
from runs_transcription import run_scores

__all__ = [
    "Reading",
    "Retrieval",
    "Settings",
    "Weights",
    "block_votes",
    "feed",
    "read",
]

Heads = list[list[np.ndarray]]  # [head][token of the input], position-free
Queries = list[list[np.ndarray]]  # [t][h], position-free


@dataclass(frozen=True)
class Settings:
    """InfLLM's numbers, in tokens but for `retrieved` and `vectors`."""

    first: int  # 128: initial tokens
    local: int  # 4,096; ours: the chunk being read is part of it
    block: int  # 128
    chunk: int  # 512; ours: the first chunk is first + local
    retrieved: int  # 16: blocks that a chunk attends to
    vectors: int = 4  # keys of a block, for each query head, that stand for it
    run: int = 0  # tokens of a run; 0: the paper's index (`runs_transcription.py` has ours)
    in_order: bool = False  # ours: far tokens one after another, not at one distance

    def __post_init__(self) -> None:
        if self.local % self.block or self.chunk % self.block or self.chunk > self.local:
            raise ValueError(f"local and chunk are whole blocks, chunk is in local: {self}")

    def left(self, total: int) -> int:
        """Blocks before the local window when there are so many tokens."""
        blocks = 0
        while total - (self.first + (blocks + 1) * self.block) >= self.local:
            blocks += 1
        return blocks

    def tokens(self, block: int) -> range:
        """The tokens of a block."""
        start = self.first + block * self.block
        return range(start, start + self.block)


@dataclass(frozen=True)
class Retrieval:
    """What one layer retrieved for one chunk.

    Attributes:
        blocks: ascending.
        scores: of every block that there was.
        gap: from the last score that is in to the first that is out; infinite if all are in.
    """

    blocks: list[int]
    scores: list[float]
    gap: float


@dataclass
class Reading:
    """All that was read: document, and after `feed` question and answer too.

    Attributes:
        keys, values: [layer][key/value head][token], of every token.
        received: [layer][query head][token], attention while the token was local.
        vectors: [layer][block][query head], of the blocks that have left the local window.
        best: [layer][block][query head], the tokens whose keys they are made of.
        tokens: how many were read.
        chunks: in how many chunks.
        retrievals: (chunk, layer) to what was retrieved; absent where no block had left.
    """

    keys: list[Heads]
    values: list[Heads]
    received: list[list[list[float]]]
    vectors: list[list[list[np.ndarray]]]
    best: list[list[list[list[int]]]]
    tokens: int = 0
    chunks: int = 0
    retrievals: dict[tuple[int, int], Retrieval] = field(default_factory=dict)


# ---- reading, then the question, then token by token


def read(w: Weights, ids: list[int], settings: Settings) -> Reading:
    """Read prefix and document; the last chunk may be shorter than the others."""
    reading = Reading(
        keys=[[[] for _ in range(w.key_heads)] for _ in w.layers],
        values=[[[] for _ in range(w.key_heads)] for _ in w.layers],
        received=[[[] for _ in range(w.query_heads)] for _ in w.layers],
        vectors=[[] for _ in w.layers],
        best=[[] for _ in w.layers],
    )
    start, end = 0, settings.first + settings.local
    while start < len(ids):
        encode(w, reading, ids[start:end], settings)
        start, end = end, end + settings.chunk
    return reading


def feed(
    w: Weights, reading: Reading, ids: list[int], settings: Settings
) -> tuple[np.ndarray, Reading]:
    """Read a question, or one generated token, after what was read before.

    Returns:
        The logits after the last token, (vocabulary,), and the reading after it. The one that was
        given stays as it was.
    """
    after = copied(reading)
    hidden: list[np.ndarray] = []
    for start in range(0, len(ids), settings.chunk):
        hidden = encode(w, after, ids[start : start + settings.chunk], settings)
    return w.lm_head @ rms_norm(hidden[-1], w.norm, w.eps), after


def copied(reading: Reading) -> Reading:
    """One that can grow by itself."""
    return Reading(
        keys=[[list(head) for head in layer] for layer in reading.keys],
        values=[[list(head) for head in layer] for layer in reading.values],
        received=[[list(head) for head in layer] for layer in reading.received],
        vectors=[list(layer) for layer in reading.vectors],
        best=[list(layer) for layer in reading.best],
        tokens=reading.tokens,
        chunks=reading.chunks,
        retrievals=dict(reading.retrievals),
    )


def encode(w: Weights, reading: Reading, part: list[int], settings: Settings) -> list[np.ndarray]:
    """One chunk through every layer; `reading` grows by it. Returns the last layer's output."""
    hidden = [w.embedding[i] for i in part]
    for index, layer in enumerate(w.layers):
        states = states_of(w, layer, hidden)
        for g in range(w.key_heads):
            reading.keys[index][g] += [s.k[g] for s in states]
            reading.values[index][g] += [s.v[g] for s in states]
        attended = attention(w, reading, index, [s.q for s in states], settings)
        hidden = after_attention(w, layer, hidden, attended)
    reading.tokens += len(part)
    reading.chunks += 1
    return hidden


def attention(
    w: Weights, reading: Reading, index: int, queries: Queries, settings: Settings
) -> Attended:
    """What the chunk's tokens get from their attention in one layer.

    Ours: a layer with a sliding window retrieves nothing. While the first and the local tokens are
    all that there is, attention is the model's own.
    """
    keys, values = reading.keys[index], reading.values[index]
    total = reading.tokens + len(queries)
    if w.window is not None:
        seen = max(0, reading.tokens - w.window)
        return attend(w, queries, [head[seen:] for head in keys], [head[seen:] for head in values])
    start = settings.first + settings.left(total) * settings.block
    for block in range(len(reading.vectors[index]), settings.left(total)):
        remember(w, reading, index, block, settings)
    receive(w, reading, index, queries, start)
    if total <= settings.first + settings.local:
        return attend(w, queries, keys, values)
    blocks = retrieve(w, reading, index, queries, settings)
    far = [*range(settings.first), *(j for b in blocks for j in settings.tokens(b))]
    distance = None if settings.in_order else settings.local
    return attend_far_and_local(w, reading, index, queries, far, start, distance)


# ---- 3.2 Block memory


def receive(w: Weights, reading: Reading, index: int, queries: Queries, start: int) -> None:
    """Adds up what each local token receives from the chunk, which is its end, in every head."""
    keys = reading.keys[index]
    total = len(keys[0])
    for h in range(w.query_heads):
        reading.received[index][h] += [0.0] * (total - len(reading.received[index][h]))
        for t in range(len(queries)):
            p = total - len(queries) + t
            if p >= start:
                logits = local_logits(w, keys[key_head(w, h)], queries[t][h], start, p)
                for j, share in enumerate(softmax(logits)):
                    reading.received[index][h][start + j] += share


def remember(w: Weights, reading: Reading, index: int, block: int, settings: Settings) -> None:
    """A block's vector: for each query head the mean of the keys that received most of it."""
    vectors, best = [], []
    for h in range(w.query_heads):
        received, keys = reading.received[index][h], reading.keys[index][key_head(w, h)]
        ranked = by_attention(settings.tokens(block), received)[: settings.vectors]
        vectors.append(np.mean([keys[j] for j in ranked], axis=0))
        best.append(ranked)
    reading.vectors[index].append(vectors)
    reading.best[index].append(best)


def by_attention(tokens: range, received: list[float]) -> list[int]:
    """Tokens, the most attention first; ours: of equal ones the earlier first."""
    return sorted(tokens, key=lambda j: (-received[j], j))


def retrieve(
    w: Weights, reading: Reading, index: int, queries: Queries, settings: Settings
) -> list[int]:
    """The blocks whose vectors fit the mean query best, all heads together; ascending."""
    scores = by_runs(w, reading, index, queries, settings) if settings.run else []
    for vectors in [] if settings.run else reading.vectors[index]:
        score = 0.0
        for h in range(w.query_heads):
            mean = np.mean([queries[t][h] for t in range(len(queries))], axis=0)
            score += float(np.sum(vectors[h] * mean))
        scores.append(score)
    order = by_score(scores)
    chosen, others = order[: settings.retrieved], order[settings.retrieved :]
    gap = scores[chosen[-1]] - scores[others[0]] if others else np.inf
    if scores:
        reading.retrievals[reading.chunks, index] = Retrieval(sorted(chosen), scores, float(gap))
    return sorted(chosen)


def by_runs(
    w: Weights, reading: Reading, index: int, queries: Queries, settings: Settings
) -> list[float]:
    """Ours: the scores of the blocks by their runs."""
    blocks = [settings.tokens(b) for b in range(len(reading.vectors[index]))]
    heads = range(w.query_heads)
    keys = [reading.keys[index][key_head(w, h)] for h in heads]
    of_heads = [([query[h] for query in queries], keys[h]) for h in heads]
    return run_scores(of_heads, blocks, settings.run) if blocks else []


def by_score(scores: list[float]) -> list[int]:
    """Blocks, the highest score first; ours: of equal ones the earlier first."""
    return sorted(range(len(scores)), key=lambda b: (-scores[b], b))


def key_head(w: Weights, h: int) -> int:
    """The key/value head that query head h belongs to."""
    return h // (w.query_heads // w.key_heads)


# ---- 3.3 One distance for all that is far


def local_logits(
    w: Weights, keys: list[np.ndarray], query: np.ndarray, start: int, p: int
) -> np.ndarray:
    """Logits of the token at p for the tokens start..p, at their true distances."""
    cos, sin = rotary_table(w, p - start + 1)
    turned = rotate(query, cos[p - start], sin[p - start])
    logits = [
        np.sum(turned * rotate(keys[j], cos[j - start], sin[j - start]))
        for j in range(start, p + 1)
    ]
    return np.array(logits) / np.sqrt(w.head_dim)


def logits_in_order(
    w: Weights, keys: list[np.ndarray], query: np.ndarray, far: list[int], local: int
) -> np.ndarray:
    """Ours: logits for far tokens at positions from 0 on, the query `local` behind the last."""
    place = len(far) - 1 + local
    cos, sin = rotary_table(w, place + 1)
    turned = rotate(query, cos[place], sin[place])
    logits = [np.sum(turned * rotate(keys[j], cos[i], sin[i])) for i, j in enumerate(far)]
    return np.array(logits) / np.sqrt(w.head_dim)


def far_logits(
    w: Weights, keys: list[np.ndarray], query: np.ndarray, far: list[int], distance: int
) -> np.ndarray:
    """Logits for far tokens, as if each stood `distance` before the query."""
    cos, sin = rotary_table(w, distance + 1)
    turned = rotate(query, cos[distance], sin[distance])
    logits = [np.sum(turned * rotate(keys[j], cos[0], sin[0])) for j in far]
    return np.array(logits) / np.sqrt(w.head_dim)


def attend_far_and_local(
    w: Weights,
    reading: Reading,
    index: int,
    queries: Queries,
    far: list[int],
    start: int,
    distance: int | None,
) -> Attended:
    """One softmax over the far tokens and the local ones up to the query itself."""
    total = len(reading.keys[index][0])
    output: list[list[np.ndarray]] = []
    for t in range(len(queries)):
        p = total - len(queries) + t
        output.append([])
        for h in range(w.query_heads):
            keys = reading.keys[index][key_head(w, h)]
            values = reading.values[index][key_head(w, h)]
            if distance is None:
                before = logits_in_order(w, keys, queries[t][h], far, p - start + 1)
            else:
                before = far_logits(w, keys, queries[t][h], far, distance)
            local = local_logits(w, keys, queries[t][h], start, p)
            logits = np.concatenate([before, local])
            seen = [*far, *range(start, p + 1)]
            output[t].append(softmax(logits) @ np.array([values[j] for j in seen]))
    return Attended(output, [])


# ---- ours: which document tokens an answer rests on


def block_votes(reading: Reading, asked: Reading) -> dict[int, int]:
    """How many layers retrieved each block, in the chunks of a question."""
    total: dict[int, int] = {}
    for (chunk, _), retrieval in asked.retrievals.items():
        if chunk >= reading.chunks:
            for block in retrieval.blocks:
                total[block] = total.get(block, 0) + 1
    return total
