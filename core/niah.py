"""Needle in a haystack: is a fact found again wherever it stands in a text of a given length?

Each depth has a haystack of its own with all needles side by side: written to a file, ingested into
a library that is thrown away, and asked, by the same calls as any other document. An answer is
judged by its own words; nothing here helps the model to it.
"""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from longctx.core.errors import LongctxError
from longctx.core.gather import Passage
from longctx.core.haystack import Builder, Haystack, Placed, depths, sample_paragraphs
from longctx.core.ingest import Ingested, Progress, ingest
from longctx.core.session import Session
from longctx.core.setup import Setup, prepare

SCHEMA_VERSION = 1
LIBRARY = "library"
CITIES = (
    "Athens Bergen Bogota Bremen Cairo Calgary Cardiff Dakar Dresden Florence Geneva Hanoi "
    "Havana Krakow Lagos Lisbon Lyon Manila Nairobi Naples Osaka Oslo Perth Porto Prague Quito "
    "Riga Seville Tallinn Tunis Turin Zagreb"
)


@dataclass(frozen=True)
class Needle:
    """A fact, the question for it, and the value that alone is right."""

    kind: str
    line: str
    question: str
    value: str


@dataclass(frozen=True)
class Case:
    """A haystack, the depth of its needles, and what each of them asks."""

    depth: float
    needles: list[Needle]
    haystack: Haystack


@dataclass(frozen=True)
class Trial:
    """One question to one haystack.

    Attributes:
        kind: of the needle.
        depth: 0 (start of the haystack) to 1 (end).
        token: the needle's first token.
        question, expected, answer: what was asked, the value, and what the model said.
        answered: the answer names the value and no other number.
        gathered: one passage holds the whole needle.
        timings: of the answer, in seconds.
    """

    kind: str
    depth: float
    token: int
    question: str
    expected: str
    answer: str
    answered: bool
    gathered: bool
    timings: dict[str, float]


@dataclass(frozen=True)
class Report:
    """What a run found.

    Attributes:
        length: tokens of every haystack.
        depths: where the needles stood.
        trials: one for every depth and kind, in this order.
        tokens_per_s: of all ingests together.
        model, method, seed: what was run.
    """

    length: int
    depths: list[float]
    trials: list[Trial]
    tokens_per_s: float
    model: str
    method: str
    seed: int

    @property
    def passed(self) -> bool:
        """Whether every question was answered."""
        return all(trial.answered for trial in self.trials)

    def counts(self, what: str) -> dict[str, list[int]]:
        """By kind, how many trials were `answered` or `gathered`, and how many there were."""
        found: dict[str, list[bool]] = {}
        for trial in self.trials:
            found.setdefault(trial.kind, []).append(getattr(trial, what))
        return {kind: [sum(hits), len(hits)] for kind, hits in found.items()}

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `niah`."""
        counts = {what: self.counts(what) for what in ("answered", "gathered")}
        return {"schema_version": SCHEMA_VERSION, **asdict(self), **counts}


def make_needles(prose: str, seed: str) -> list[Needle]:
    """A pass key and a city's number, which are nowhere in the prose nor in one another.

    Args:
        prose: the text that they will stand in.
        seed: decides the values and the city.
    """
    draw = random.Random(seed)
    city = draw.choice([name for name in CITIES.split() if name not in prose])
    key = _fresh(draw, 5, prose)
    number = _fresh(draw, 7, prose, key)
    return [
        Needle("passkey", f"The pass key is {key}. Remember it.", "What is the pass key?", key),
        Needle(
            "number",
            f"The special magic number for {city} is {number}.",
            f"What is the special magic number for {city}?",
            number,
        ),
    ]


def _fresh(draw: random.Random, digits: int, prose: str, other: str | None = None) -> str:
    while True:
        value = str(draw.randrange(10 ** (digits - 1), 10**digits))
        if value not in prose and (other is None or other not in value):
            return value


def is_answered(expected: str, answer: str) -> bool:
    """Whether an answer names the expected number and no other.

    Words around the number do not count. A second, different number makes the answer wrong, and
    so do letters or separators within the number: the document does not have it so.
    """
    return set(re.findall(r"\w*\d\w*", answer, re.ASCII)) == {expected}


def is_gathered(needle: Placed, passages: list[Passage]) -> bool:
    """Whether one passage holds all bytes of the needle's line."""
    return any(p.start <= needle.start and needle.end <= p.end for p in passages)


def make_cases(tokenizer: Any, length: int, count: int, seed: int) -> Iterator[Case]:
    """Haystacks with a needle of each kind, one for each of `count` evenly spaced depths.

    Args:
        tokenizer: a fast transformers tokenizer.
        length: tokens of every haystack, needles included.
        count: depths.
        seed: decides values, cities and the order of the prose, with the length and the depth.

    Raises:
        UsageError: a length too short for the needles; before the first haystack.
        LongctxError: the tokenizer gives no exact length.
    """
    places, paragraphs = depths(count), sample_paragraphs()
    builder = Builder(tokenizer, paragraphs)
    marks = [f"{seed}/{length}/{depth}" for depth in places]
    hidden = [make_needles("\n".join(paragraphs), f"needles/{mark}") for mark in marks]
    lines = [[needle.line for needle in needles] for needles in hidden]
    for side_by_side in lines:
        builder.require_length(length, side_by_side, places)
    for place, depth in enumerate(places):
        haystack = builder.build(lines[place], length, depth, f"prose/{marks[place]}")
        yield Case(depth, hidden[place], haystack)


def run(
    setup: Setup,
    length: int,
    count: int = 5,
    gather: int | None = None,
    seed: int = 0,
    on_progress: Callable[[float, Progress], None] = lambda depth, progress: None,
) -> Report:
    """Hides needles at evenly spaced depths of haystacks, and asks for them.

    The text and the state of a haystack are deleted once its questions are asked, also on errors.

    Args:
        setup: model, method and device.
        length: tokens of every haystack, needles included.
        count: depths, and so haystacks.
        gather: tokens to recompute for a question; None: the method's.
        seed: decides values, cities and the order of the prose.
        on_progress: called with the depth while its haystack is read.

    Raises:
        UsageError: a length too short for the needles, or a wrong setup.
        LongctxError: no exact length with this tokenizer, or no room for the model or the state.
    """
    engine = prepare(setup)
    trials: list[Trial] = []
    seconds = 0.0
    for case in make_cases(engine.files.tokenizer, length, count, seed):
        with TemporaryDirectory(prefix="longctx-niah-") as folder:
            done = _read(Path(folder), case, setup, partial(on_progress, case.depth))
            _require_tokens(done.tokens, length)
            with Session(Path(folder) / LIBRARY, done.name, setup) as session:
                trials += _asked(session, case, gather)
            seconds += done.seconds
    return Report(
        length=length,
        depths=depths(count),
        trials=trials,
        tokens_per_s=round(count * length / seconds, 1),
        model=engine.files.name,
        method=engine.method_name,
        seed=seed,
    )


def _read(
    folder: Path, case: Case, setup: Setup, on_progress: Callable[[Progress], None]
) -> Ingested:
    file = folder / "haystack.txt"
    file.write_bytes(case.haystack.text.encode())
    return ingest(folder / LIBRARY, [str(file)], setup, on_progress=on_progress)


def _require_tokens(read: int, length: int) -> None:
    if read != length:
        raise LongctxError(
            f"read {read:,} tokens of a haystack of {length:,}",
            "with this tokenizer, reading in pieces gives other tokens than reading at once",
            "Please report this with the name of the model.",
        )


def _asked(session: Session, case: Case, gather: int | None) -> list[Trial]:
    """All questions to a haystack."""
    pairs = zip(case.needles, case.haystack.needles, strict=True)
    return [_ask(session, case.depth, needle, placed, gather) for needle, placed in pairs]


def _ask(
    session: Session, depth: float, needle: Needle, placed: Placed, gather: int | None
) -> Trial:
    answer = session.ask(needle.question, gather=gather)
    if answer.interrupted:
        raise KeyboardInterrupt
    return Trial(
        kind=needle.kind,
        depth=depth,
        token=placed.token,
        question=needle.question,
        expected=needle.value,
        answer=answer.answer,
        answered=is_answered(needle.value, answer.answer),
        gathered=is_gathered(placed, answer.passages),
        timings=answer.timings,
    )
