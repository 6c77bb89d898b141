"""Asks a page: questions that exactly one of its records answers, and some that none does.

A question without an answer has the wording of one with an answer, and names something that the
page does not say: fields of a record that is not in it, or fields of two records together.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence

from longctx.profiles.recipe.data.asked import AskedDocument, Question, Span
from longctx.profiles.recipe.data.facts.phrasing import choose
from longctx.profiles.recipe.data.facts.templates import SLOT
from longctx.profiles.recipe.data.made.pages import Line, Page, Record
from longctx.profiles.recipe.data.made.wordings import Wording

ABSENT = 0.05  # share of the questions without an answer
TRIES = 25  # for each question, before a page is left with fewer
CHOOSING = 0.6  # of the questions for the first, last, most or least that are passed over
FIGURES = re.compile(r"[\d.,]+")
CHOICES: dict[str, Callable[[list[Record], str], list[Record]]] = {
    "": lambda records, by: records,
    "first": lambda records, by: records[:1],
    "last": lambda records, by: records[-1:],
    "most": lambda records, by: extreme(records, by, max),
    "least": lambda records, by: extreme(records, by, min),
}


def extreme(records: list[Record], by: str, end: Callable[..., float]) -> list[Record]:
    """Those with the largest or smallest number in a field, if there are others to compare."""
    numbers = [number(record.fields.get(by, "")) for record in records]
    known = [value for value in numbers if value is not None]
    units = {FIGURES.sub("", record.fields.get(by, "")) for record in records}
    if len(known) < 3 or len(known) < len(numbers) or len(units) > 1:
        return []
    best = end(known)
    return [record for record, value in zip(records, numbers, strict=True) if value == best]


def number(text: str) -> float | None:
    """The number of a field, without its unit."""
    found = re.search(r"\d[\d,]*(\.\d+)?", text)
    return float(found[0].replace(",", "")) if found else None


def asked(
    page: Page, wordings: Mapping[str, Sequence[Wording]], rng: random.Random
) -> AskedDocument:
    """The page with 4 to 12 questions, fewer if it does not say enough."""
    text, spans = page.laid_out()
    asking = Asking(page, wordings, spans, rng)
    questions: dict[tuple[str | None, object], Question] = {}
    for _ in range(rng.randint(4, 12)):
        draw = asking.absent if rng.random() < ABSENT else asking.one
        drawn = (draw() for _ in range(TRIES))
        found = next((one for one in drawn if one and key(one) not in questions), None)
        if found:
            questions[key(found)] = found
    return AskedDocument(page.kind, text, tuple(questions.values()))


def key(question: Question) -> tuple[str | None, object]:
    """What no two questions of a page have in common."""
    return question.answer, question.evidence or question.text


class Asking:
    """Makes questions for one page."""

    def __init__(
        self,
        page: Page,
        wordings: Mapping[str, Sequence[Wording]],
        spans: Mapping[Line, Span],
        rng: random.Random,
    ):
        self.page, self.wordings, self.spans, self.rng = page, wordings, spans, rng
        self.of_kind: dict[str, list[Record]] = {}
        for record in page.records:
            self.of_kind.setdefault(record.kind, []).append(record)
        self.kinds = [kind for kind in self.of_kind if wordings.get(kind)]

    def one(self) -> Question | None:
        """A question with an answer, if the draw is one."""
        kind = self.rng.choice(self.kinds)
        wording = self.rng.choice(self.wordings[kind])
        record = self.rng.choice(self.of_kind[kind])
        if not answers(record, wording, record.fields):
            return None
        if wording.choice and self.rng.random() < CHOOSING:
            return None
        fitting = [r for r in self.of_kind[kind] if fits(r, wording, record.fields)]
        meant = CHOICES[wording.choice](fitting, wording.by)
        if len(meant) != 1 or not answers(meant[0], wording, record.fields):
            return None
        wanted = filled(wording.answer, meant[0].fields)
        lines = meant[0].lines(wording.fields())
        evidence = tuple(sorted(self.spans[line] for line in lines))
        question = self.worded(wording, record.fields)
        if wanted.lower() in question.lower():
            return None
        return Question(question, wanted, evidence)

    def absent(self) -> Question | None:
        """A question without an answer, if the draw is one."""
        kind = self.rng.choice(self.kinds)
        wording = self.rng.choice(self.wordings[kind])
        if not wording.given:
            return None
        hidden = [record for record in self.page.hidden if record.kind == kind]
        one = self.rng.choice(hidden or self.of_kind[kind])
        fields = dict(one.fields)
        if len(wording.given) > 1 or wording.having:
            other = self.rng.choice(self.of_kind[kind])
            name = self.rng.choice(wording.given)
            fields[name] = other.fields.get(name, fields.get(name, ""))
        if not all(fields.get(name) for name in (*wording.given, *wording.wanted)):
            return None
        if any(fits(record, wording, fields) for record in self.of_kind[kind]):
            return None
        return Question(self.worded(wording, fields), None, ())

    def worded(self, wording: Wording, fields: Mapping[str, str]) -> str:
        """The question in words."""
        text = filled(choose(wording.text, self.rng), fields)
        return text[0].upper() + text[1:]


def fits(record: Record, wording: Wording, fields: Mapping[str, str]) -> bool:
    """Whether a record is one that a question with these fields may mean."""
    own = record.fields
    return all(own.get(name, "").lower() == fields[name].lower() for name in wording.given) and all(
        own.get(name) == value for name, value in wording.having
    )


def answers(record: Record, wording: Wording, fields: Mapping[str, str]) -> bool:
    """Whether a record fits a question and has the fields of its answer."""
    named = all(name in fields for name in wording.given)
    return (
        named
        and all(record.fields.get(name) for name in wording.wanted)
        and fits(record, wording, fields)
    )


def filled(template: str, fields: Mapping[str, str]) -> str:
    """A template with the fields of a record."""
    return SLOT.sub(lambda match: fields[match[1]], template)
