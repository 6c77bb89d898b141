"""Reranking: the model that answers reads the best passages, each by itself, and orders them anew.

How likely a model that learnt to say so finds it that a passage lacks the answer tells right
passages from wrong ones where the score of a search does not, and costs a prefill of each. It
changes which passages are read together, and nothing else (docs/benchmarks/accuracy.md, "Answers").
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from longctx.core.ask.composing import Composer
from longctx.core.ask.refusing import first_tokens
from longctx.core.common.interrupts import check
from longctx.core.engine.setup import Engine
from longctx.core.kv.kept_prompts import KeptPrompts
from longctx.core.kv.packed import groups, read_packed
from longctx.core.kv.prompt import Prompt, prompt_bytes
from longctx.core.retrieve.best_passages import Run, run_of
from longctx.core.retrieve.ranked import Ranked, z_scores

WEIGHT = 4.0  # of what the model says, beside the score by which passages were found
LONGEST = 384  # tokens of a passage that are read: a line may be very long
BESIDE = 512 << 20  # bytes of keys and values of those that are read side by side
ROOM = 64  # tokens of a question behind a passage that is kept
SURE = 1e-6  # probabilities nearer to 0 and 1 are not told apart


def reranked(
    ranked: Ranked,
    composer: Composer,
    question: Tensor,
    most: int,
) -> Ranked:
    """The passages, the best of them in the order that the model gives them.

    Args:
        ranked: the passages as they were found.
        composer: of the model that answers.
        question: (T,) its tokens of the question.
        most: passages to read.

    Returns:
        The same passages. Those that were read come first; each has the sum of two z-scores: of
        what it was found with, and, with WEIGHT, of the log odds that it has the answer.
    """
    read = np.argsort(-ranked.scores, kind="stable")[:most]
    if len(read) < 2:
        return ranked
    runs = [run_of(ranked.passages, number) for number in read.tolist()]
    odds = _log_odds(composer, runs, question)
    total = z_scores(ranked.scores[read]) + WEIGHT * z_scores(odds)
    scores = ranked.scores - ranked.scores.max() + total.min() - 1
    scores[read] = total
    return replace(ranked, scores=scores)


def _log_odds(composer: Composer, runs: Sequence[Run], question: Tensor) -> np.ndarray:
    """How likely the model finds it that each passage has the answer, as log odds (n,)."""
    engine, prefix = composer.engine, composer.engine.prompt.prefix()
    texts = [torch.cat([prefix, composer.ids_of(run)[:LONGEST]]) for run in runs]
    different = {ids.numpy().tobytes(): ids for ids in texts}  # the same text may stand twice
    own, layers = [*different.values()], engine.decoder.layers
    sizes = [prompt_bytes(layers, len(ids) + ROOM, engine.dtype.itemsize) for ids in own]
    parts = (own[some.start : some.stop] for some in groups(sizes, BESIDE))
    found = [one for part in parts for one in _odds_behind(part, engine, question)]
    odds = dict(zip(different, found, strict=True))
    return np.array([odds[ids.numpy().tobytes()] for ids in texts])


def _odds_behind(texts: list[Tensor], engine: Engine, question: Tensor) -> list[float]:
    """The log odds of texts (P,), all different, that are read side by side."""

    def read(beginnings: list[Tensor]) -> list[Prompt]:
        prompts = []
        for ids in beginnings:
            check()
            prompts.append(Prompt(len(ids) + max(len(question), ROOM)))
            engine.decoder.read(ids, prompts[-1])
        return prompts

    # A later question to the same passages goes on from there; the first one does so too, because
    # the same answer, to the bit, is worth more than what two passes cost instead of one. So each
    # is read by itself: beside which others it would be depends on what was asked before.
    kept = engine.kept_prompts if len(question) <= ROOM else KeptPrompts(0)
    prompts = kept.of(texts, read)
    hidden = read_packed(engine.decoder, [question] * len(prompts), prompts)
    likely = torch.softmax(engine.decoder.logits(hidden).float(), -1)
    lacks = likely[:, first_tokens(engine.files.tokenizer)].sum(-1).cpu().double()
    lacks = lacks.clamp(SURE, 1 - SURE)
    return torch.log((1 - lacks) / lacks).tolist()
