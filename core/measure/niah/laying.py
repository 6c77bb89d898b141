"""Plans which needles go where; haystacks are then built one at a time.

Impossible requests are refused while planning, before anything is read. Needs only a model's
tokenizer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from longctx.core.common.errors import UsageError
from longctx.core.measure.case import Case, CaseQuestion, Span
from longctx.core.measure.haystack import Builder, Group, Haystack, NeedlePlace, depths
from longctx.core.measure.niah.drawing import Draw
from longctx.core.measure.niah.kinds import Maker, Needle
from longctx.core.measure.niah.variants import Variant
from longctx.core.measure.prose import Prose


@dataclass(frozen=True)
class Hidden:
    """A needle and its depth: the share of the prose before it and its neighbours."""

    depth: float
    needle: Needle


@dataclass(frozen=True)
class Plan:
    """A haystack that is not built yet.

    Attributes:
        name: unique in a run.
        length: tokens, needles included.
        trial: its number among haystacks of its length.
        hidden: its needles, by depth.
        seed: seed of the order of its prose.
    """

    name: str
    length: int
    trial: int
    hidden: tuple[Hidden, ...]
    seed: str

    @property
    def groups(self) -> list[Group]:
        """All lines by depth; distractors are midway between two depths."""
        lines: dict[float, list[str]] = {}
        for each in self.hidden:
            lines.setdefault(each.depth, []).extend(each.needle.lines)
        midways = [(a + b) / 2 for a, b in pairwise(sorted({0.0, *lines, 1.0}))]
        for number, each in enumerate(self.hidden):
            for place, line in enumerate(each.needle.near):
                lines.setdefault(midways[(number + place) % len(midways)], []).append(line)
        return [Group(depth, tuple(lines[depth])) for depth in sorted(lines)]


@dataclass(frozen=True)
class Laid:
    """A haystack with its questions.

    Attributes:
        plan: the plan it was built from.
        haystack: the text and its tokens.
        case: the text, and a query for every needle.
        tokens: the first token of each needle.
    """

    plan: Plan
    haystack: Haystack
    case: Case
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class NeedleChoice:
    """Which needles every haystack hides.

    Attributes:
        variant: their kinds, and how many there are at a depth.
        makers: makers of needles, by kind.
        depths: number of depths, evenly spaced.
        times: multiplies the variant's number of needles at a depth.
        strict: each needle has its own haystack.
        seed: with length and trial, the seed of values and prose.
    """

    variant: Variant
    makers: Mapping[str, Maker]
    depths: int
    times: int = 1
    strict: bool = False
    seed: int = 0

    def plans(self, builder: Builder, length: int, trial: int) -> list[Plan]:
        """The haystacks of a length and trial: one, or, if strict, one for every needle.

        Raises:
            UsageError: no depths, no needles, too many to tell apart, or too short a length.
        """
        if self.times < 1:
            raise UsageError(f"cannot hide {self.times} needles", "", "Give --needles 1 or more.")
        seed = f"{self.seed}/{length}/{trial}/{self.variant.name}"
        hidden = [*self._hidden(builder.prose, seed, trial)]
        whole = Plan(f"{length}/{trial}", length, trial, tuple(hidden), f"prose/{seed}")
        plans = [*_parts(whole)] if self.strict else [whole]
        for plan in plans:
            builder.require_length(length, plan.groups)
        return plans

    def _hidden(self, prose: Prose, seed: str, trial: int) -> Iterator[Hidden]:
        each, kinds = self.times * self.variant.at_once, self.variant.kinds
        draw = Draw(self.makers, prose, f"needles/{seed}")
        for number, depth in enumerate(d for d in depths(self.depths) for _ in range(each)):
            if self.strict:
                draw = Draw(self.makers, prose, f"needles/{seed}/{number}")
            yield Hidden(depth, draw.needle(kinds[(number + trial) % len(kinds)]))


def _parts(plan: Plan) -> Iterator[Plan]:
    """A separate plan for each needle."""
    for number, each in enumerate(plan.hidden):
        name, seed = f"{plan.name}/{number}", f"{plan.seed}/{number}"
        yield replace(plan, name=name, hidden=(each,), seed=seed)


def lay(builder: Builder, plan: Plan) -> Laid:
    """Builds a haystack.

    Raises:
        LongctxError: the tokenizer gives no exact length.
    """
    groups = plan.groups
    haystack = builder.build(groups, plan.length, plan.seed)
    queries, tokens = [], []
    for each in plan.hidden:
        places, needle = _own(groups, haystack, each), each.needle
        spans = tuple(Span(place.start, place.end) for place in places)
        queries.append(CaseQuestion(needle.kind, needle.question, (needle.value,), spans))
        tokens.append(places[0].token)
    return Laid(plan, haystack, Case(plan.name, haystack.text, tuple(queries)), tuple(tokens))


def _own(groups: Sequence[Group], haystack: Haystack, hidden: Hidden) -> Sequence[NeedlePlace]:
    """Where a needle's lines are."""
    at = next(number for number, group in enumerate(groups) if group.depth == hidden.depth)
    first = groups[at].lines.index(hidden.needle.lines[0])
    return haystack.places[at][first : first + len(hidden.needle.lines)]


def make_cases(
    builder: Builder, needles: NeedleChoice, length: int, trials: int = 1
) -> Iterator[Laid]:
    """Haystacks of a length, one after another.

    Args:
        builder: holds a tokenizer and the prose.
        needles: what to hide.
        length: tokens of every haystack.
        trials: number of haystacks, or of sets of them if strict.

    Raises:
        UsageError: too short a length for the needles, or too many needles; before the first.
        LongctxError: the tokenizer gives no exact length.
    """
    plans = [plan for trial in range(trials) for plan in needles.plans(builder, length, trial)]
    for plan in plans:
        yield lay(builder, plan)
