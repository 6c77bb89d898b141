"""Scenes: a few lines that belong together, with the questions that they answer.

A file of scenes has a paragraph for each: `- ` lines in the order in which they are said, with
{slots} and <one|another> alternatives, and `? question => answer` lines as in wordings.py. A slot
`at2` is when the second line was said, `by2` is who said it. The slot and what comes before a bar
(`- error: payments | ...`) is left to the layout. Knows nothing of layouts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from longctx.profiles.recipe.data.facts.phrasing import choose
from longctx.profiles.recipe.data.facts.slots import Filling
from longctx.profiles.recipe.data.facts.templates import slots
from longctx.profiles.recipe.data.made.pages import Line, Record
from longctx.profiles.recipe.data.made.wordings import Wording, wording
from longctx.profiles.recipe.data.values.every import Values


@dataclass(frozen=True)
class Scene:
    """A few lines that belong together.

    Attributes:
        name: the kind of its records.
        lines: each with its alternatives and slots, after what stands before its bar.
        wordings: the questions that it answers.
    """

    name: str
    lines: tuple[tuple[str, str], ...]
    wordings: tuple[Wording, ...]


def read_scenes(path: Path) -> list[Scene]:
    """The scenes of a file.

    Raises:
        ValueError: a line is no part of a scene.
    """
    scenes = []
    for number, paragraph in enumerate(path.read_text("utf-8").split("\n\n")):
        lines = [line for line in paragraph.splitlines() if line and not line.startswith("# ")]
        said = tuple(_parted(line[2:]) for line in lines if line.startswith("- "))
        asked = tuple(_wording(line[2:]) for line in lines if line.startswith("? "))
        if len(said) + len(asked) != len(lines):
            raise ValueError(f"{path.name}: neither said (-) nor asked (?): {lines}")
        if lines:
            scenes.append(Scene(f"{path.stem} {number}", said, asked))
    return scenes


def _parted(line: str) -> tuple[str, str]:
    """What stands before the bar of a line, and the rest."""
    before, bar, rest = line.partition(" | ")
    return (before, rest) if bar else ("", line)


def _wording(line: str) -> Wording:
    """A wording from its line."""
    asked, _, rest = line.partition(" => ")
    answer, _, conditions = rest.partition(" | ")
    return wording(asked, answer, conditions)


def played(
    scene: Scene, values: Values, earlier: Sequence[Record] = ()
) -> tuple[Record, list[tuple[str, str]]]:
    """A record with new values, and its lines with what stands before their bars.

    Some values are those of an earlier record, so that one value alone does not tell them apart.
    The record has no lines yet: `stage` gives it them.
    """
    filling = Filling(values)
    if earlier and values.rng.random() < 0.35:
        other = values.rng.choice(earlier).fields
        name = values.rng.choice([*other])
        if not name.startswith(("at", "by", "rid", "qid")):
            filling.made[name] = other[name]
    lines = [(before, filling.fill(choose(text, values.rng))) for before, text in scene.lines]
    record = Record(scene.name, dict(filling.made), Line(""))
    return record, lines


def staged(scene: Scene, record: Record, lines: Sequence[Line]) -> Record:
    """The record with the lines that say it, field by field."""
    record.line = lines[0]
    for number, ((_, text), line) in enumerate(zip(scene.lines, lines, strict=True), 1):
        for name in (f"line{number}", *slots(text)):
            record.apart.setdefault(name, []).append(line)
    return record
