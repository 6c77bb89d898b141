"""ReAttention, token by token and head by head in float64.

The tests' truth: slow, literal, and independent of the code that it judges. Section and algorithm
numbers are the paper's; what the paper leaves open is marked "ours". It knows whole inputs as lists
of token ids, and nothing of files, dtypes or devices.

Algorithms 1 and 2 (Appendix A) cannot run as printed. Line numbers are those of Algorithm 1;
Algorithm 2 has the same faults but the first, in its own lines 13 to 27. Put right here by the text
of 2.1 and 2.2:

* 5 empties the cache at every chunk. It is emptied once, before the loop.
* 22 takes the top k along the first dimension, which counts queries. They are taken among the keys.
* 24 and 26 swap the slices: what they cut out is all but the first tokens and all but the last.
  The window begins with the first `first` tokens and ends with the last `local`.
* 25 looks up in the whole cache what was counted from the start of the middle. `first` is added.
* 21 to 25 have neither votes nor k' nor spans, which 2.1 describes, and no shared key/value heads.
* 34 has no causal mask. A chunk's token sees no later token.
* 21 takes a top k of nothing while there is no middle. Nothing is selected then.
* 35 and the decoder's last step leave out projections, norms and residuals. The model's own stay.

The authors' published code differs from the paper, and this file follows it in none of these: its
fused kernel offers one candidate from each block of 128 keys, so that the second of two good
neighbours is lost; its decoding pairs query head h with key/value head h % G; it moves the start of
the local part so that the middle is whole blocks; its votes' ties fall as they may.
"""

from dataclasses import dataclass, field

import numpy as np
from llama_transcription import (
    Weights,
    after_attention,
    attend,
    rms_norm,
    states_of,
)

__all__ = [
    "Reading",
    "Selection",
    "Settings",
    "Weights",
    "feed",
    "passage_votes",
    "read",
]

Heads = list[list[np.ndarray]]  # [key/value head][token of the input], position-free


@dataclass(frozen=True)
class Settings:
    """ReAttention's numbers (3.1), in tokens but for `k` and `voted`."""

    first: int  # 32: the global part, of the whole input
    local: int  # 4,096; ours: the chunk being read is part of it
    chunk: int  # ours: 512; the first chunk is first + local (Algorithm 1, line 1)
    k: int  # 4: keys that a query head of one token chooses
    voted: int  # 127, the paper's k': keys that a layer takes; 0 takes none
    span: int  # 32: what a voted key grows to

    def __post_init__(self) -> None:
        if self.chunk > self.local:
            raise ValueError(f"chunks of {self.chunk} tokens exceed a local part of {self.local}")


@dataclass(frozen=True)
class Selection:
    """What one layer chose from the middle for one chunk; tokens are positions in the input.

    Attributes:
        tokens: the selected ones, ascending.
        winners: the voted keys that grew into them, most votes first.
        votes: every key that a query chose, to how often.
        gap: by how much a score would have to change, at the least, to turn a choice over: the
            distance from the last key that is in to the first that is out, at every query's top k
            and, where votes are equal, at the cut between voted keys. Infinite if all are in.
        asking: queries of the chunk.
    """

    tokens: list[int]
    winners: list[int]
    votes: dict[int, int]
    gap: float
    asking: int


@dataclass
class Reading:
    """All that was read: document, and after `feed` question and answer too.

    Attributes:
        keys: [layer][key/value head][token], of every token, position-free (2.2).
        values: likewise.
        tokens: how many were read.
        chunks: in how many chunks.
        selections: (chunk, layer) to what was selected; absent where there was no middle.
    """

    keys: list[Heads]
    values: list[Heads]
    tokens: int = 0
    chunks: int = 0
    selections: dict[tuple[int, int], Selection] = field(default_factory=dict)


# ---- Appendix A: reading, then the question, then token by token


def read(w: Weights, ids: list[int], settings: Settings) -> Reading:
    """Read prefix and document (Algorithm 1); the last chunk may be shorter than the others."""
    reading = Reading(
        keys=[[[] for _ in range(w.key_heads)] for _ in w.layers],
        values=[[[] for _ in range(w.key_heads)] for _ in w.layers],
    )
    start, end = 0, settings.first + settings.local
    while start < len(ids):
        encode(w, reading, ids[start:end], settings)
        start, end = end, end + settings.chunk
    return reading


def feed(
    w: Weights, reading: Reading, ids: list[int], settings: Settings
) -> tuple[np.ndarray, Reading]:
    """Read a question, or one generated token (Algorithm 2), after what was read before.

    Ours: a question starts a chunk of its own and is read in chunks of at most `chunk`, with
    selection as in the document.

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
        tokens=reading.tokens,
        chunks=reading.chunks,
        selections=dict(reading.selections),
    )


def encode(w: Weights, reading: Reading, part: list[int], settings: Settings) -> list[np.ndarray]:
    """One chunk through every layer; `reading` grows by it. Returns the last layer's output."""
    hidden = [w.embedding[i] for i in part]
    for index, layer in enumerate(w.layers):
        states = states_of(w, layer, hidden)
        queries = [s.q for s in states]
        keys, values = reading.keys[index], reading.values[index]
        for g in range(w.key_heads):
            keys[g] += [s.k[g] for s in states]
            values[g] += [s.v[g] for s in states]
        seen = window(w, reading, index, queries, settings)
        # (3): positions 0, 1, ... over the window, and the chunk's tokens are its last.
        window_keys = [[keys[g][j] for j in seen] for g in range(w.key_heads)]
        window_values = [[values[g][j] for j in seen] for g in range(w.key_heads)]
        attended = attend(w, queries, window_keys, window_values)
        hidden = after_attention(w, layer, hidden, attended)
    reading.tokens += len(part)
    reading.chunks += 1
    return hidden


def window(
    w: Weights, reading: Reading, index: int, queries: list[list[np.ndarray]], settings: Settings
) -> list[int]:
    """The tokens that one layer attends to: [global | selected | local], (1) and (3).

    Ours: a layer with a sliding window selects nothing; before the chunk it has the last `window`
    tokens, and `attend` lets each token see its own window of these.
    """
    total = reading.tokens + len(queries)
    if w.window is not None:
        return list(range(max(0, reading.tokens - w.window), total))
    middle = range(settings.first, total - settings.local)
    if not middle:
        return list(range(total))
    selection = select(w, queries, reading.keys[index], middle, settings)
    reading.selections[reading.chunks, index] = selection
    return [*range(settings.first), *selection.tokens, *range(total - settings.local, total)]


# ---- 2.1 Full-context cache selection


def select(
    w: Weights, queries: list[list[np.ndarray]], keys: Heads, middle: range, settings: Settings
) -> Selection:
    """What all heads of a layer take from the middle for the chunk whose queries are given, [t][h].

    The whole middle lies before the chunk, which is part of the local tokens: no mask is needed.
    """
    candidates = [np.array([keys[g][j] for j in middle]) for g in range(w.key_heads)]
    votes: dict[int, int] = {}
    best: dict[int, float] = {}
    gaps: list[float] = []
    for t in range(len(queries)):
        for h in range(w.query_heads):
            scores = products(queries[t][h], candidates[key_head(w, h)])  # (2), position-free
            order = top_keys(scores)
            for i in order[: settings.k]:
                j = middle[i]
                votes[j] = votes.get(j, 0) + 1
                best[j] = max(best.get(j, -np.inf), scores[i])
            if settings.k < len(order):
                gaps.append(scores[order[settings.k - 1]] - scores[order[settings.k]])
    ranked = by_votes(votes, best)
    winners, losers = ranked[: settings.voted], ranked[settings.voted :]
    if winners and losers and votes[winners[-1]] == votes[losers[0]]:
        gaps.append(best[winners[-1]] - best[losers[0]])
    tokens = grown(winners, middle, settings.span)
    return Selection(tokens, winners, votes, float(min(gaps, default=np.inf)), len(queries))


def key_head(w: Weights, h: int) -> int:
    """The key/value head that query head h belongs to."""
    return h // (w.query_heads // w.key_heads)


def products(query: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """q.k of one query with every key, (n,). Summed alike in each row: equal keys tie exactly."""
    return np.sum(keys * query, axis=1)


def top_keys(scores: np.ndarray) -> list[int]:
    """Indices, highest score first; ours: of equal ones the earlier first."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))


def by_votes(votes: dict[int, int], best: dict[int, float]) -> list[int]:
    """Keys that got a vote, most votes first.

    Ours: of equal ones first the one with the higher best score (the highest with which it was
    chosen), then the earlier.
    """
    return sorted(votes, key=lambda j: (-votes[j], -best[j], j))


def grown(winners: list[int], middle: range, span: int) -> list[int]:
    """The winners and their neighbours, -16..+15 for a span of 32, each once, ascending.

    Ours: the spans end where the middle ends.
    """
    tokens: set[int] = set()
    for j in winners:
        for token in range(j - span // 2, j - span // 2 + span):
            if token in middle:
                tokens.add(token)
    return sorted(tokens)


# ---- ours: which document tokens an answer rests on


def passage_votes(
    reading: Reading, asked: Reading, answered: Reading, steps: int = 32
) -> dict[int, float]:
    """Votes for the tokens of the input as read, summed over layers, a chunk's mean of its tokens.

    Counted are those of the question's chunks and of the first `steps` decoding steps, for
    whichever keys: those that lost in their layer too.

    Args:
        reading: after the document.
        asked: after the question.
        answered: after the generated tokens.
        steps: decoding steps that count.
    """
    total: dict[int, float] = {}
    end = min(asked.chunks + steps, answered.chunks)
    for (chunk, _), selection in answered.selections.items():
        if reading.chunks <= chunk < end:
            for j, count in selection.votes.items():
                if j < reading.tokens:
                    total[j] = total.get(j, 0) + count / selection.asking
    return total
