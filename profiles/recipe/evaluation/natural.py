"""Natural questions in SQuAD's format: with their paragraph alone, and with it in a full window.

A record has `context`, `question` and `answers`. Knows nothing of frames.
"""

import random
import sys
from typing import Any

import numpy as np

from longctx.core.common.errors import LongctxError
from longctx.core.measure.eval.text_match import exact_match, f1
from longctx.core.profile.prompt import PromptEncoder
from longctx.profiles.recipe.evaluation.answers import Answerer
from longctx.profiles.recipe.evaluation.filler import Haystack
from longctx.profiles.recipe.evaluation.fitting import Draft, fit

ROUNDS = 20  # draws for a paragraph in a text of the exact length
SLACK = 1 / 24  # share of extra haystack tokens: joined pieces have fewer tokens than single ones

Record = dict[str, Any]


def ask(
    records: list[Record], answerer: Answerer, prompt: PromptEncoder, prose: Haystack, length: int
) -> list[Record]:
    """Asks every record twice: alone, and with its paragraph at a random depth of prose.

    Args:
        records: see above.
        answerer: the model.
        prompt: encodes prefix and question.
        prose: the text around the paragraph.
        length: tokens of the full window's prompt.

    Returns:
        Trials with `setting`, `em` and `f1`.

    Raises:
        LongctxError: a paragraph does not fit.
    """
    questions = [prompt.question(record["question"])[0].numpy() for record in records]
    prefix = prompt.prefix().numpy()
    room = [length - len(prefix) - len(question) for question in questions]
    alone = [np.array(answerer.backend.encode(record["context"].strip()).ids) for record in records]
    embedded = _embedded(records, room, answerer, prose)
    trials = []
    for setting, documents in (("alone", alone), (f"in {length:,} tokens", embedded)):
        print(f"natural questions, {setting}", file=sys.stderr, flush=True)
        parts = zip(documents, questions, strict=True)
        prompts = [np.concatenate([prefix, *part]) for part in parts]
        rights = [max(record["answers"], key=len) for record in records]
        answers = answerer.answers(prompts, rights)
        trials += [_trial(setting, *pair) for pair in zip(records, answers, strict=True)]
    return trials


def _trial(setting: str, record: Record, answer: str) -> Record:
    scores = {"em": exact_match(record["answers"], answer), "f1": f1(record["answers"], answer)}
    asked = {"question": record["question"], "expected": record["answers"][0]}
    return {"setting": setting, **asked, "answer": answer, **scores}


def _embedded(
    records: list[Record], room: list[int], answerer: Answerer, prose: Haystack
) -> list[np.ndarray]:
    """Token ids of documents of exactly `room` tokens, each with a paragraph somewhere in it."""
    made: dict[int, np.ndarray] = {}
    for attempt in range(ROUNDS):
        missing = [i for i in range(len(records)) if i not in made]
        drafts = []
        for i in missing:
            rng = random.Random(f"{i} {attempt}")
            context = records[i]["context"].strip()
            needed = max(1, room[i] - len(answerer.backend.encode(context).ids))
            pieces = prose.take(int(needed * (1 + SLACK)), rng)
            drafts.append(Draft(pieces, [(rng.random(), context)], room[i]))
        for i, document in zip(missing, fit(drafts, answerer.backend), strict=True):
            if document is not None:
                made[i] = document.ids
    if len(made) < len(records):
        raise LongctxError(
            f"cannot embed {len(records) - len(made)} paragraphs in {max(room):,} tokens",
            f"no exact length in {ROUNDS} draws",
            "Give longer --lengths or other --prose.",
        )
    return [made[i] for i in range(len(records))]
