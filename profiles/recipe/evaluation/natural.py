"""Natural questions in SQuAD's format: with their paragraph alone, among others, in a full window.

A record has `context`, `question` and `answers`. Knows nothing of frames.
"""

import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from longctx.core.common.errors import LongctxError
from longctx.core.measure.eval.text_match import exact_match, f1
from longctx.core.profile.prompt import PromptEncoder
from longctx.profiles.recipe.evaluation.answers import Answerer
from longctx.profiles.recipe.evaluation.filler import Haystack
from longctx.profiles.recipe.evaluation.fitting import Draft, fit, with_slack

OTHERS = 7  # paragraphs beside the question's own
ROUNDS = 20  # draws for a paragraph in a text of the exact length

Record = dict[str, Any]


class Questioner:
    """Asks a model the questions of records.

    Args:
        answerer: the model.
        prompt: encodes prefix and question.
        limit: most tokens of an answer.
    """

    def __init__(self, answerer: Answerer, prompt: PromptEncoder, limit: int):
        self._answerer, self._prompt, self._limit = answerer, prompt, limit

    def ask(
        self, records: list[Record], contexts: list[str], prose: Haystack | None, length: int
    ) -> list[Record]:
        """Asks every record two or three times: see `_settings`.

        Args:
            records: see above.
            contexts: different paragraphs, the records' own among them.
            prose: the text of a full window; None: none is asked.
            length: tokens of the full window's prompt.

        Returns:
            Trials with `setting`, `em` and `f1`.

        Raises:
            LongctxError: a paragraph does not fit.
        """
        questions = [self._prompt.question(record["question"])[0].numpy() for record in records]
        prefix = self._prompt.prefix().numpy()
        room = [length - len(prefix) - len(question) for question in questions]
        trials = []
        for setting, documents in self._settings(records, contexts, prose, length, room):
            print(f"natural questions, {setting}", file=sys.stderr, flush=True)
            parts = zip(documents, questions, strict=True)
            prompts = [np.concatenate([prefix, *part]) for part in parts]
            answers = self._answerer.answers(prompts, [self._limit] * len(prompts))
            trials += [_trial(setting, *pair) for pair in zip(records, answers, strict=True)]
        return trials

    def _settings(
        self,
        records: list[Record],
        contexts: list[str],
        prose: Haystack | None,
        length: int,
        room: list[int],
    ) -> Iterator[tuple[str, list[np.ndarray]]]:
        """What stands before the questions, as token ids: names, and a document for each record."""
        yield "alone", self._encoded([record["context"].strip() for record in records])
        if others := min(OTHERS, len(contexts) - 1):
            texts = [among(r, contexts, others, n) for n, r in enumerate(records)]
            yield f"among {others} others", self._encoded(texts)
        if prose is not None:
            yield f"in {length:,} tokens", _embedded(records, room, self._answerer, prose)

    def _encoded(self, texts: list[str]) -> list[np.ndarray]:
        found = self._answerer.backend.encode_batch(texts, add_special_tokens=False)
        return [np.array(encoding.ids) for encoding in found]


def among(record: Record, contexts: list[str], others: int, number: int) -> str:
    """A record's paragraph among others, drawn and put in order by the record's number."""
    rng = random.Random(number)
    more = rng.sample([one for one in contexts if one != record["context"]], others)
    found = [record["context"], *more]
    rng.shuffle(found)
    return "\n\n".join(one.strip() for one in found)


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
            needed = room[i] - len(answerer.backend.encode(context).ids)
            pieces = prose.take(with_slack(needed, attempt), rng)
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
