"""Ltri-LLM's thresholds for each layer by random search, and its lambda by a lookup table.

Tang et al., "Ltri-LLM: Streaming Long Context Inference for LLMs with Training-Free Dynamic
Triangular Attention Pattern", 3.3.2 and section 5, "Hyperparameter Tuning". The samples are
*ours*: needles in prose (`maps.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.core.engine.setup import Engine
from longctx.core.kv import spans
from longctx.core.measure.calibrate.maps import LayerMaps, MapSample, MapTap, haystacks

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
        spans: most spans of a block.
        vectors: most index vectors of a block on average; lambda is chosen to keep to it.
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
        theta: quantile of a block's entries that is subtracted from them.
        phi: the largest intersection over union of two spans of a block.
        lam: lambda of equation 7.
        f1: F1 of the span that fits the needle best, mean over needles; see `span_f1`.
        f1_error: its standard error.
        reference_f1: F1 with the reference values.
        vectors: mean index vectors of a block with each of `LAMBDAS`; see `vector_table`.
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
    """Finds, for each layer, the theta and phi whose spans fit the needles best, then lambda.

    Args:
        engine: the model; its method is not used.
        shape: shape of its blocks and spans.
        samples: number of needles, each in its own block.
        trials: pairs of theta and phi to draw, the same for all layers.
        seed: seed of samples and trials.
        on_progress: called with how many haystacks and layers are done, and the total; first
            before the model reads.

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
        tap = MapTap(sample, shape.first, shape.block, shares)
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
    """Pairs of theta and phi: the reference values, then `trials` random ones."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(trials, 2, generator=generator, dtype=torch.float64)
    low, high = torch.tensor([THETA, PHI], dtype=torch.float64).T
    return [REFERENCE, *map(tuple, (low + drawn * (high - low)).tolist())]


def evidence_of(samples: list[MapSample], block: int) -> Tensor:
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
        maps: maps of B blocks, with a threshold for each candidate.
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
    # One needle gives no standard error.
    error = scores[best].std(correction=0).item() / max(1, len(evidence) - 1) ** 0.5
    lam = least_lambda(table, shape.vectors)
    return LayerFit(theta, phi, lam, means[best].item(), error, means[0].item(), table)


def spans_of(maps: LayerMaps, number: int, phi: float, keep: int) -> tuple[Tensor, Tensor, Tensor]:
    """First tokens, last tokens and which spans exist, (B, keep), for one candidate."""
    boxes = spans.boxes(maps.summed, maps.thetas[:, number], maps.heads)
    return spans.suppress(*boxes, phi, keep)


def span_f1(x: Tensor, y: Tensor, there: Tensor, evidence: Tensor) -> Tensor:
    """How well a block's spans fit the evidence: the token F1 of the span that fits best.

    The paper optimises "the F1-score of semantic spans overlapping with the evidence" and says no
    more. *Ours*: precision is the share of a span's tokens that are evidence, recall the share of
    the evidence that is in the span, and the best span of a block counts, since a block is
    retrieved by its best one (equation 9). Its other spans stand for the rest of the block and cost
    nothing. If all overlapping spans count together, a phi near 1 wins, which leaves most of a
    block without spans; with ours the thresholds are like those of the paper's tables 6 and 7.

    Args:
        x, y: (B, S) int64, first and last token of each span.
        there: (B, S), which of them exist.
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
    """Index vectors per block, mean over blocks, for each lambda: the lookup table of 3.3.2.

    Equation 7 alone, with at least one vector per span; a block's limit is not applied, as it
    would hide what lambda does. *Ours*: a mean over all spans instead of a histogram of ratios.

    Args:
        summed: (B, N, N), attention summed over heads.
        x, y: (B, S) int64, first and last token of each span.
        there: (B, S), which of them exist.
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
    """The smallest lambda with which a block has at most `vectors` vectors on average.

    *Ours*: the table decides for every layer, and a layer where no lambda is enough gets the last
    one, 20, which the paper's experiments give to the first four layers without a table.
    """
    meets = (lam for lam, mean in zip(LAMBDAS, table, strict=True) if mean <= vectors)
    return next(meets, LAMBDAS[-1])
