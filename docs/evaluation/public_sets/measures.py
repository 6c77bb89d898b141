"""What is counted of each result: measures of a set, each with the questions it is counted over."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from public_sets import amounts, rule
from public_sets.items import PublicSet, Question, Record

PAGES = (1, 3, 10)  # passages among which the right page may be
TURNS = 5  # turns among which all evidence must be
PASSAGES = 16  # passages in which all figures must be, of about 128 tokens each


@dataclass(frozen=True)
class Measure:
    """A row of the table.

    Attributes:
        name: what is counted.
        kind: `answer`, `refusal` (of questions without an answer), `false refusal`, or `passages`.
        by: the group of questions with and without an answer that belong together.
    """

    name: str
    kind: str
    by: str = ""


Scores = Iterator[tuple[Measure, bool]]


def of_lara(found: PublicSet, question: Question, record: Record) -> Scores:
    """Figures, words and refusals of an answer; figures among the passages of a search."""
    kind = question.part.split()[0]
    if "answer" not in record:
        needed = rule.wanted(question.text, question.right)
        if needed and question.answerable:
            text = _text(found, question, record["passages"][:PASSAGES])
            holds = rule.holds_figures(question.text, question.right, text)
            name = f"{question.part}: figures in the first {PASSAGES} passages"
            yield Measure(name, "passages"), holds
        return
    said = verdict(found, question, record["answer"])
    if not question.answerable:
        yield Measure(f"{kind}: refused, not in the text", "refusal", kind), said.said == rule.RIGHT
        return
    yield Measure(f"{question.part}: {said.by}", "answer"), said.said == rule.RIGHT
    refused = said.said == rule.REFUSED
    yield Measure(f"{kind}: refused, in the text", "false refusal", kind), refused


def of_locomo(found: PublicSet, question: Question, record: Record) -> Scores:
    """Whether the first turns of a search have all evidence."""
    if not question.evidence:
        return
    turns = {
        (one.source, one.start, one.end) for one in seen_turns(found, question.document, record)
    }
    needed = {(one.source, one.start, one.end) for one in question.evidence}
    for part in ("all", question.part):
        name = f"{part}: all evidence in the first {TURNS} turns"
        yield Measure(name, "passages"), needed <= turns


def seen_turns(found: PublicSet, document: str, record: Record) -> list["Turn"]:
    """The first turns that a search shows.

    Of a passage, the turn with the matching line is first, then the others in their order; one
    counts if most of its bytes are in the passage.
    """
    seen: dict[Turn, None] = {}
    for spot in record["passages"]:
        spans = _turns(found, document).get(spot["source"], [])
        start, end = spot["start"], spot["end"]
        inside = [t for t in spans if min(end, t.end) - max(start, t.start) > (t.end - t.start) / 2]
        match = spot.get("match", (start,))[0]
        for turn in sorted(inside, key=lambda turn: not turn.start <= match < turn.end):
            seen[turn] = None
        if len(seen) >= TURNS:
            break
    return [*seen][:TURNS]


@dataclass(frozen=True)
class Turn:
    """A turn of a conversation: bytes of a source."""

    source: str
    start: int
    end: int


_known_turns: dict[tuple[str, str, str], dict[str, list[Turn]]] = {}


def _turns(found: PublicSet, document: str) -> dict[str, list[Turn]]:
    """The turns of a conversation by their source: paragraphs that are not headings."""
    key = found.digest, found.name, document
    if key not in _known_turns:
        known = _known_turns[key] = {}
        for source, data in found.documents[document].items():
            at, known[source] = 0, []
            for line in data.split(b"\n"):
                if line and not line.startswith(b"## "):
                    known[source].append(Turn(source, at, at + len(line)))
                at += len(line) + 1
    return _known_turns[key]


def of_financebench(found: PublicSet, question: Question, record: Record) -> Scores:
    """The page of a search; the figure of an answer, or its words."""
    if "answer" not in record:
        needed = {(one.source, one.key) for one in question.evidence}
        for most in PAGES:
            shown = {pair for spot in record["passages"][:most] for pair in _pages(spot)}
            name = f"the right page in the first {most}" if most > 1 else "the right page first"
            yield Measure(name, "passages"), bool(needed & shown)
        return
    said = verdict(found, question, record["answer"])
    name = "figures within 1%" if said.by == "figures" else said.by
    yield Measure(name, "answer"), said.said == rule.RIGHT
    yield Measure("refused, in the text", "false refusal"), said.said == rule.REFUSED


def verdict(found: PublicSet, question: Question, answer: str) -> rule.Verdict:
    """The verdict on an answer by the rule of its set: figures of filings may differ by 1%."""
    text, right, words = question.text, question.right, question.words
    if found.name != "financebench":
        return rule.verdict(text, right, answer, words, question.answerable)
    given = rule.first_words(answer, words)
    by = "figures" if amounts.wanted(text, right) else "words"
    if rule.is_empty(given):
        return rule.Verdict(rule.EMPTY, by)
    if by == "figures":
        holds = amounts.holds(text, right, given)
    else:
        holds = rule.holds_words(text, right, given, rule.F1[words])
    if holds:
        return rule.Verdict(rule.RIGHT, by)
    return rule.Verdict(rule.REFUSED if rule.refuses(given) else rule.WRONG, by)


def _pages(spot: Record) -> set[tuple[str, str]]:
    """The pages by which a passage is cited: where it begins, and where its best line is."""
    places = {spot["place"], *spot.get("match", ())[2:]}
    return {(spot["source"], place) for place in places}


def _text(found: PublicSet, question: Question, spots: list[Record]) -> str:
    sources = found.documents[question.document]
    pieces = [sources[spot["source"]][spot["start"] : spot["end"]] for spot in spots]
    return "\n".join(piece.decode("utf-8", errors="replace") for piece in pieces)


MEASURES: dict[str, Callable[[PublicSet, Question, Record], Scores]] = {
    **{"lara": of_lara, "financebench": of_financebench},
    **{"locomo": of_locomo, "locomo-files": of_locomo},
}
