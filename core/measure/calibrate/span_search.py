"""Ltri-LLM's thresholds for each layer by random search, and its lambda by a lookup table.

Tang et al., "Ltri-LLM: Streaming Long Context Inference for LLMs with Training-Free Dynamic
Triangular Attention Pattern", 3.3.2 and section 5, "Hyperparameter Tuning". The samples are our
own: needles in prose (`maps.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.core.engine.setup import Engine
from longctx.core.kv import spans
from longctx.core.measure.calibrate.maps import LayerMaps, Sample, Tap, haystacks

SAMPLES, TRIALS = 64, 200
THETA, PHI = (0.0001, 0.95), (0.01, 0.95)  # uniform in these intervals (section 5)
REFERENCE = (0.90, 0.1)  # the paper's typical values; one more candidate of the search
LAMBDAS = tuple(float(n) for n in range(1, 21))  # *ours*; the paper goes up to 20, in some layers


@dataclass(frozen=True)
class Shape:
    """Ltri-LLM's options that determine its spans.

    Attributes:
        first: initial tokens.
        block: tokens of a block.
        spans: of a block, at most.
        vectors: index vectors of a block: lambda is chosen so that there are no more on average.
        ratio: the neighbours that a span is compared with: `row`, `column` or `row+column`.
    """

    first: int
    block: int
    spans: int
    vectors: int
    ratio: str


class LayerFit(NamedTuple):
    """What was found for one layer. A sliding window has no spans: no F1, and no table.

    Attributes:
        theta: quantile of a block's entries that is taken off them.
        phi: the largest ratio of intersection to union that two spans of a block have.
        lam: lambda of equation 7.
        f1: of the span that fits the needle best, mean over needles; see `span_f1`.
        f1_error: its standard error.
        reference_f1: with the reference values.
        vectors: index vectors of a block, mean, with each of `LAMBDAS`; see `vector_table`.
    """

    theta: float
    phi: float
    lam: float
    f1: float | None = None
    f1_error: float | None = None
    reference_f1: float | None = None
    vectors: tuple[float, ...] = ()


def search(
    engine: Engine,
    shape: Shape,
    samples: int = SAMPLES,
    trials: int = TRIALS,
    seed: int = 0,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, tuple]:
    """Finds the theta and phi of each layer whose spans fit the needles best, then lambda.

    Args:
        engine: the model; its method is not used.
        shape: of its blocks and spans.
        samples: needles, each in a block of its own.
        trials: pairs of theta and phi that are drawn, the same for all layers.
        seed: of samples and trials.
        on_progress: called with how many haystacks and layers are done, of how many; first before
            the model reads.

    Returns:
        The fields of `LayerFit`, each over all layers.

    Raises:
        UsageError: the model's window or the blocks are too short.
        LongctxError: the tokenizer gives no exact length, or the model cannot run.
    """
    candidates = draw(trials, seed)
    found = [*haystacks(engine, samples, seed, shape.first, shape.block)]
    layers = engine.decoder.layers
    total = len(found) + len(layers)
    shares = [theta for theta, _ in candidates]
    read: list[dict[int, LayerMaps]] = []
    on_progress(0, total)
    for sample in found:
        tap = Tap(sample, shape.first, shape.block, shares)
        engine.decoder.read(sample.ids, tap)
        read.append(tap.maps)
        on_progress(len(read), total)
    evidence = evidence_of(found, shape.block).to(engine.decoder.device)
    fits: list[LayerFit] = []
    for layer in layers:
        if layer.window is None:
            parts = [maps.pop(layer.index) for maps in read]
            fits.append(fit(joined(parts), evidence, candidates, shape))
        else:
            fits.append(LayerFit(*REFERENCE, lam=LAMBDAS[-1]))
        on_progress(len(found) + len(fits), total)
    return dict(zip(LayerFit._fields, zip(*fits, strict=True), strict=True))


def draw(trials: int, seed: int) -> list[tuple[float, float]]:
    """Pairs of theta and phi: the reference values, then so many random ones."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(trials, 2, generator=generator, dtype=torch.float64)
    low, high = torch.tensor([THETA, PHI], dtype=torch.float64).T
    return [REFERENCE, *map(tuple, (low + drawn * (high - low)).tolist())]


def evidence_of(samples: list[Sample], block: int) -> Tensor:
    """(B, N) bool: for each needle, which tokens of its block are its own."""
    places = [place for sample in samples for place in sample.places]
    start, begin, end = torch.tensor(places).T[:, :, None]
    token = start + torch.arange(block)
    return (token >= begin) & (token < end)


def joined(parts: list[LayerMaps]) -> LayerMaps:
    """The blocks of several passes, in order."""
    summed, thetas, heads = zip(*parts, strict=True)
    return LayerMaps(torch.cat(summed), torch.cat(thetas), heads[0])


def fit(
    maps: LayerMaps, evidence: Tensor, candidates: list[tuple[float, float]], shape: Shape
) -> LayerFit:
    """The best candidate for one layer, the first of equal ones, and its lambda.

    Args:
        maps: of B blocks, with a threshold for each candidate.
        evidence: (B, N) bool, the needle's tokens.
        candidates: pairs of theta and phi, the reference first.
        shape: how spans are found, and how many vectors they may have.
    """
    scores = torch.stack(
        [
            span_f1(*spans_of(maps, number, phi, shape.spans), evidence)
            for number, (_, phi) in enumerate(candidates)
        ]
    )  # (candidates, B)
    means = scores.mean(dim=1)
    best = means.tolist().index(means.max().item())
    theta, phi = candidates[best]
    table = vector_table(maps.summed, *spans_of(maps, best, phi, shape.spans), shape.ratio)
    # The standard error of one needle is not known: no more than that can be said of it.
    error = scores[best].std(correction=0).item() / max(1, len(evidence) - 1) ** 0.5
    lam = least_lambda(table, shape.vectors)
    return LayerFit(theta, phi, lam, means[best].item(), error, means[0].item(), table)


def spans_of(maps: LayerMaps, number: int, phi: float, keep: int) -> tuple[Tensor, Tensor, Tensor]:
    """First tokens, last tokens and which spans there are, (B, keep), with one candidate."""
    boxes = spans.boxes(maps.summed, maps.thetas[:, number], maps.heads)
    return spans.suppress(*boxes, phi, keep)


def span_f1(x: Tensor, y: Tensor, there: Tensor, evidence: Tensor) -> Tensor:
    """How well a block's spans fit the evidence: the F1, by tokens, of the one that fits it best.

    The paper optimises "the F1-score of semantic spans overlapping with the evidence" and says no
    more. *Ours*: precision is the share of a span's tokens that are evidence, recall the share of
    the evidence that is the span's, and the best span of a block counts, as a block is retrieved
    by its best one (equation 9). Spans beside it stand for the rest of the block and cost nothing.
    Where all that overlap count together, a phi near 1 wins, which leaves most of a block without
    spans; with this one the thresholds come out like those of the paper's tables 6 and 7.

    Args:
        x, y: (B, S) int64, first and last token of each span.
        there: (B, S), which of them there are.
        evidence: (B, N) bool, at least one token of each block.

    Returns:
        (B,) float64 on the CPU, as not every device has float64; 0 where no span overlaps.
    """
    before = F.pad(evidence.cumsum(dim=1), (1, 0))  # (B, N+1), evidence before each token
    hit = (before.gather(1, y + 1) - before.gather(1, x)) * there  # (B, S)
    sizes = y + 1 - x + before[:, -1:]
    return (2 * hit.cpu().double() / sizes.cpu()).amax(dim=1)


def vector_table(
    summed: Tensor, x: Tensor, y: Tensor, there: Tensor, ratio: str
) -> tuple[float, ...]:
    """Index vectors of a block, mean over blocks, with each lambda: the lookup table of 3.3.2.

    Equation 7 alone, with at least one for a span; the most that a block may have is left out, as
    it would hide what lambda does. *Ours*: a mean over all spans, and no histogram of ratios.

    Args:
        summed: (B, N, N), attention summed over heads.
        x, y: (B, S) int64, first and last token of each span.
        there: (B, S), which of them there are.
        ratio: see `spans.ratios`.
    """
    r = spans.ratios(summed, x, y, ratio)
    unbounded = x.shape[1] * summed.shape[-1]
    means = (
        spans.counts(y - x + 1, r, there, lam, unbounded).sum(dim=1).cpu().double().mean().item()
        for lam in LAMBDAS
    )
    return tuple(means)


def least_lambda(table: tuple[float, ...], vectors: float) -> float:
    """The smallest lambda with which a block has no more than so many vectors on average.

    *Ours*: the table decides for every layer, and a layer that it says nothing for gets its last
    lambda, 20, which the paper's experiments give to the first four layers without a table.
    """
    meets = (lam for lam, mean in zip(LAMBDAS, table, strict=True) if mean <= vectors)
    return next(meets, LAMBDAS[-1])
