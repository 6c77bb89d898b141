"""RaaS and Quest, page by page and head by head in float64.

The tests' truth: slow, literal, and independent of the code that it judges. Sections of RaaS are
marked R, those of Quest Q; what they leave open is marked "ours". It knows prompts and answers as
lists of token ids, and nothing of files, dtypes or devices.

What both leave open, and is settled here:

* Q 3.3 has pages for each head of a model whose heads all have keys of their own. Where query heads
  share keys, a page is worth the most that any of them gives it.
* R 3.2: which tokens get the newest stamp is said by a share of the attention (`alpha`), or by a
  part of the tokens: half of the pages that are held, rounded up, equal ones from the earliest on.
* R 3.2 evicts "when the cache is full": here when a page would begin and there is no room for it.
  Of equally old pages the earliest goes. The page that gets tokens always has the newest stamp.
* R 3.2 keeps the prompt: its last page is kept as it is, and the answer begins a page of its own.
* Where an answer would pass the trained window: the tokens that are held stand at consecutive
  positions from there on.
* Both: with Quest for the prompt and RaaS for the answer, only the answer's pages are stamped, and
  the prompt's last page is always chosen, as Quest always chooses the last.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from llama_transcription import (
    LayerWeights,
    States,
    Weights,
    after_attention,
    attend,
    rms_norm,
    rotary_table,
    rotate,
    softmax,
    states_of,
)

__all__ = ["Page", "Settings", "Step", "Weights", "begin", "decode", "recalled"]

PAGE = 16  # R 3.3, Q 4.1


@dataclass(frozen=True)
class Settings:
    """What is decoded with, in pages.

    Attributes:
        quest: pages that are chosen; None: all that are held are attended to.
        raas: pages that are held; None: all stay.
        alpha: share that is worth a stamp (R 3.2); None: half of the pages.
        window: tokens that the model was trained on.
    """

    quest: int | None
    raas: int | None
    alpha: float | None = None
    window: int = 1 << 20


@dataclass
class Page:
    """Up to 16 tokens of one layer and key/value head (R 3.3)."""

    number: int
    keys: list[np.ndarray] = field(default_factory=list)  # position-free
    values: list[np.ndarray] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)  # in the whole text
    stamp: int = 0
    prompt: bool = True


@dataclass
class Step:
    """What one token did, by (layer, key/value head).

    Attributes:
        attended: numbers of the pages that it attended to.
        stamps: stamps of the pages that are held, by number.
        evicted: the page that gave way to the token's own.
        gap: by how much a score would have to change, at the least, to change a choice.
    """

    attended: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    stamps: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    evicted: dict[tuple[int, int], int] = field(default_factory=dict)
    gap: float = math.inf
    logits: np.ndarray | None = None


Cache = list[list[list[Page]]]  # [layer][key/value head], in the order of the text


def begin(w: Weights, ids: list[int]) -> Cache:
    """Read a prompt with full attention, and cut what was read into pages."""
    hidden, cache = [w.embedding[i] for i in ids], []
    for layer in w.layers:
        states = states_of(w, layer, hidden)
        keys = [[s.k[g] for s in states] for g in range(w.key_heads)]
        values = [[s.v[g] for s in states] for g in range(w.key_heads)]
        cache.append([paged(keys[g], values[g]) for g in range(w.key_heads)])
        hidden = after_attention(w, layer, hidden, attend(w, [s.q for s in states], keys, values))
    return cache


def paged(keys: list[np.ndarray], values: list[np.ndarray]) -> list[Page]:
    pages = []
    for number, start in enumerate(range(0, len(keys), PAGE)):
        end = min(start + PAGE, len(keys))
        positions = list(range(start, end))
        pages.append(Page(number, keys[start:end], values[start:end], positions))
    return pages


def decode(w: Weights, cache: Cache, tokens: list[int], settings: Settings) -> list[Step]:
    """Read an answer, token by token; `cache` grows and shrinks by it."""
    seen = sum(len(page.keys) for page in cache[0][0])
    return [step(w, cache, token, seen + n, settings) for n, token in enumerate(tokens)]


def recalled(
    w: Weights,
    keys: list[list[list[np.ndarray]]],
    values: list[list[list[np.ndarray]]],
    tokens: list[int],
    settings: Settings,
) -> list[Step]:
    """The same over position-free keys and values [layer][head][token] that a method kept.

    Ours: pages are chosen and stamped by position-free keys, and what is attended to stands at
    consecutive positions.
    """
    cache = [[paged(k, v) for k, v in zip(*x, strict=True)] for x in zip(keys, values, strict=True)]
    seen = len(keys[0][0])
    return [step(w, cache, token, seen + n, settings, True) for n, token in enumerate(tokens)]


def step(
    w: Weights, cache: Cache, token: int, seen: int, settings: Settings, free: bool = False
) -> Step:
    """One token through every layer; it is the text's token number `seen`."""
    done, hidden = Step(), [w.embedding[token]]
    for index, layer in enumerate(w.layers):
        states = states_of(w, layer, hidden)[0]
        heads: list[np.ndarray] = []
        for g in range(w.key_heads):
            make_room(cache[index][g], settings, done, (index, g))
            append(cache[index][g], states, g, seen, settings)
            heads += attended(w, cache[index][g], states, g, seen, settings, done, (index, g), free)
        hidden = output(w, layer, hidden, heads)
    done.logits = w.lm_head @ rms_norm(hidden[0], w.norm, w.eps)
    return done


def output(
    w: Weights, layer: LayerWeights, hidden: list[np.ndarray], heads: list[np.ndarray]
) -> list[np.ndarray]:
    class Attended:
        output = (heads,)

    return after_attention(w, layer, hidden, Attended)


def make_room(pages: list[Page], settings: Settings, done: Step, where: tuple[int, int]) -> None:
    """R 3.2, appendix B: the page with the earliest time goes, and never one of the prompt."""
    if settings.raas is None or begins_page(pages, settings) is False:
        return
    held = [page for page in pages if settings.quest is None or not page.prompt]
    if len(held) < settings.raas:
        return
    oldest = None
    for page in pages:
        if not page.prompt and (oldest is None or page.stamp < oldest.stamp):
            oldest = page
    assert oldest is not None
    pages.remove(oldest)
    done.evicted[where] = oldest.number


def begins_page(pages: list[Page], settings: Settings) -> bool:
    last = pages[-1]
    return len(last.keys) == PAGE or (settings.raas is not None and last.prompt)


def append(pages: list[Page], states: States, g: int, seen: int, settings: Settings) -> None:
    if begins_page(pages, settings):
        pages.append(Page(pages[-1].number + 1, prompt=False))
    pages[-1].keys.append(states.k[g])
    pages[-1].values.append(states.v[g])
    pages[-1].positions.append(seen)
    pages[-1].stamp = seen + 1  # R appendix B: time is the number of tokens


def attended(
    w: Weights,
    pages: list[Page],
    states: States,
    g: int,
    seen: int,
    settings: Settings,
    done: Step,
    where: tuple[int, int],
    free: bool,
) -> list[np.ndarray]:
    """What the query heads of one key/value head get."""
    group = w.query_heads // w.key_heads
    queries = [states.q[h] for h in range(g * group, (g + 1) * group)]
    cos, sin = table(w, seen // 256 * 256 + 256)
    places = {id(page): page.positions for page in pages}
    if seen >= settings.window and not free:
        places = consecutive(pages)
    own = places[id(pages[-1])][-1]
    turned = {
        id(page): np.array(page.keys) if free else rotated(page, places[id(page)], cos, sin)
        for page in pages
    }
    seekers = queries if free else [rotate(q, cos[own], sin[own]) for q in queries]
    scores = [page_score(seekers, turned[id(page)]) / math.sqrt(w.head_dim) for page in pages]
    if settings.raas is not None:
        stamp(pages, scores, seen + 1, settings, done)
    near = chosen(pages, scores, settings, done)
    done.attended[where] = [page.number for page in near]
    done.stamps[where] = {page.number: page.stamp for page in pages}
    if free:
        places = consecutive(near)
        own = places[id(near[-1])][-1]
    keys, values = [], []
    for page in near:
        keys.append(rotated(page, places[id(page)], cos, sin))
        values += page.values
    found = []
    for query in queries:
        logits = np.concatenate(keys) @ rotate(query, cos[own], sin[own]) / math.sqrt(w.head_dim)
        found.append(softmax(logits) @ np.array(values))
    return found


tables: dict[tuple[float, int, int], tuple[np.ndarray, np.ndarray]] = {}


def table(w: Weights, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines, made once."""
    key = w.rope_theta, w.head_dim, length
    if key not in tables:
        tables[key] = rotary_table(w, length)
    return tables[key]


def consecutive(pages: list[Page]) -> dict[int, list[int]]:
    """Ours: positions 0, 1, ... over all tokens of some pages, by page."""
    places, n = {}, 0
    for page in pages:
        places[id(page)] = list(range(n, n + len(page.keys)))
        n += len(page.keys)
    return places


def rotated(page: Page, places: list[int], cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """The keys of a page at their places: each dimension of a first half turns with its like."""
    keys = np.array(page.keys)
    half = keys.shape[1] // 2
    quarter_turn = np.concatenate((-keys[:, half:], keys[:, :half]), axis=1)
    return keys * cos[places] + quarter_turn * sin[places]


def page_score(queries: list[np.ndarray], keys: np.ndarray) -> float:
    """Q 3.3, R 3.3: sum over dimensions of max(q m, q M); ours: the largest of the group's."""
    low, high = np.min(keys, axis=0), np.max(keys, axis=0)
    return max(float(np.sum(np.maximum(query * low, query * high))) for query in queries)


def stamp(pages: list[Page], scores: list[float], now: int, settings: Settings, done: Step) -> None:
    """R 3.2: the newest stamp for what is worth it, among the pages that RaaS governs."""
    ranked = [i for i, page in enumerate(pages) if settings.quest is None or not page.prompt]
    if settings.alpha is not None:
        shares = softmax(np.array([scores[i] for i in ranked]))
        for i, share in zip(ranked, shares, strict=True):
            done.gap = min(done.gap, abs(share - settings.alpha))
            if share >= settings.alpha:
                pages[i].stamp = now
        return
    ranked = sorted(ranked, key=lambda i: (-scores[i], pages[i].number))
    half = (len(ranked) + 1) // 2
    for i in ranked[:half]:
        pages[i].stamp = now
    if half < len(ranked):
        done.gap = min(done.gap, scores[ranked[half - 1]] - scores[ranked[half]])


def chosen(pages: list[Page], scores: list[float], settings: Settings, done: Step) -> list[Page]:
    """Q 3.3: the best pages, the last one always in; R: all. In the order of the text."""
    if settings.quest is None:
        return list(pages)
    among = [i for i, page in enumerate(pages) if settings.raas is None or page.prompt]
    ranked = sorted(among[:-1], key=lambda i: (-scores[i], i))
    cut = settings.quest - 1
    best = {*ranked[:cut], among[-1]}
    if cut < len(ranked):
        done.gap = min(done.gap, scores[ranked[cut - 1]] - scores[ranked[cut]])
    return [page for i, page in enumerate(pages) if i in best or i not in among]
