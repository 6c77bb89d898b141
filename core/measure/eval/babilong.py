"""BABILong (Kuratov et al., 2024): the facts of a bAbI story, in order, spread over prose.

Files have the format of the bAbI tasks: numbered lines; a question is followed, after tabs, by its
answer and the numbers of the lines that give it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from longctx.core.common.errors import UsageError
from longctx.core.measure.case import Case, CaseQuestion, Span, Task
from longctx.core.measure.eval import data_files
from longctx.core.measure.eval.filling import Count, UnitStream, counter, fill, spread
from longctx.core.measure.eval.scorers import labels_in, only_label
from longctx.core.measure.prose import Prose

MAX_NEW_TOKENS = 32
ASK = "{question} Answer with one of these alone: {labels}."
ASK_SEVERAL = "{question} Answer with one or more of these alone: {labels}."
ASK_PATH = "{question} Answer with these alone, in order, each as often as needed: {labels}."
FORM = "Give files of the bAbI tasks, such as qa1_single-supporting-fact_test.txt."


@dataclass(frozen=True)
class Story:
    """Facts, and a question about them.

    Attributes:
        facts: all facts before the question.
        supports: indices of the facts that give the answer.
        question, answer: as in the file.
    """

    facts: tuple[str, ...]
    supports: tuple[int, ...]
    question: str
    answer: str


@dataclass(frozen=True)
class Babi:
    """The stories of a file.

    Attributes:
        name: the task's, such as qa1.
        stories: one for each question.
        labels: all words that are answers in the file.
    """

    name: str
    stories: tuple[Story, ...]
    labels: frozenset[str]

    @property
    def several(self) -> bool:
        """Whether an answer may have more than one label."""
        return any("," in story.answer for story in self.stories)

    @property
    def ordered(self) -> bool:
        """Whether answers are paths, in which the order and number of labels matter.

        They are if an answer has a label twice, or if the same labels come in several orders and no
        answer is a single label. (Lists of things also come in any order, but may be short.)
        """
        answers = {tuple(story.answer.split(",")) for story in self.stories}
        repeated = any(len({*answer}) < len(answer) for answer in answers)
        several = all(len(answer) > 1 for answer in answers)
        return repeated or (several and len({*map(frozenset, answers)}) < len(answers))

    @property
    def ask(self) -> str:
        """The template of a question; it lists the labels."""
        if self.ordered:
            return ASK_PATH
        return ASK_SEVERAL if self.several else ASK


def read_babi(path: Path) -> Babi:
    """Reads a file of stories; its name begins with the task's.

    Raises:
        UsageError: there is no such file, it has no question, or it has an invalid line.
        UnreadableInput: it is not UTF-8 text.
    """
    text = data_files.read(path, FORM, convert=FORM)
    stories = tuple(_stories(path, text.splitlines()))
    if not stories:
        raise UsageError(f"no questions in '{path}'", "no line of it has an answer", FORM)
    labels = frozenset(label for story in stories for label in story.answer.split(","))
    known = re.match(r"qa\d+", path.name)
    return Babi(known[0] if known else path.stem, stories, labels)


def read_all(paths: list[Path]) -> dict[str, Babi]:
    """Reads several files; returns them by task name.

    Raises:
        UsageError: as `read_babi`, or two files are of one task.
        UnreadableInput: as `read_babi`.
    """
    read: dict[str, Babi] = {}
    for path in paths:
        babi = read_babi(path)
        if babi.name in read:
            why = f"another file of task {babi.name} was given already"
            raise UsageError(f"cannot use '{path}'", why, "Give each task once.")
        read[babi.name] = babi
    return read


def _stories(path: Path, lines: list[str]) -> Iterator[Story]:
    facts: dict[int, str] = {}
    for place, line in enumerate(lines, 1):
        if not line.strip():
            continue
        told = re.fullmatch(r"(\d+) ([^\t]+)(?:\t([^\t]+)\t([\d ]+))?", line.rstrip())
        if told is None:
            raise _wrong(path, place, line, "it is neither a numbered fact nor a question")
        number, said = int(told[1]), told[2].strip()
        if number == 1:
            facts = {}
        if told[3] is None:
            facts[number] = said
            continue
        numbers, supports = list(facts), [int(support) for support in told[4].split()]
        if missing := [support for support in supports if support not in facts]:
            raise _wrong(path, place, line, f"line {missing[0]} of its story is no fact before it")
        found = tuple(numbers.index(support) for support in supports)
        yield Story(tuple(facts.values()), found, said, told[3].strip())


def _wrong(path: Path, place: int, line: str, why: str) -> UsageError:
    return UsageError(f"cannot read line {place} of '{path}'", f"{why}: {line[:60]!r}", FORM)


def task(babi: Babi, prose: Prose) -> Task:
    """A task made of a file's stories, each asked at most once per length.

    The seed decides which stories are asked, among those whose facts fit the length; if none fits,
    that is an error.
    """

    def make(tokenizer: Any, length: int, count: int, seed: int) -> Iterator[Case]:
        tokens = counter(tokenizer)
        stories = Random(f"{seed}/{babi.name}").sample(babi.stories, len(babi.stories))
        fitting = (story for story in stories if tokens(" ".join(story.facts) + "\n") <= length)
        some = list(islice(fitting, count)) or stories[:1]  # the first reports the length it needs
        for number, story in enumerate(some):
            case = f"{babi.name}/{length}/{number}"
            yield _case(case, babi, story, prose, Random(f"{seed}/{case}"), length, tokens)

    score = partial(only_label, babi.labels, ordered=babi.ordered)
    return Task(babi.name, make, score, MAX_NEW_TOKENS)


def _case(
    case: str, babi: Babi, story: Story, prose: Prose, draw: Random, length: int, count: Count
) -> Case:
    places = sorted(draw.random() for _ in story.facts)
    units = UnitStream(prose.sentences(draw))
    pieces = [f"{fact} " for fact in story.facts]

    def parts(number: int) -> list[str]:
        return spread(pieces, units.first(number), places)

    def render(number: int) -> str:
        return "".join(parts(number)).rstrip() + "\n"

    text = fill(render, count, length, babi.name)
    question = babi.ask.format(question=story.question, labels=", ".join(sorted(babi.labels)))
    answers = (story.answer, *labels_in(babi.labels, story.question))
    return Case(case, text, (CaseQuestion(babi.name, question, answers, _where(text, story)),))


def _where(text: str, story: Story) -> tuple[Span, ...]:
    """The facts that give the answer. All facts are searched in order, since some occur twice."""
    starts, after = [], 0
    for fact in story.facts:
        starts.append(text.index(fact, after))
        after = starts[-1] + len(fact)
    begins = [
        (len(text[: starts[i]].encode()), len(story.facts[i].encode())) for i in story.supports
    ]
    return tuple(Span(start, start + size) for start, size in begins)
