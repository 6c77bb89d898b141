"""The windows that the model itself finds best for each question: right ones, and hard wrong ones.

Every question is searched in its document's group by standardised MaxSim, as a search is
(`core/retrieve/late_interaction.py`).
"""

import random
import time
from collections import defaultdict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.profiles.recipe.tuning.batches import MIX, READ_ONLY
from longctx.profiles.recipe.tuning.model import Tuned, Weights
from longctx.profiles.recipe.tuning.packed import pack
from longctx.profiles.recipe.tuning.passages import Window
from longctx.profiles.recipe.tuning.shelf import STEP, Shelf, window_count

STRETCH, ROWS, MOST = 2048, 131_072, 4096  # tokens read together, of a batch; sequences of it
TOGETHER = 48  # questions scored at a time
BEST = 16  # windows kept
WORDS = 48  # tokens of a question


class Searcher:
    """Vectors of documents and questions, and the best windows.

    Args:
        model: the tuned model.
        shelf: the documents.
        layer, heads: of the embeddings.
    """

    def __init__(self, model: Tuned, shelf: Shelf, layer: int, heads: list[int]):
        self._model, self._shelf, self._layer, self._heads = model, shelf, layer, heads
        with torch.no_grad():
            self._weights: Weights = model.merged()

    @torch.no_grad()
    def vectors(self, rows: list[np.ndarray]) -> list[Tensor]:
        """Unit vectors (n, D) of each row's tokens, all read after the prompt's prefix."""
        prefix, found, at = self._shelf.prefix, [], 0
        device = self._model.embedding.device
        while at < len(rows):
            batch, used = [], 0
            while at < len(rows) and len(batch) < MOST // 2:
                if batch and used + len(rows[at]) + len(prefix) > ROWS:
                    break
                batch.append(np.concatenate([prefix, rows[at]]))
                used += len(batch[-1])
                at += 1
            packed = pack(batch, used, MOST, STRETCH + len(prefix)).to(device)
            model, weights = self._model, self._weights
            states = model.through(model.embedded(packed), packed, weights, 0, self._layer)
            flat = model.queries(states, weights, self._layer, self._heads).to(model.dtype)
            found += [part[len(prefix) :] for part in flat.split([len(one) for one in batch])]
        return found

    def group(self, group: int, numbers: list[int]) -> np.ndarray:
        """(questions, BEST, 2) document and window, best first; -1 where there are no more."""
        shelf = self._shelf
        documents = range(*shelf.groups[group : group + 2].tolist())
        first, end = (int(shelf.firsts[d]) for d in (documents[0], documents[-1] + 1))
        ids = shelf.ids[first:end]
        vectors = torch.cat(
            self.vectors([ids[a : a + STRETCH] for a in range(0, len(ids), STRETCH)])
        )
        units, last, names = self._units(vectors, documents)
        words = [shelf.asked[n].question[: shelf.asked[n].words[0] + WORDS] for n in numbers]
        asked = self.vectors(
            [one[: shelf.asked[n].words[1]] for one, n in zip(words, numbers, strict=True)]
        )
        asked = [one[shelf.asked[n].words[0] :] for one, n in zip(asked, numbers, strict=True)]
        found = np.full((len(numbers), BEST, 2), -1, np.int32)
        for at in range(0, len(numbers), TOGETHER):
            batch = torch.nn.utils.rnn.pad_sequence(asked[at : at + TOGETHER], batch_first=True)
            mask = batch.abs().sum(-1) > 0
            best = torch.einsum("qwd,usd->qwus", batch, units).amax(-1).float()
            after = F.pad(best[:, :, 1:], (0, 1))
            best = torch.where(last, best, torch.maximum(best, after))
            kept = torch.tensor([name is not None for name in names], device=best.device)
            best = best[:, :, kept]
            mean, deviation = best.mean(-1, True), best.std(-1, keepdim=True) + 1e-4
            scores = (((best - mean) / deviation).clamp_min(0) * mask[:, :, None]).sum(1)
            top = scores.topk(min(BEST, scores.shape[1])).indices.cpu().numpy()
            own = np.array([name for name in names if name is not None], np.int32)
            found[at : at + len(top), : top.shape[1]] = own[top]
        return found

    def _asked(self, numbers: list[int]) -> list[Tensor]:
        """Vectors (W, D) of the questions' own words, at most WORDS."""
        rows, firsts = [], []
        for number in numbers:
            one = self._shelf.asked[number]
            first, end = one.words
            rows.append(one.question[: min(end, first + WORDS)])
            firsts.append(first)
        return [own[first:] for own, first in zip(self.vectors(rows), firsts, strict=True)]

    def _units(
        self, vectors: Tensor, documents: range
    ) -> tuple[Tensor, Tensor, list[tuple[int, int] | None]]:
        """Steps of 64 tokens of every document: vectors (U, 64, D), which of them are a document's
        last, and the window that begins with each; none begins with the last of several."""
        parts, last, names, at = [], [], [], 0
        for document in documents:
            length = self._shelf.length(document)
            own = vectors[at : at + length]
            parts.append(F.pad(own, (0, 0, 0, -length % STEP)))
            count = -(-length // STEP)
            windows = window_count(length)
            last += [False] * (count - 1) + [True]
            names += [(document, w) if w < windows else None for w in range(count)]
            at += length
        device = vectors.device
        return torch.cat(parts).unflatten(0, (-1, STEP)), torch.tensor(last, device=device), names


def best_windows(searcher: Searcher, shelf: Shelf, seconds: float = 60) -> dict[int, list[Window]]:
    """The best windows of questions, best first; tells how often the first is right.

    Args:
        searcher: the model as it is now.
        shelf: the documents.
        seconds: after which no more groups are searched; they are drawn by the shares of kinds.
    """
    started, right = time.time(), 0
    by_group: dict[int, list[int]] = defaultdict(list)
    for number, one in enumerate(shelf.asked):
        by_group[shelf.group_of(one.document)].append(number)
    found: dict[int, list[Window]] = {}
    for group in _drawn(shelf, sorted(by_group)):
        if time.time() - started > seconds:
            break
        numbers = by_group[group]
        for number, row in zip(numbers, searcher.group(group, numbers), strict=True):
            found[number] = [(int(d), int(w)) for d, w in row if d >= 0]
            right += _held(shelf, number, row)
    known, spent = sum(shelf.asked[n].known for n in found), time.time() - started
    print(
        f"{len(found):,} searched: {right:,} of {known:,} found first in their group, {spent:.0f} s"
    )
    return found


def _drawn(shelf: Shelf, groups: list[int]) -> list[int]:
    """Groups that are searched, in a random order in which common kinds do not crowd out others."""
    rng, kinds = random.Random(0), [shelf.kinds[shelf.groups[group]] for group in groups]
    shares = {kind: MIX[kind] / kinds.count(kind) for kind in {*kinds} & {*MIX} - {*READ_ONLY}}
    turns = {
        group: rng.expovariate(shares[kind])
        for group, kind in zip(groups, kinds, strict=True)
        if kind in shares
    }
    return sorted(turns, key=turns.__getitem__)


def _held(shelf: Shelf, number: int, found: np.ndarray) -> bool:
    """Whether the best window has some of the evidence."""
    asked, (document, window) = shelf.asked[number], found[0].tolist()
    low = window * STEP
    spans = asked.evidence if document == asked.document else ()
    return any(a < low + 2 * STEP and b > low for a, b in spans)
