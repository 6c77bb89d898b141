"""Retrieval cases from a file of frames: a document of an exact length, a question, its answer.

Needles are placed at uniformly drawn depths, at line or sentence ends. Every second case, and all
of some kinds, also have other statements of the same kind, with other keys and values. The answer
and the question's keys are nowhere else in the document. Knows nothing of models.
"""

import random
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from longctx.core.common.errors import LongctxError
from longctx.core.measure.eval.frames import Fact, Heldout
from longctx.core.measure.eval.text_match import holds
from longctx.core.profile.prompt import PromptEncoder
from longctx.profiles.recipe.evaluation.filler import Haystack
from longctx.profiles.recipe.evaluation.fitting import Document, Draft, fit, with_slack

DISTRACTORS = (3, 6)  # fewest and most
ROUNDS = 50  # draws if a case's haystack has its answer, or it gets no exact length


@dataclass(frozen=True)
class Plan:
    """The plan of a case; everything else follows from it and the seed.

    Attributes:
        kind: kind of the fact.
        number: the case's number among those of its kind; decides frame and haystack.
        distractors: the document has other statements of the kind.
        absent: the document lacks the statements that answer the question.
    """

    kind: str
    number: int
    distractors: bool
    absent: bool = False


@dataclass(frozen=True)
class Case:
    """A question to a document.

    Attributes:
        plan: the case's plan.
        haystack: name of the haystack.
        document: the text and its tokens; in `document.needles`, statements that answer come first.
        statements: how many of the needles answer the question; 0 if it has no answer.
        question, answer: what is asked, and the only right answer.
        prompt: (length,) int32, prefix, document and question in its template.
    """

    plan: Plan
    haystack: str
    document: Document
    statements: int
    question: str
    answer: str
    prompt: np.ndarray

    @property
    def depth(self) -> float | None:
        """Where the answer is, from 0 to 1; None if there is none."""
        if not self.statements:
            return None
        return self.document.needles[0][0] / len(self.document.ids)


def retrieval_plans(kind: str, count: int) -> list[Plan]:
    """Cases of one kind, every second one with distractors."""
    return [Plan(kind, number, distractors=number % 2 == 1) for number in range(count)]


def refusal_plans(kinds: list[str], count: int) -> list[Plan]:
    """Cases of several kinds with distractors; every second document lacks the answer."""
    plans = []
    for number in range(count):
        kind = kinds[number // 2 % len(kinds)]
        plans.append(Plan(kind, number // (2 * len(kinds)), True, absent=number % 2 == 0))
    return plans


class CaseBuilder:
    """Builds cases for one tokenizer.

    Args:
        heldout: the frames.
        haystacks: texts to hide needles in; cases use them in turn.
        prompt: encodes prefix and question.
        backend: tokenizes documents; special tokens written in them must be plain text.
        seed: decides values, haystacks and depths.
    """

    def __init__(
        self,
        heldout: Heldout,
        haystacks: list[Haystack],
        prompt: PromptEncoder,
        backend: Tokenizer,
        seed: int,
    ):
        self._heldout, self._haystacks, self._prompt = heldout, haystacks, prompt
        self._backend, self._seed = backend, seed
        self._prefix = prompt.prefix().numpy()

    def build(self, plans: list[Plan], length: int) -> list[Case]:
        """Cases whose prompts have exactly `length` tokens, in the order of the plans.

        Raises:
            UsageError: a haystack is too short.
            LongctxError: the values cannot be kept apart from the haystacks.
        """
        made: dict[int, Case] = {}
        for attempt in range(ROUNDS):
            missing = [index for index in range(len(plans)) if index not in made]
            if not missing:
                return [made[index] for index in range(len(plans))]
            tries = {i: self._sketch(plans[i], length, attempt) for i in missing}
            sketches = {i: sketch for i, sketch in tries.items() if sketch is not None}
            documents = fit([sketch.draft for sketch in sketches.values()], self._backend)
            for (index, sketch), document in zip(sketches.items(), documents, strict=True):
                if document is not None:
                    made[index] = self._case(plans[index], sketch, document)
        raise LongctxError(
            f"cannot make {len(plans)} cases of {plans[0].kind!r} with {length:,} tokens",
            f"{len(plans) - len(made)} are missing after {ROUNDS} draws",
            "Give longer prompts, other haystacks, or frames whose values are rarer.",
        )

    def _sketch(self, plan: Plan, length: int, attempt: int) -> "_Sketch | None":
        """Draws facts and haystack; None if the haystack or another fact gives too much away."""
        rng = random.Random(f"{self._seed} {plan} {length} {attempt}")
        frames = self._heldout.kinds[plan.kind].frames
        # Each round of frames moves on by one haystack, so that every frame gets every haystack.
        turn = plan.number + plan.number // len(frames)
        haystack = self._haystacks[turn % len(self._haystacks)]
        fact = self._heldout.fact(frames[plan.number % len(frames)], rng)
        needles = self._needles(plan, fact, rng)
        question = self._prompt.question(fact.question)[0].numpy()
        tokens = length - len(self._prefix) - len(question)
        room = with_slack(tokens - self._tokens(needles), attempt)
        pieces = haystack.take(room, rng)
        own = 0 if plan.absent else len(fact.statements)
        rest = "\n".join(["".join(pieces), *(text for _, text in needles[own:])])
        if any(holds(rest, secret) for secret in fact.secrets):
            return None
        return _Sketch(fact, haystack.name, own, question, Draft(pieces, needles, tokens))

    def _needles(self, plan: Plan, fact: Fact, rng: random.Random) -> list[tuple[float, str]]:
        """(depth, statement) of the fact, unless absent, and of the distractors."""
        kind = self._heldout.kinds[plan.kind]
        told = [*([] if plan.absent else [fact]), *self._others(plan, fact, rng)]
        needles = []
        for each in told:
            depths = [rng.random() for _ in each.statements]
            needles += zip(sorted(depths) if kind.ordered else depths, each.statements, strict=True)
        return needles

    def _others(self, plan: Plan, fact: Fact, rng: random.Random) -> list[Fact]:
        """Distractors: the same frame with other keys, or other frames if it has no key."""
        kind = self._heldout.kinds[plan.kind]
        count = rng.randint(*DISTRACTORS) if plan.distractors else 0
        frames = [fact.frame] * (kind.siblings - 1 if kind.siblings else count)
        if not fact.frame.keys:
            frames = rng.sample([frame for frame in kind.frames if frame != fact.frame], count)
        taken, others = set(fact.values.values()), []
        for frame in frames:
            draw = self._heldout.sibling if kind.siblings else self._heldout.fact
            others.append(draw(fact if kind.siblings else frame, rng, taken))
            taken.update(others[-1].values.values())
        return others

    def _tokens(self, needles: list[tuple[float, str]]) -> int:
        return sum(len(self._backend.encode(f"{text}\n").ids) for _, text in needles)

    def _case(self, plan: Plan, sketch: "_Sketch", document: Document) -> Case:
        return Case(
            plan=plan,
            haystack=sketch.haystack,
            document=document,
            statements=sketch.own,
            question=sketch.fact.question,
            answer=self._heldout.absent_answer if plan.absent else sketch.fact.answer,
            prompt=np.concatenate([self._prefix, document.ids, sketch.question]).astype(np.int32),
        )


@dataclass(frozen=True)
class _Sketch:
    """A case before its document has an exact length; `own` needles answer the question."""

    fact: Fact
    haystack: str
    own: int
    question: np.ndarray
    draft: Draft
