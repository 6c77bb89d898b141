"""Reranking: the model that answers reads the best passages one at a time, and orders them anew.

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
from longctx.core.kv.prompt import Prompt
from longctx.core.retrieve.best_passages import Run, best_apart
from longctx.core.retrieve.ranked import Ranked, z_scores
from longctx.core.store.document import Document

WEIGHT = 4.0  # of what the model says, beside the score by which passages were found
LONGEST = 384  # tokens of a passage that are read: a line may be very long
ROOM = 64  # tokens of a question behind a passage that is kept
SURE = 1e-6  # probabilities nearer to 0 and 1 are not told apart


def reranked(
    ranked: Ranked,
    documents: Sequence[Document],
    composer: Composer,
    question: Tensor,
    most: int,
) -> Ranked:
    """The windows, the best of them in the order that the model gives them.

    Args:
        ranked: the windows as they were found.
        documents: open, those of the windows.
        composer: of the model that answers.
        question: (T,) its tokens of the question.
        most: windows to read, of which no two overlap.

    Returns:
        The same windows. Those that were read come first; each has the sum of two z-scores: of
        what it was found with, and, with WEIGHT, of the log odds that it has the answer.
    """
    best = best_apart(ranked, documents, most)
    if len(best) < 2:
        return ranked
    read = [window for window, _ in best]
    odds = np.array([_log_odds(composer, run, question) for _, run in best])
    total = z_scores(ranked.scores[read]) + WEIGHT * z_scores(odds)
    scores = ranked.scores - ranked.scores.max() + total.min() - 1
    scores[read] = total
    return replace(ranked, scores=scores)


def _log_odds(composer: Composer, run: Run, question: Tensor) -> float:
    """How likely the model finds it that a passage has the answer, as log odds."""
    check()
    engine = composer.engine
    ids = torch.cat([engine.prompt.prefix(), composer.ids_of(run)[:LONGEST]])

    def read() -> Prompt:
        prompt = Prompt(len(ids) + max(len(question), ROOM))
        engine.decoder.read(ids, prompt)
        return prompt

    # A later question to the same passage goes on from there; the first one does so too, because
    # the same answer, to the bit, is worth more than what two passes cost instead of one.
    prompt = read() if len(question) > ROOM else engine.kept_prompts.of(ids, read)
    hidden = engine.decoder.read(question, prompt)[-1:]
    likely = torch.softmax(engine.decoder.logits(hidden)[0].float(), -1)
    lacks = float(likely[first_tokens(engine.files.tokenizer)].sum())
    lacks = min(max(lacks, SURE), 1 - SURE)
    return float(np.log((1 - lacks) / lacks))
