"""One table of all systems: what each got right, how sure that is, and the difference from one."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from longctx.core.measure.intervals import wilson
from longctx.core.measure.markdown import table
from public_sets import rule
from public_sets.compare import difference, p_value
from public_sets.items import PublicSet, Question
from public_sets.measures import MEASURES, Measure
from public_sets.results import Results

HEADS = ("measure", "system", "right", "95%", "difference", "95%, p", "words", "empty")


@dataclass(frozen=True)
class System:
    """What is compared.

    Attributes:
        name: in the table.
        results: by question.
        suffix: added to the names of its measures (`, in one library`).
    """

    name: str
    results: Results
    suffix: str = ""


Scored = dict[Measure, dict[str, bool]]  # by the names of questions


def report(
    found: PublicSet, questions: Sequence[Question], systems: Sequence[System], against: str | None
) -> str:
    """The table.

    Args:
        found: the set.
        questions: those that are counted.
        systems: in the order of the rows.
        against: the system that others are compared with; None: nobody.
    """
    scored = [(system, _scored(found, questions, system)) for system in systems]
    order = {measure: None for _, each in scored for measure in each}
    rows = []
    for measure in sorted(order, key=lambda one: _place(found, one)):
        bases = [each[measure] for s, each in scored if s.name == against and measure in each]
        for system, each in scored:
            if hits := each.get(measure):
                base = bases[0] if bases and system.name != against else None
                rows.append(_row(measure, system, hits, base, each))
    return table(HEADS, rows)


def _scored(found: PublicSet, questions: Sequence[Question], system: System) -> Scored:
    scored: Scored = {}
    for question in questions:
        if (record := system.results.get(question.name)) is not None:
            for measure, hit in MEASURES[found.name](found, question, record):
                named = Measure(f"{measure.name}{system.suffix}", measure.kind, measure.by)
                scored.setdefault(named, {})[question.name] = hit
    return scored


def _place(found: PublicSet, measure: Measure) -> int:
    """Measures stand in the order of the parts of the set."""
    parts = [*dict.fromkeys(question.part for question in found.questions)]
    known = [number for number, part in enumerate(parts) if measure.name.startswith(part)]
    return known[0] if known else len(parts)


def _row(
    measure: Measure,
    system: System,
    hits: dict[str, bool],
    base: dict[str, bool] | None,
    scored: Scored,
) -> list[str]:
    answers = [system.results[name].get("answer") for name in hits]
    given = [len(answer.split()) for answer in answers if answer]
    words = f"{median(given):.0f}" if given else ""
    empty = str(sum(answer is not None and rule.is_empty(answer) for answer in answers) or "")
    if measure.kind == "refusal" and not _has_answers(measure, scored):
        counted = "not counted: the run has no answers to what is in the text"
        return [measure.name, system.name, counted, "", "", "", words, empty]
    right, total = sum(hits.values()), len(hits)
    low, high = wilson(right, total)
    cells = [measure.name, system.name, f"{right} of {total}", f"{low:.0%} to {high:.0%}"]
    return [*cells, *_against(hits, base), words, empty]


def _has_answers(measure: Measure, scored: Scored) -> bool:
    """Whether the same run was asked what is in the text: else refusing all would be best."""
    return any(one.kind == "false refusal" and one.by == measure.by for one in scored)


def _against(hits: dict[str, bool], base: dict[str, bool] | None) -> tuple[str, str]:
    """The difference on the questions that both have, in percentage points."""
    pairs = [(hit, base[name]) for name, hit in hits.items() if name in base] if base else []
    if not pairs:
        return "", ""
    mean, low, high = (100 * value for value in difference(pairs))
    of = f" (of {len(pairs)})" if len(pairs) < len(hits) else ""
    return f"{mean:+.1f}{of}", f"{low:+.1f} to {high:+.1f}, p {_p(p_value(pairs))}"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
