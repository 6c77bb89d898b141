"""StreamingLLM, H2O and TOVA over chunks, token by token and head by head in float64.

The tests' truth: slow, literal, and independent of the code that it judges. The published methods
evict after every token. Ours: a document is read in chunks and evicted after each whole one; a last
part of less than a chunk and the question are not evicted while they are read; then all of it is,
and again after each token of the answer. Keys stand at consecutive positions of the cache. Of equal
tokens the earlier one stays. A layer with a sliding window keeps its last `window` tokens.
"""

from dataclasses import dataclass, field

import numpy as np
from llama_transcription import (
    Attended,
    Weights,
    after_attention,
    attend,
    rms_norm,
    states_of,
)

__all__ = ["Settings", "State", "evict", "feed", "read", "survivors"]


@dataclass(frozen=True)
class Settings:
    """One method's numbers, in tokens."""

    method: str  # "streaming", "h2o" or "tova"
    budget: int  # all that a cache keeps
    chunk: int
    first: int = 0  # attention sinks of StreamingLLM
    queries: int | None = None  # of a chunk, whose attention H2O adds up; None: all


@dataclass
class Entry:
    """A kept token of one layer and key/value head."""

    position: int  # in the input
    key: np.ndarray  # position-free
    value: np.ndarray
    weight: float = 0.0  # H2O: attention so far; TOVA: attention of the last query


@dataclass
class State:
    """What was read, and what each layer and key/value head still keeps of it, in input order."""

    cache: list[list[list[Entry]]]
    seen: int = 0
    kept: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    evictions: int = 0

    def positions(self) -> list[list[list[int]]]:
        """[layer][key/value head]: positions in the input."""
        return [[[e.position for e in head] for head in layer] for layer in self.cache]


def read(w: Weights, ids: list[int], settings: Settings) -> State:
    """Read a whole input; `kept` has (chunk, layer, key/value head) to what stayed after it."""
    state = State([[[] for _ in range(w.key_heads)] for _ in w.layers])
    for start in range(0, len(ids), settings.chunk):
        part = ids[start : start + settings.chunk]
        feed(w, state, part, settings)
        if len(part) == settings.chunk:
            evict(w, state, settings)
    return state


def feed(w: Weights, state: State, ids: list[int], settings: Settings) -> np.ndarray:
    """Tokens attend to [what is kept | themselves]; the logits after the last of them."""
    hidden = [w.embedding[i] for i in ids]
    for index, layer in enumerate(w.layers):
        states = states_of(w, layer, hidden)
        heads = state.cache[index]
        for g in range(w.key_heads):
            for t, own in enumerate(states):
                heads[g].append(Entry(state.seen + t, own.k[g], own.v[g]))
        keys = [[entry.key for entry in head] for head in heads]
        values = [[entry.value for entry in head] for head in heads]
        attended = attend(w, [own.q for own in states], keys, values)
        weigh(w, heads, attended, settings)
        hidden = after_attention(w, layer, hidden, attended)
    state.seen += len(ids)
    return w.lm_head @ rms_norm(hidden[-1], w.norm, w.eps)


def weigh(w: Weights, heads: list[list[Entry]], attended: Attended, settings: Settings) -> None:
    """What each candidate weighs from now on."""
    tokens, group = len(attended.probability), w.query_heads // w.key_heads
    for g, head in enumerate(heads):
        for i, entry in enumerate(head):
            if settings.method == "h2o":  # the running sum, over the group's query heads
                counted = tokens if settings.queries is None else min(tokens, settings.queries)
                for t in range(tokens - counted, tokens):
                    for h in range(g * group, (g + 1) * group):
                        entry.weight += attended.probability[t][h][i]
            elif settings.method == "tova":  # the last query, mean over all heads of the layer
                last = [attended.probability[-1][h][i] for h in range(w.query_heads)]
                entry.weight = sum(last) / w.query_heads


def evict(w: Weights, state: State, settings: Settings) -> None:
    """Every layer and key/value head drops what is beyond the budget."""
    for index, heads in enumerate(state.cache):
        for g, head in enumerate(heads):
            if w.window is not None:
                heads[g] = head[max(0, len(head) - w.window) :]
            else:
                heads[g] = [head[i] for i in survivors(head, settings)]
            state.kept[state.evictions, index, g] = [entry.position for entry in heads[g]]
    state.evictions += 1


def survivors(head: list[Entry], settings: Settings) -> list[int]:
    """Indices of the entries that stay, ascending."""
    count, budget = len(head), settings.budget
    if count <= budget:
        return list(range(count))
    if settings.method == "streaming":
        always = [i for i in range(count) if head[i].position < settings.first]
    elif settings.method == "h2o":
        always = list(range(count - budget // 2, count))  # half of them recent
    else:
        always = []
    rest = [i for i in range(count) if i not in always]
    if settings.method == "streaming":
        rest.reverse()  # the latest first
    else:
        rest.sort(key=lambda i: (-head[i].weight, i))
    return sorted(always + rest[: budget - len(always)])
