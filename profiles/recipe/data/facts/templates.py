"""Frames as templates: statements and questions with {slots} and <one|another> alternatives.

Reads files of frames and writes out their alternatives. Knows neither the frames nor what fills
them.
"""

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

ALTERNATIVES = re.compile(r"<([^<>]*\|[^<>]*)>")
SLOT = re.compile(r"\{([a-z]+\d?)\}")


@dataclass(frozen=True)
class Fact:
    """A kind of fact: statements and questions with answers, all with alternatives and slots."""

    statements: tuple[str, ...]
    questions: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Frame:
    """One statement and one question, written out except for their slots."""

    statement: str
    question: str


def slots(template: str) -> set[str]:
    """The names of a template's slots."""
    return set(SLOT.findall(template))


def expand(template: str) -> list[str]:
    """All texts that a template's alternatives give."""
    parts = ALTERNATIVES.split(template)
    choices = [part.split("|") if index % 2 else [part] for index, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def read_facts(path: Path) -> tuple[Fact, ...]:
    """The facts of a frames file.

    Raises:
        ValueError: a line is not a statement, question or remark, or a fact lacks either of the
            first two.
    """
    facts = []
    for paragraph in path.read_text("utf-8").split("\n\n"):
        lines = [line for line in paragraph.splitlines() if not line.startswith("# ")]
        statements = tuple(line[2:] for line in lines if line.startswith("- "))
        asked = tuple(line[2:] for line in lines if line.startswith("? "))
        if len(statements) + len(asked) != len(lines):
            raise ValueError(
                f"{path.name}: a line is no statement (-), question (?) or remark (#): {lines}"
            )
        if not lines:
            continue
        questions = tuple(
            (question, answer) for question, answer in (q.rsplit(" => ", 1) for q in asked)
        )
        if not statements or not questions:
            raise ValueError(f"{path.name}: a fact needs statements and questions: {lines}")
        facts.append(Fact(statements, questions))
    return tuple(facts)


def frames_of(fact: Fact) -> list[Frame]:
    """Every statement and question of a fact written out, paired in order."""
    statements = [text for statement in fact.statements for text in expand(statement)]
    questions = [text for question, _ in fact.questions for text in expand(question)]
    pairs = range(max(len(statements), len(questions)))
    return [Frame(statements[i % len(statements)], questions[i % len(questions)]) for i in pairs]
