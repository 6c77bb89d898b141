"""What is read to find heads: sentences hidden in prose, and needles to be copied.

REFORM, appendix C.2: key/value sentences (a pattern), and two facts that must be joined. The
material is *ours*: prose of the samples, and values of `core/measure/niah/words.py`. Distractors
of the same form are placed among the sentences that are asked for.
"""

import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

from torch import Tensor

from longctx.core.common.errors import UsageError
from longctx.core.measure.case import CaseQuestion
from longctx.core.measure.haystack import Builder, Group
from longctx.core.measure.niah import words
from longctx.core.measure.niah.kinds import MAKERS, Needle
from longctx.core.measure.niah.laying import Laid, NeedleChoice, lay
from longctx.core.measure.niah.variants import Variant
from longctx.core.measure.prose import Prose, paragraphs

PATTERN, MULTI_HOP = TASKS = ("pattern", "multi-hop")
SENTENCES = 4  # key/value sentences of a sample; one is asked for
PAIRS = 3  # pairs of facts; one is asked for
SIGNS, SIGN_COUNT = string.ascii_letters + string.digits, 10
GRID = 16  # sentences are at different multiples of 1/GRID of the prose
KINDS = ("number", "name", "phrase", "date", "passkey", "uuid")  # of needles to be copied
NEEDLES = 5  # in one haystack, at evenly spaced depths
SHORTEST = 8  # words of a paragraph of prose; shorter ones are headings and lists

# Two facts that share a person, and a question that needs both. The text also has pairs of the same
# form about other people.
FRAMES = (
    (
        "The old ferry at {city} belongs to {person}.",
        "{person} spends every winter in {other}.",
        "Where does the owner of the old ferry at {city} spend every winter?",
        "{other}",
    ),
    (
        "The clock tower of {city} was repaired by {person}.",
        "{person} never travels without the {colour} {thing}.",
        "What does the person who repaired the clock tower of {city} never travel without?",
        "the {colour} {thing}",
    ),
    (
        "The bakery on the square of {city} was opened by {person}.",
        "{person} was married in {month} {year}.",
        "When was the person married who opened the bakery on the square of {city}?",
        "{month} {year}",
    ),
    (
        "{person} is the only doctor who still practises in {city}.",
        "{person} shares a house with the {colour} {animal}.",
        "Which animal shares a house with the only doctor who still practises in {city}?",
        "the {colour} {animal}",
    ),
    (
        "The archive of {city} is locked up every night by {person}.",
        "{person} plays chess by letter with somebody in {other}.",
        "From which city come the chess letters of whoever locks up the archive of {city}?",
        "{other}",
    ),
)


@dataclass(frozen=True)
class TaskSample:
    """A document with a question.

    Attributes:
        ids: (N,) the document's token ids.
        gold: [first, end) tokens of each sentence that the question needs.
        needle: what is asked for, with distractors.
    """

    ids: Tensor
    gold: tuple[tuple[int, int], ...]
    needle: Needle


def prose() -> Prose:
    """All texts that come with the package, without headings and lists."""
    files = sorted(resources.files("longctx.samples").iterdir(), key=lambda file: file.name)
    texts = [file.read_text("utf-8") for file in files if file.name.endswith(".md")]
    lines = dict.fromkeys(line for text in texts for line in paragraphs(text))
    return Prose(
        tuple(line for line in lines if line[0].isalpha() and len(line.split()) >= SHORTEST)
    )


class Samples:
    """Makes samples for one tokenizer.

    Args:
        builder: of the tokenizer and the prose.
        length: tokens of every document.
        seed: of all samples.

    Raises:
        UsageError: the length is too short.
    """

    def __init__(self, builder: Builder, length: int, seed: int):
        self._builder, self._length, self._seed = builder, length, seed
        for task in TASKS:
            self._require_length(WRITERS[task](random.Random(seed), builder.prose))

    def make(self, task: str, number: int) -> TaskSample:
        """A sample; the same number gives the same one.

        Raises:
            LongctxError: the tokenizer gives no exact length.
        """
        name = f"{task}/{number}"
        draw = random.Random(f"{self._seed}/{name}")
        needle = WRITERS[task](draw, self._builder.prose)
        lines = [*needle.lines, *needle.near]
        draw.shuffle(lines)
        places = sorted(draw.sample(range(1, GRID), len(lines)))
        groups = [Group(at / GRID, (line,)) for at, line in zip(places, lines, strict=True)]
        built = self._builder.build(groups, self._length, f"prose/{self._seed}/{name}")
        placed = {line: own for line, (own,) in zip(lines, built.places, strict=True)}
        gold = [built.tokens(placed[line].start, placed[line].end) for line in needle.lines]
        return TaskSample(built.ids, tuple(gold), needle)

    def _require_length(self, needle: Needle) -> None:
        lines = [*needle.lines, *needle.near]
        groups = [Group(at / GRID, (line,)) for at, line in enumerate(lines, start=1)]
        try:
            self._builder.require_length(self._length, groups)
        except UsageError as error:
            what = f"samples of {self._length:,} tokens are too short"
            raise UsageError(what, error.why, "Give a larger --length.") from error


# --- what is hidden -----------------------------------------------------------------------------


def _pattern(draw: random.Random, prose: Prose) -> Needle:
    """Sentences of random keys and values."""
    signs = ["".join(draw.choices(SIGNS, k=SIGN_COUNT)) for _ in range(2 * SENTENCES)]
    pairs = list(zip(signs[::2], signs[1::2], strict=True))
    lines = [f"The value corresponding to the id {key} is {value}." for key, value in pairs]
    key, value = pairs[0]
    question = f"What is the value corresponding to the id {key}?"
    return Needle(PATTERN, (lines[0],), question, value, near=tuple(lines[1:]))


def _multi_hop(draw: random.Random, prose: Prose) -> Needle:
    """Pairs of facts about people and cities that the prose does not name."""
    frame = draw.choice(FRAMES)
    cities = draw.sample(prose.cities, 2 * PAIRS)
    people = _people(draw, prose)
    pairs = zip(people, cities[::2], cities[1::2], strict=True)
    (first, second, question, answer), *rest = (_fact(frame, draw, *each) for each in pairs)
    others = tuple(line for each in rest for line in each[:2])
    return Needle(MULTI_HOP, (first, second), question, answer, near=others)


def _people(draw: random.Random, prose: Prose) -> list[str]:
    """Names that have no part in common."""
    firsts = draw.sample(words.FIRST_NAMES, len(words.FIRST_NAMES))
    lasts = draw.sample(words.LAST_NAMES, len(words.LAST_NAMES))
    names = (f"{first} {last}" for first, last in zip(firsts, lasts, strict=False))
    return [name for name in names if not prose.has(name)][:PAIRS]


def _fact(
    frame: tuple[str, ...], draw: random.Random, person: str, city: str, other: str
) -> list[str]:
    """A filled frame."""
    values = {
        "person": person,
        "city": city,
        "other": other,
        "colour": draw.choice(words.COLOURS),
        "thing": draw.choice(words.THINGS),
        "animal": draw.choice(words.ANIMALS),
        "month": draw.choice(words.MONTHS),
        "year": draw.randint(1701, 1999),
    }
    return [text.format(**values) for text in frame]


WRITERS: dict[str, Callable[[random.Random, Prose], Needle]] = {
    PATTERN: _pattern,
    MULTI_HOP: _multi_hop,
}


# --- needles to be copied -------------------------------------------------------------------------


class Haystacks:
    """Makes haystacks for one tokenizer.

    Args:
        builder: of the tokenizer and the prose.
        length: tokens of every document.
        seed: of all haystacks.

    Raises:
        UsageError: the length is too short for the needles.
    """

    def __init__(self, builder: Builder, length: int, seed: int):
        self._builder, self._length = builder, length
        self._needles = NeedleChoice(Variant("copying", KINDS), MAKERS, NEEDLES, seed=seed)
        try:
            self._needles.plans(builder, length, 0)
        except UsageError as error:
            what = f"cannot look for retrieval heads in a window with room for {length:,} tokens"
            remedy = "Give a larger --length, or use a model with a longer window."
            raise UsageError(what, error.why, remedy) from error

    def make(self, number: int) -> Laid:
        """A haystack; the same number gives the same one.

        Raises:
            LongctxError: the tokenizer gives no exact length.
        """
        (plan,) = self._needles.plans(self._builder, self._length, number)
        return lay(self._builder, plan)


def value_tokens(laid: Laid, query: CaseQuestion) -> range:
    """The tokens of a needle's value; the first may include the space before it."""
    value, line = query.answers[0].encode(), query.spans[0]
    begin = laid.case.text.encode().index(value, line.start, line.end)
    return range(*laid.haystack.tokens(begin, begin + len(value)))
