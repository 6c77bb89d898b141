"""Ltri-LLM, token by token and head by head in float64.

The tests' truth: slow, literal, and independent of the code that it judges. Section, equation and
appendix numbers are the paper's; what the paper leaves open is marked "ours". It knows whole inputs
as lists of token ids, and nothing of files, dtypes or devices.

What is printed otherwise than it is done here:

* (5) subtracts P * theta inside the sum over all columns up to N and all rows from 0: above the
  diagonal both A and P are 0, so that the sum is that over the triangle alone, as in (4).
* (8) runs m over the M vectors of the memory and n over the N of the query, and then takes the
  query's vector m and the memory's vector n. All pairs are meant, and all pairs are taken.
* (9) has Top over what is sorted; blocks are sorted by their best pair of spans, and the first K
  are taken.
"""

import copy
import math
from collections.abc import Iterable
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

__all__ = ["Block", "Settings", "Weights", "feed", "read"]

Rows = list[np.ndarray]


@dataclass(frozen=True)
class Settings:
    """Ltri-LLM's numbers (4, appendix B), in tokens but where it is said."""

    first: int  # 128 initial tokens
    local: int  # 4,096; ours: at least, the chunk being read is part of them
    block: int  # 128
    chunk: int  # 512; the first chunk is first + local
    retrieved: int  # 16 blocks
    spans: int  # 4 of a block, at most
    vectors: int  # 12 of a block, at most
    theta: tuple[float, ...]  # of each layer, a quantile
    phi: tuple[float, ...]  # of each layer
    lam: tuple[float, ...]  # of each layer
    ratio: str  # row, column or both
    heads: dict[int, tuple[int, float]]  # layer -> its best retrieval head and copy score
    representative: int  # 4 keys that InfLLM takes of a block
    run: int = 0  # tokens of a run; 0: the paper's index (`runs_transcription.py` has ours)
    in_order: bool = False  # ours: far tokens one after another, not at one distance


@dataclass(frozen=True)
class Span:
    """A span, tokens x to y counted within its block or part, and what stands for it."""

    x: int
    y: int
    tokens: list[int]  # positions in the input, ascending
    vectors: Rows


@dataclass(frozen=True)
class Block:
    """A block that left the local window, in one layer.

    Attributes:
        start: its first token.
        spans: best first; index vectors are keys of the layer's retrieval head.
        mean: [query head], InfLLM's vectors.
    """

    start: int
    spans: list[Span]
    mean: Rows


@dataclass(frozen=True)
class Retrieval:
    """What one layer retrieved for one chunk.

    Attributes:
        blocks: ascending.
        own: those that the layer found by itself.
        votes: of every block.
        asking: the chunk's own spans.
    """

    blocks: list[int]
    own: list[int]
    votes: list[float]
    asking: list[Span]


@dataclass
class Reading:
    """All that was read: document, and after `feed` question and answer too.

    Attributes:
        keys, values: [layer][key/value head][token], position-free.
        received: [layer][token], an array (query heads,): attention received while local, (6).
        maps: [layer][token][query head], its attention to the tokens of its block up to itself.
        blocks: [layer], those that left the local window.
        retrievals: (chunk, layer) to what was retrieved; absent where there was no block.
    """

    keys: list[list[Rows]]
    values: list[list[Rows]]
    received: list[Rows]
    maps: list[list[Rows]]
    blocks: list[list[Block]]
    tokens: int = 0
    chunks: int = 0
    retrievals: dict[tuple[int, int], Retrieval] = field(default_factory=dict)


# ---- 3.4 The framework: reading, then the question, then token by token


def read(w: Weights, ids: list[int], s: Settings) -> Reading:
    """Read prefix and document; the last chunk may be shorter than the others."""
    layers, heads = range(len(w.layers)), range(w.key_heads)
    reading = Reading(
        keys=[[[] for _ in heads] for _ in layers],
        values=[[[] for _ in heads] for _ in layers],
        received=[[] for _ in layers],
        maps=[[] for _ in layers],
        blocks=[[] for _ in layers],
    )
    start, end = 0, s.first + s.local
    while start < len(ids):
        encode(w, reading, ids[start:end], s)
        start, end = end, end + s.chunk
    return reading


def feed(
    w: Weights, reading: Reading, ids: list[int], s: Settings, answering: bool = False
) -> tuple[np.ndarray, Reading]:
    """Read a question, or one generated token (`answering`), after what was read before.

    Persistent mechanism (3.5): a generated token retrieves nothing, and attends to the blocks that
    were retrieved last.

    Returns:
        The logits after the last token, (vocabulary,), and the reading after it. The one that was
        given stays as it was.
    """
    after = copy.deepcopy(reading)
    hidden: Rows = []
    for start in range(0, len(ids), s.local):  # all query tokens in the last chunk (4)
        hidden = encode(w, after, ids[start : start + s.local], s, answering)
    return w.lm_head @ rms_norm(hidden[-1], w.norm, w.eps), after


def encode(
    w: Weights, reading: Reading, part: list[int], s: Settings, answering: bool = False
) -> Rows:
    """One chunk through every layer; `reading` grows by it. Returns the last layer's output."""
    hidden = [w.embedding[i] for i in part]
    total = reading.tokens + len(part)
    ballots: list[tuple[list[int], float]] = []  # what layers below found, and their heads' scores
    similar: list[float] = []  # the latest similarities
    for index, layer in enumerate(w.layers):
        states = states_of(w, layer, hidden)
        queries = [x.q for x in states]
        keys, values = reading.keys[index], reading.values[index]
        for g in range(w.key_heads):
            keys[g] += [x.k[g] for x in states]
            values[g] += [x.v[g] for x in states]
        if w.window is not None:  # ours: a layer with a sliding window retrieves nothing
            seen = range(max(0, reading.tokens - w.window), total)
            attended = attend(w, queries, cut(keys, seen), cut(values, seen))
            hidden = after_attention(w, layer, hidden, attended)
            continue
        start = leave(w, reading, index, total, s)
        near = local_attention(w, reading, index, queries, start)
        remember(reading, index, near, start, s)
        if reading.blocks[index]:
            if answering:
                blocks = latest(reading, index)
            else:
                found = retrieve(w, reading, index, queries, near, ballots, similar, s)
                reading.retrievals[reading.chunks, index] = found
                blocks = found.blocks
        else:
            blocks = []
        if total <= s.first + s.local:  # nothing is far: the model's own attention
            attended = attend(w, queries, keys, values)
        else:
            attended = far_and_near(w, reading, index, queries, start, blocks, s)
        hidden = after_attention(w, layer, hidden, attended)
    reading.tokens = total
    reading.chunks += 1
    return hidden


def cut(heads: list[Rows], tokens: range) -> list[Rows]:
    """These tokens of each head."""
    return [[head[j] for j in tokens] for head in heads]


def latest(reading: Reading, index: int) -> list[int]:
    """The blocks that this layer retrieved last; none where it never did."""
    chunks = [chunk for chunk, layer in reading.retrievals if layer == index]
    return reading.retrievals[max(chunks), index].blocks if chunks else []


def leave(w: Weights, reading: Reading, index: int, total: int, s: Settings) -> int:
    """Let whole blocks leave the local window; returns its first token.

    Ours: as many leave as leave at least `local` tokens, before the chunk attends.
    """
    while s.first + (len(reading.blocks[index]) + 1) * s.block <= total - s.local:
        start = s.first + len(reading.blocks[index]) * s.block
        reading.blocks[index].append(indexed(w, reading, index, start, s))
    return min(total, s.first + len(reading.blocks[index]) * s.block)


def local_attention(
    w: Weights, reading: Reading, index: int, queries: list[Rows], start: int
) -> list[Rows]:
    """(1) to (3) over the local tokens from `start` on: [t][h], over these up to the query's own.

    Queries before `start` have none.
    """
    total = len(reading.keys[index][0])
    cos, sin = rotary_table(w, max(1, total - start))
    turned = rotated(reading.keys[index], start, cos, sin)
    weights: list[Rows] = []
    for t, query in enumerate(queries):
        place = total - len(queries) + t - start
        weights.append([])
        for h in range(w.query_heads):
            if place < 0:
                weights[t].append(np.zeros(0))
                continue
            q = rotate(query[h], cos[place], sin[place])
            logits = turned[key_head(w, h)][: place + 1] @ q / math.sqrt(w.head_dim)
            weights[t].append(softmax(logits))
    return weights


def rotated(heads: list[Rows], start: int, cos: np.ndarray, sin: np.ndarray) -> Rows:
    """[key/value head] keys (n, D) of the tokens from `start` on, at positions from 0 on."""
    every = [[rotate(k, cos[j], sin[j]) for j, k in enumerate(head[start:])] for head in heads]
    return [np.array(keys) for keys in every]


def key_head(w: Weights, h: int) -> int:
    """The key/value head that query head h belongs to."""
    return h // (w.query_heads // w.key_heads)


def remember(reading: Reading, index: int, near: list[Rows], start: int, s: Settings) -> None:
    """Append a chunk to the local attention map (3.4, third step), and sum what it gave (6)."""
    received, maps = reading.received[index], reading.maps[index]
    before = len(received)
    for t, heads in enumerate(near):
        p = before + t
        received.append(np.zeros(len(heads)))
        block = s.first + (p - s.first) // s.block * s.block  # the query's own begins here
        maps.append([weights[block - start :] if p >= s.first else None for weights in heads])
        for h, weights in enumerate(heads):
            for j, weight in enumerate(weights):
                received[start + j][h] += weight


def far_and_near(
    w: Weights,
    reading: Reading,
    index: int,
    queries: list[Rows],
    start: int,
    blocks: list[int],
    s: Settings,
) -> Attended:
    """Attention to [initial | retrieved | local]: one softmax.

    Ours: initial and retrieved tokens at one distance, `local`; local ones at their true distances.
    """
    far = list(range(s.first))
    for b in blocks:
        far += range(s.first + b * s.block, s.first + (b + 1) * s.block)
    total = len(reading.keys[index][0])
    cos, sin = rotary_table(w, max(total - start, s.local + 1))
    turned = rotated(reading.keys[index], start, cos, sin)
    output: list[Rows] = []
    for t, query in enumerate(queries):
        place = total - len(queries) + t - start
        output.append([])
        for h in range(w.query_heads):
            keys = reading.keys[index][key_head(w, h)]
            values = reading.values[index][key_head(w, h)]
            if s.in_order:
                ahead, sine = rotary_table(w, len(far) + place + 1)
                q = rotate(query[h], ahead[-1], sine[-1])
                logits = [q @ rotate(keys[j], ahead[i], sine[i]) for i, j in enumerate(far)]
            else:
                q = rotate(query[h], cos[s.local], sin[s.local])
                logits = [q @ rotate(keys[j], cos[0], sin[0]) for j in far]
            q = rotate(query[h], cos[place], sin[place])
            logits += list(turned[key_head(w, h)][: place + 1] @ q)
            share = softmax(np.array(logits) / math.sqrt(w.head_dim))
            seen = [values[j] for j in [*far, *range(start, start + place + 1)]]
            output[t].append(share @ np.array(seen))
    return Attended(output, [])


# ---- 3.2 Spans


def spans_of(block: list[np.ndarray], theta: float, phi: float, most: int) -> list[tuple[int, int]]:
    """The spans x..y of a part of the input, best first.

    Args:
        block: of each query head its map, (N, N), lower triangular.
        theta: quantile of the entries on and below the diagonal that is subtracted.
        phi: intersection over union above which a span is suppressed.
        most: spans.
    """
    N = len(block[0])
    entries = sorted(head[i, j] for head in block for i in range(N) for j in range(i + 1))
    threshold = entries[max(1, math.ceil(theta * len(entries))) - 1]
    scores = {(x, y): score(block, threshold, x, y) for y in range(N) for x in range(y + 1)}
    candidates = []
    for diagonal in range(2 * N - 1):  # appendix E
        on = [(x, y) for x, y in scores if x + y == diagonal]
        candidates.append(min(on, key=lambda span: (-scores[span], span[0])))
    # Greedy suppression; ours: of equal scores the earlier x, then the shorter span.
    order = sorted(candidates, key=lambda span: (-scores[span], span[0], span[1] - span[0]))
    kept: list[tuple[int, int]] = []
    for span in order:
        apart = all(overlap(span, other) <= phi for other in kept)
        if scores[span] > 0 and len(kept) < most and apart:
            kept.append(span)
    return kept


def score(block: list[np.ndarray], threshold: float, x: int, y: int) -> float:
    """(5): over the triangle of the span, which is what is left of rows 0..y and columns x..N."""
    total = 0.0
    for head in block:
        for i in range(x, y + 1):
            for j in range(x, i + 1):
                total += head[i, j] - threshold
    return total


def overlap(one: tuple[int, int], other: tuple[int, int]) -> float:
    """Intersection over union of the squares of two spans, [x, y + 1) both ways."""
    side = max(0, min(one[1], other[1]) + 1 - max(one[0], other[0]))
    areas = (one[1] + 1 - one[0]) ** 2 + (other[1] + 1 - other[0]) ** 2
    return side**2 / (areas - side**2)


# ---- 3.3.2 Dynamic span index vectors


def counts_of(
    block: list[np.ndarray], spans: list[tuple[int, int]], lam: float, ratio: str, most: int
) -> list[int]:
    """How many vectors each span gets; ours: one at least, and what is beyond that scaled down."""
    N = len(block[0])
    counts = []
    for x, y in spans:
        inside = mass(block, range(x, y + 1), range(x, y + 1))
        around = 0.0
        if ratio in ("row", "row+column"):
            around += mass(block, range(x, y + 1), range(x))
        if ratio in ("column", "row+column"):
            around += mass(block, range(y + 1, N), range(x, y + 1))
        r = inside / (inside + around)
        counts.append(max(1, round((y + 1 - x) / math.exp(lam * (1 - r)))))  # (7)
    if sum(counts) > most:
        more, room = sum(counts) - len(counts), most - len(counts)
        counts = [1 + (count - 1) * room // more for count in counts]
    return counts


def mass(block: list[np.ndarray], rows: range, columns: range) -> float:
    """Attention of these rows to these columns, all heads."""
    return float(sum(head[i, j] for head in block for i in rows for j in columns if j <= i))


def vectors_of(
    spans: list[tuple[int, int]],
    counts: list[int],
    received: list[float],
    vectors: Rows,
    start: int,
) -> list[Span]:
    """The tokens of each span that received most attention stand for it; ours: ties, the earlier.

    Args:
        spans, counts: of a block.
        received: by each of its tokens.
        vectors: of each of its tokens.
        start: its first token's position in the input.
    """
    found = []
    for (x, y), count in zip(spans, counts, strict=True):
        best = sorted(sorted(range(x, y + 1), key=lambda j: (-received[j], j))[:count])
        found.append(Span(x, y, [start + j for j in best], [vectors[j] for j in best]))
    return found


def indexed(w: Weights, reading: Reading, index: int, start: int, s: Settings) -> Block:
    """First step of 3.4: what is kept to find a block again."""
    tokens = range(start, start + s.block)
    received = reading.received[index]
    mean = []
    for h in range(w.query_heads):
        best = sorted(tokens, key=lambda j: (-received[j][h], j))[: s.representative]
        mean.append(sum(reading.keys[index][key_head(w, h)][j] for j in best) / len(best))
    spans: list[Span] = []
    if index in s.heads:
        block = map_of(w, reading.maps[index], tokens, start)
        own = spans_of(block, s.theta[index], s.phi[index], s.spans)
        counts = counts_of(block, own, s.lam[index], s.ratio, s.vectors)
        keys = reading.keys[index][key_head(w, s.heads[index][0])]
        sums = [float(np.sum(received[j])) for j in tokens]
        spans = vectors_of(own, counts, sums, [keys[j] for j in tokens], start)
    return Block(start, spans, mean)


def map_of(w: Weights, maps: list[Rows], tokens: range, start: int) -> list[np.ndarray]:
    """Of each query head the attention of these tokens to one another; their block's begins at
    `start`."""
    block = [np.zeros((len(tokens), len(tokens))) for _ in range(w.query_heads)]
    for i, token in enumerate(tokens):
        for h in range(w.query_heads):
            for j in range(i + 1):
                block[h][i, j] = maps[token][h][tokens[j] - start]
    return block


# ---- 3.4, second step, and 3.5: Retrieval


def retrieve(
    w: Weights,
    reading: Reading,
    index: int,
    queries: list[Rows],
    near: list[Rows],
    ballots: list[tuple[list[int], float]],
    similar: list[float],
    s: Settings,
) -> Retrieval:
    """The blocks that a chunk attends to; layers with a retrieval head add a ballot."""
    blocks, asking, own = reading.blocks[index], [], []
    if index in s.heads:
        if s.run:
            similar[:] = by_runs(w, reading, index, queries, [s.heads[index][0]], s)
        else:
            asking = asked(w, reading, index, queries, near, s)
            similar[:] = [block_similarity(block, asking) for block in blocks]
        own = ranked(similar, [0.0] * len(blocks))[: s.retrieved]
        ballots.append((own, s.heads[index][1]))
    if not ballots:  # ours: InfLLM's vectors below the first retrieval layer
        scores = [infllm_score(w, block, queries) for block in blocks]
        if s.run:
            scores = by_runs(w, reading, index, queries, range(w.query_heads), s)
        best = sorted(ranked(scores, [0.0] * len(blocks))[: s.retrieved])
        return Retrieval(best, best, [0.0] * len(blocks), [])
    votes = [sum(x for found, x in ballots if b in found) for b in range(len(blocks))]
    return Retrieval(sorted(ranked(similar, votes)[: s.retrieved]), own, votes, asking)


def by_runs(
    w: Weights, reading: Reading, index: int, queries: list[Rows], heads: Iterable[int], s: Settings
) -> list[float]:
    """Ours: the scores of the blocks by their runs, as these query heads see them."""
    blocks = [range(block.start, block.start + s.block) for block in reading.blocks[index]]
    keys = reading.keys[index]
    of_heads = [([query[h] for query in queries], keys[key_head(w, h)]) for h in heads]
    return run_scores(of_heads, blocks, s.run)


def ranked(scores: list[float], votes: list[float]) -> list[int]:
    """Blocks, best first: by votes, then by the latest similarity; ours: then the earlier."""
    return sorted(range(len(scores)), key=lambda b: (-votes[b], -scores[b], b))


def asked(
    w: Weights, reading: Reading, index: int, queries: list[Rows], near: list[Rows], s: Settings
) -> list[Span]:
    """The chunk's spans; index vectors are queries of the layer's retrieval head.

    Ours: the chunk is divided where blocks meet, and what a token received counts within the chunk.
    If none of the parts has a span, each of them is one.
    """
    total, head = len(reading.keys[index][0]), s.heads[index][0]
    begin = total - len(queries)
    received = {p: 0.0 for p in range(begin, total)}
    for t, weights in enumerate(near):
        for h in range(w.query_heads):
            for back, weight in enumerate(reversed(weights[h])):
                if begin + t - back >= begin:
                    received[begin + t - back] += weight
    found: list[Span] = []
    whole: list[Span] = []
    for part in parts(begin, total, s):
        start = s.first + (part[0] - s.first) // s.block * s.block
        block = map_of(w, reading.maps[index], part, start)
        given = [received[p] for p in part]
        vectors = [queries[p - begin][head] for p in part]
        for spans, result in (
            (spans_of(block, s.theta[index], s.phi[index], s.spans), found),
            ([(0, len(part) - 1)], whole),
        ):
            counts = counts_of(block, spans, s.lam[index], s.ratio, s.vectors)
            result += vectors_of(spans, counts, given, vectors, part[0])
    return found or whole


def parts(begin: int, end: int, s: Settings) -> list[range]:
    """A chunk's tokens, divided where blocks of the input meet."""
    borders = [p for p in range(begin + 1, end) if (p - s.first) % s.block == 0]
    return [range(a, b) for a, b in zip([begin, *borders], [*borders, end], strict=True)]


def block_similarity(block: Block, asking: list[Span]) -> float:
    """What (9) sorts by: the block's best span with any of the chunk's; -inf without a span."""
    return max((similarity(own, span) for own in block.spans for span in asking), default=-np.inf)


def similarity(own: Span, asking: Span) -> float:
    """(8)"""
    return float(sum(q @ k for q in asking.vectors for k in own.vectors))


def infllm_score(w: Weights, block: Block, queries: list[Rows]) -> float:
    """InfLLM's: the chunk's mean query times the block's vector, summed over heads."""
    total = 0.0
    for h in range(w.query_heads):
        total += float(sum(query[h] for query in queries) / len(queries) @ block.mean[h])
    return total
