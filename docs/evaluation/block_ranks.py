"""Why a needle is missed by blocks: what each layer's index says of it, and what would help.

    python docs/evaluation/block_ranks.py --model tiny --methods infllm,ltri --length 16k
    python docs/evaluation/block_ranks.py --model MODEL --methods infllm --length 64k --device cuda

Prints Markdown. A pass key and a number at each of `--depths` depths of one haystack, as
`longctx niah` hides them; those in view without being retrieved are left out. First table: where
the needle's block stands among all blocks in each layer while the question is read, by several
indices of the same keys and several ways to ask: the share of needles within the blocks retrieved,
and the median rank. Second table: how many are answered when one thing is changed at a time: the
needle's blocks handed in, other budgets, other indices, other positions.

`--options '{"run": 0}'` reads with other options; `--ranks` or `--changes` alone prints one table.
"""

import argparse
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

from longctx.core.common.units import parse_tokens
from longctx.core.contracts.memory import Rows
from longctx.core.engine.choice import Setup
from longctx.core.engine.encode import encode
from longctx.core.engine.setup import prepare
from longctx.core.kv import spans
from longctx.core.kv.block_vectors import representatives, run_means, shares
from longctx.core.kv.retrieving import ChosenBlocks, LayerChunk, Retrieving
from longctx.core.measure.haystack import Builder
from longctx.core.measure.markdown import table
from longctx.core.measure.niah.kinds import MAKERS
from longctx.core.measure.niah.laying import NeedleChoice, lay
from longctx.core.measure.niah.scoring import is_right
from longctx.core.measure.niah.variants import variant
from longctx.core.measure.prose import read_prose
from longctx.core.model.adapter import Layer

ANSWER = 16  # tokens


class Nowhere:
    """Takes rows that are not kept: all is asked in the process that read."""

    def append(self, group: str, rows: dict[str, Tensor]) -> None:
        """Drops rows."""


@dataclass(frozen=True)
class Asking:
    """A layer's choice for a question.

    Attributes:
        scale: of the layer's logits.
        q: position-free queries (H, T, D).
        keys: position-free keys (n, N, G, D) of all blocks.
        vectors: InfLLM's (n, H, D).
        own: which of the queries (T,) are the user's own words.
    """

    scale: float
    q: Tensor
    keys: Tensor
    vectors: Tensor
    own: Tensor


Score = Callable[[Asking], Tensor]  # (n,)
Noted = Callable[[int, list[int], Asking], None]  # layer, the needle's blocks


def by_runs(run: int, queries: str = "each") -> Score:
    """Shares over mean keys of runs, by each query, those of the words, the last or the mean."""

    def score(a: Asking) -> Tensor:
        q = {"each": a.q, "words": a.q[:, a.own], "last": a.q[:, -1:], "mean": a.q.mean(1, True)}
        return shares(q[queries], run_means(a.keys, run), a.scale)

    return score


def by_maxsim(a: Asking) -> Tensor:
    """For each query of each head the best product with a token's key, summed."""
    D, G = a.q.shape[2], a.keys.shape[2]
    q = a.q.reshape(G, -1, D).float()
    best = [(q[g] @ a.keys[:, :, g].float().mT).amax(-1).sum(-1) for g in range(G)]
    return torch.stack(best).sum(0)


def by_vectors(a: Asking) -> Tensor:
    """InfLLM's: the product of the mean query with the mean of the most attended keys."""
    return torch.einsum("nhd,hd->n", a.vectors.float(), a.q.float().mean(1))


def by_vectors_each(a: Asking) -> Tensor:
    """The same vectors, asked by each query by itself."""
    logits = torch.einsum("htd,nhd->htn", a.q.float(), a.vectors.float()) * a.scale
    return logits.softmax(-1).sum((0, 1))


SCORES: dict[str, Score] = {
    "InfLLM's vectors, mean query": by_vectors,
    "InfLLM's vectors, each query": by_vectors_each,
    "all keys, mean query": by_runs(1, "mean"),
    "all keys, MaxSim": by_maxsim,
    "all keys, each query": by_runs(1),
    "all keys, the user's words": by_runs(1, "words"),
    "all keys, last query": by_runs(1, "last"),
    **{f"runs of {run}, each query": by_runs(run) for run in (4, 8, 16, 32)},
}


@dataclass(frozen=True)
class Change:
    """One thing that is different while a question is asked.

    Attributes:
        gold: in these layers the needle's blocks are among those attended to.
        alone: nothing but them is.
        score: what chooses blocks; None: the method.
        times: multiplies the number of blocks.
        one_distance: of all that is retrieved, in place of one token after another.
    """

    gold: range = range(0)
    alone: bool = False
    score: Score | None = None
    times: float = 1
    one_distance: bool = False


def changes(layers: int) -> dict[str, Change]:
    """What is tried, one after another."""
    every, half = range(layers), layers // 2
    found = {
        "nothing": Change(),
        "needle handed in": Change(every),
        "needle handed in, below the middle": Change(range(half)),
        "needle handed in, from the middle up": Change(range(half, layers)),
        "needle alone": Change(every, alone=True),
        "needle handed in, at one distance": Change(every, one_distance=True),
        "at one distance": Change(one_distance=True),
    }
    found |= {name: Change(score=score) for name, score in SCORES.items()}
    for times in (0.25, 2, 4):
        found[f"{times:g} times the blocks, InfLLM's"] = Change(score=by_vectors, times=times)
        found[f"{times:g} times the blocks, runs of 4"] = Change(score=by_runs(4), times=times)
    return found


class Study:
    """A haystack that one method has read.

    Args:
        setup: model, method and device.
        length, depths: of the haystack.
        options: other than the profile's.
    """

    def __init__(self, setup: Setup, length: int, depths: int, options: dict):
        engine = prepare(setup)
        self._engine = replace(engine, options=replace(engine.options, **options))
        builder = Builder(engine.files.tokenizer, read_prose())
        (plan,) = NeedleChoice(variant(None)[0], MAKERS, depths).plans(builder, length, 0)
        self._laid, self._sizes = lay(builder, plan), self._engine.options
        self.sizes, self.retrieved = self._sizes, self._sizes.retrieved
        self._vectors: dict[int, list[Tensor]] = {}
        self._ends = engine.files.eos_ids()
        self._prefix = len(engine.prompt.prefix())
        self.layers = len(self._engine.decoder.layers)
        self._method = self._read()

    def _read(self) -> Retrieving:
        prefix, ids = self._engine.prompt.prefix(), torch.as_tensor(self._laid.haystack.ids)
        method: Any = self._engine.new_method(tokens=len(ids))
        method.per_head = True  # so that InfLLM's vectors can be made for both methods
        index = method.index

        def noted(layer, keys, received, notes):
            self._vectors.setdefault(layer.index, []).append(representatives(keys, received, 4))
            return index(layer, keys, received, notes)

        method.index = noted
        began = time.perf_counter()
        deque(encode(self._engine.decoder, method, prefix, [ids], Nowhere()), maxlen=0)
        self.speed = len(ids) / (time.perf_counter() - began)
        del method.index
        return method

    def gold(self, number: int) -> list[int]:
        """Blocks that a needle lies in; none where a part of it is in view anyway."""
        o, tokenizer = self._sizes, self._engine.files.tokenizer
        first = self._laid.tokens[number] + self._prefix
        line = self._laid.plan.hidden[number].needle.lines[0]
        last = first + len(tokenizer(line, add_special_tokens=False).input_ids) - 1
        if first < o.first or last >= o.start(len(self._laid.haystack.ids) + self._prefix):
            return []
        return [*range((first - o.first) // o.block, (last - o.first) // o.block + 1)]

    def far(self, every: int) -> list[int]:
        """Needles that have to be retrieved, or every so many of them."""
        return [n for n in range(len(self._laid.tokens)) if self.gold(n)][::every]

    def ask(self, number: int, change: Change, noted: Noted | None = None) -> bool:
        """Whether a needle is answered; `noted` gets each layer's choice for the question."""
        query = self._laid.case.queries[number]
        memory: Any = self._method.recall()
        ids, own = self._engine.prompt.question(query.question)
        memory.choose = self._choosing(memory, change, self.gold(number), own, noted)
        if change.one_distance:
            memory.options = replace(memory.options, in_order=False)
        hidden = torch.zeros(0)
        for chunk in ids.split(memory.chunk):
            hidden = self._engine.decoder.read(chunk, memory)
        memory.begin_answer()
        text = self._decoded(memory, hidden)
        return is_right(query.answers[0], text)

    def _choosing(
        self, memory: Retrieving, change: Change, gold: list[int], own: Tensor, noted: Noted | None
    ) -> Callable[[Layer, LayerChunk, Rows], ChosenBlocks]:
        """The choice of blocks in place of the method's."""
        choose, count = memory.choose, max(1, round(self._sizes.retrieved * change.times))

        def chosen(layer: Layer, read: LayerChunk, index: Rows) -> ChosenBlocks:
            blocks = choose(layer, read, index).blocks
            if noted is not None and not memory.answering:
                noted(layer.index, gold, self._asking(memory, layer, read, own))
            if change.score is not None:
                words = own if len(own) == read.q.shape[1] else torch.ones(1, dtype=torch.bool)
                asking = self._asking(memory, layer, read, words)
                blocks = spans.best(change.score(asking), count)
            if layer.index in change.gold:
                others = [] if change.alone else [b for b in blocks.tolist() if b not in gold]
                blocks = torch.tensor(sorted([*others[: max(0, count - len(gold))], *gold]))
            return ChosenBlocks(blocks.to(read.q.device))

        return chosen

    def _asking(self, memory: Retrieving, layer: Layer, read: LayerChunk, own: Tensor) -> Asking:
        vectors = torch.cat(self._vectors[layer.index])
        every = torch.arange(len(vectors), device=read.q.device)
        keys = memory._kept.layer(layer.index).blocks(every)[0].unflatten(0, (len(every), -1))
        return Asking(layer.scale, read.q, keys, vectors, own.to(read.q.device))

    def _decoded(self, memory: Retrieving, hidden: Tensor) -> str:
        """A greedy answer."""
        decoder, found = self._engine.decoder, []
        while len(found) < ANSWER:
            token = int(decoder.logits(hidden[-1:])[0].argmax())
            if token in self._ends:
                break
            found.append(token)
            hidden = decoder.read(torch.tensor([token]), memory)
        return self._engine.files.tokenizer.decode(found)


def ranks(study: Study, needles: list[int]) -> str:
    """A row for each index: share within the blocks retrieved / median rank, by layer."""
    places: dict[str, dict[int, list[int]]] = {name: {} for name in SCORES}

    def noted(layer: int, gold: list[int], asking: Asking) -> None:
        for name, score in SCORES.items():
            of_blocks = score(asking)
            best = of_blocks[gold].max()
            places[name].setdefault(layer, []).append(int((of_blocks > best).sum()))

    for number in needles:
        study.ask(number, Change(), noted)
    most, rows = study.retrieved, []
    for name, of_layers in places.items():
        cells = [_cell(of_layers.get(layer, []), most) for layer in range(study.layers)]
        rows.append([name, *cells])
    return table(["index and queries", *map(str, range(study.layers))], rows)


def _cell(places: list[int], most: int) -> str:
    if not places:
        return ""
    return f"{sum(p < most for p in places) / len(places):.2f}/{median(places):g}"


def answers(study: Study, needles: list[int]) -> str:
    """A row for each change: how many are answered."""
    rows = []
    for name, change in changes(study.layers).items():
        began = time.perf_counter()
        right = sum(study.ask(number, change) for number in needles)
        rows.append([name, f"{right} of {len(needles)}", f"{time.perf_counter() - began:.0f}"])
    return table(["what is different", "answered", "seconds"], rows)


def main() -> None:
    """Reads arguments and prints tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--profile")
    parser.add_argument("--methods", default="infllm,ltri")
    parser.add_argument("--length", default="16k")
    parser.add_argument("--depths", type=int, default=11)
    parser.add_argument("--every", type=int, default=1, help="ask every so many of the needles")
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--ranks", action="store_true")
    parser.add_argument("--changes", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    setup = Setup(given.model, given.profile, device=given.device, threads=given.threads)
    both = given.ranks == given.changes
    for method in given.methods.split(","):
        own, length = replace(setup, method=method), parse_tokens(given.length)
        study = Study(own, length, given.depths, given.options)
        needles = study.far(given.every)
        print(
            f"\n{method}, {length:,} tokens, read at {study.speed:,.0f} tokens/s; {study.sizes}\n"
        )
        for wanted, shown in ((given.ranks, ranks), (given.changes, answers)):
            if wanted or both:
                print(shown(study, needles), flush=True)


if __name__ == "__main__":
    main()
