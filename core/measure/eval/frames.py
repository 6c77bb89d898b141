"""Frames read from a YAML file, and facts drawn from them: statements, a question, its answer.

`profiles/tiny/heldout-frames.yaml` explains the format. The caller names the file: neither this
module nor training knows where held-out frames are.
"""

import random
import re
from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

import yaml

from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.measure.eval.text_match import holds

Atom = Callable[[random.Random], str]
Pieces = dict[str, list[str]]  # slot -> the pieces of its value

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SIGNS = {"#": "0123456789", "%": "0123456789abcdef", "@": LETTERS, "^": LETTERS.upper()}
PART = re.compile(r"\{(\w+)\}|<(\d+)-(\d+)>|([#%@^])|([^{<#%@^]+|.)", re.DOTALL)
ATTEMPTS = 200  # draws to find a fact whose values are all different and not taken


@dataclass(frozen=True)
class Frame:
    """A wording with slots.

    Attributes:
        statements: templates; several if the answer needs several steps.
        question, answer: templates.
    """

    statements: tuple[str, ...]
    question: str
    answer: str

    @property
    def slots(self) -> list[str]:
        """All slots of the frame, in order of appearance."""
        templates = (*self.statements, self.question, self.answer)
        return list(dict.fromkeys(slot for text in templates for slot in slots_of(text)))

    @property
    def keys(self) -> list[str]:
        """The slots that the question names."""
        return slots_of(self.question)


@dataclass(frozen=True)
class Kind:
    """The frames of one kind; the file's head explains `task`, `siblings` and `ordered`."""

    name: str
    task: str
    frames: tuple[Frame, ...]
    siblings: int = 0
    ordered: bool = False


@dataclass(frozen=True)
class Fact:
    """A frame with its slots filled."""

    frame: Frame
    pieces: Pieces

    @property
    def values(self) -> dict[str, str]:
        """The value of each slot."""
        return {slot: "".join(parts) for slot, parts in self.pieces.items()}

    @property
    def statements(self) -> list[str]:
        """The statements, in order."""
        return [statement.format(**self.values) for statement in self.frame.statements]

    @property
    def question(self) -> str:
        """The question."""
        return self.frame.question.format(**self.values)

    @property
    def answer(self) -> str:
        """The answer."""
        return self.frame.answer.format(**self.values)

    @property
    def secrets(self) -> list[str]:
        """What nothing else in a document may contain: the answer and the question's keys."""
        values = self.values
        return [self.answer, *(values[slot] for slot in self.frame.keys)]


def slots_of(template: str) -> list[str]:
    """Names of a template's slots."""
    return [name for _, name, _, _ in Formatter().parse(template) if name is not None]


class Heldout:
    """The frames of a file and the values to fill them with.

    Attributes:
        kinds: kinds by name, in the file's order.
        absent_answer: the right answer if the document has none.
        absent_kinds: kinds that such questions are made from.
    """

    def __init__(self, content: dict[str, Any]):
        self._sources = {**content["pools"], **content["values"]}
        self.kinds = {name: _kind(name, **entry) for name, entry in content["kinds"].items()}
        self.absent_answer: str = content["absent"]["answer"]
        self.absent_kinds: list[str] = content["absent"]["kinds"]

    @classmethod
    def load(cls, path: Path) -> "Heldout":
        """Reads a YAML file.

        Raises:
            UsageError: no such file, or an incomplete one.
        """
        try:
            return cls(yaml.safe_load(path.read_text("utf-8")))
        except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
            raise UsageError(
                f"cannot read frames from {str(path)!r}",
                f"{type(error).__name__}: {error}",
                "Give a file like profiles/tiny/heldout-frames.yaml.",
            ) from error

    def fact(self, frame: Frame, rng: random.Random, taken: Set[str] = frozenset()) -> Fact:
        """Fills a frame.

        Args:
            frame: one of this file's.
            rng: draws the values.
            taken: values not to draw; no value is drawn twice.

        Raises:
            LongctxError: the pools are too small.
        """
        for _ in range(ATTEMPTS):
            fact = Fact(frame, {slot: self._draw(slot, rng) for slot in frame.slots})
            if _is_sound(fact, taken):
                return fact
        raise _exhausted(frame)

    def sibling(self, fact: Fact, rng: random.Random, taken: Set[str]) -> Fact:
        """The same frame with a key that differs in one piece, and other values elsewhere.

        Raises:
            LongctxError: the key has too few neighbours.
        """
        (key,) = fact.frame.keys
        atoms = self._atoms(key)
        for _ in range(ATTEMPTS):
            place = rng.randrange(len(atoms))
            near = list(fact.pieces[key])
            near[place] = atoms[place](rng)
            other = self.fact(fact.frame, rng, taken)
            other = Fact(fact.frame, {**other.pieces, key: near})
            if near != fact.pieces[key] and _is_sound(other, taken):
                return other
        raise _exhausted(fact.frame)

    def _draw(self, slot: str, rng: random.Random) -> list[str]:
        return [atom(rng) for atom in self._atoms(slot)]

    def _atoms(self, slot: str) -> list[Atom]:
        """The pieces of a slot's value, each drawn independently."""
        entry = self._sources[slot.rstrip("0123456789")]
        if isinstance(entry, list):
            return [lambda rng: rng.choice(entry)]
        atoms: list[Atom] = []
        for name, low, high, sign, text in PART.findall(entry):
            atoms += self._atoms(name) if name else [_atom(low, high, sign, text)]
        return atoms


def _atom(low: str, high: str, sign: str, text: str) -> Atom:
    if low:
        width = len(low) if low.startswith("0") else 1
        return lambda rng: str(rng.randint(int(low), int(high))).zfill(width)
    if sign:
        return lambda rng: rng.choice(SIGNS[sign])
    return lambda rng: text


def _kind(name: str, frames: list[dict[str, Any]], **settings: Any) -> Kind:
    made = [
        Frame(
            tuple(entry["statements"]) if "statements" in entry else (entry["statement"],),
            entry["question"],
            entry["answer"],
        )
        for entry in frames
    ]
    return Kind(name, frames=tuple(made), **settings)


def _is_sound(fact: Fact, taken: Set[str]) -> bool:
    """Whether values differ and are not taken, and the question does not give the answer away."""
    values = list(fact.values.values())
    fresh = len(set(values)) == len(values) and not taken & {*values}
    return fresh and not holds(fact.question, fact.answer)


def _exhausted(frame: Frame) -> LongctxError:
    return LongctxError(
        f"cannot fill {frame.question!r}",
        f"no fitting values in {ATTEMPTS} draws",
        "Give its pools more entries.",
    )
