"""Wordings: how a field of a record is asked for, read from text files.

A paragraph is about records of one kind, which its first line names: `[kind]`. The other lines are

    ? Which client asked for {page}? => {ip}
    ? Who was refused {page}? => {ip} | state=refused
    ? What did {ip} fetch last? => {path} | last

with <one|another> alternatives and {fields}. After the bar stand fields with a value that a record
must have, the one among several that is meant (`first`, `last`, `most FIELD`, `least FIELD`), and
a line of a scene that must be read (`line 2`), where the fields alone do not tell which.
`$name = one|another` defines a part for the lines after it. Knows nothing of documents.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from longctx.profiles.recipe.data.facts.templates import slots

PART = re.compile(r"\$(\w+)")


@dataclass(frozen=True)
class Wording:
    """A way to ask for something.

    Attributes:
        text: the question, with alternatives and fields.
        answer: its answer, with fields.
        given: the fields that the question names.
        wanted: the fields of the answer.
        having: fields with the value that is meant without being named.
        choice: first, last, most or least, if it asks for one of several.
        by: the field that is compared for most and least.
        line: the line of its scene, `line2`, that must be read besides.
    """

    text: str
    answer: str
    given: tuple[str, ...]
    wanted: tuple[str, ...]
    having: tuple[tuple[str, str], ...] = ()
    choice: str = ""
    by: str = ""
    line: str = ""

    def fields(self) -> list[str]:
        """All fields that must be read to answer."""
        return [*self.wanted, *self.given, *dict(self.having), *filter(None, (self.by, self.line))]


def wording(text: str, answer: str, conditions: str = "") -> Wording:
    """A wording from its three parts."""
    having, choice, by, line = [], "", "", ""
    for condition in filter(None, conditions.split(", ")):
        name, equals, value = condition.partition("=")
        if equals:
            having.append((name, value))
        elif name.startswith("line "):
            line = name.replace(" ", "")
        else:
            choice, _, by = condition.partition(" ")
    given, wanted = tuple(sorted(slots(text))), tuple(sorted(slots(answer)))
    return Wording(text, answer, given, wanted, tuple(having), choice, by, line)


def read_wordings(path: Path) -> dict[str, list[Wording]]:
    """The wordings of a file, by the kind of record.

    Raises:
        ValueError: a line is neither a kind, a part nor a question.
    """
    found: dict[str, list[Wording]] = {}
    parts: dict[str, str] = {}
    kind = ""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("["):
            kind = line.strip("[]")
        elif line.startswith("$"):
            name, _, choices = line[1:].partition(" = ")
            parts[name] = f"<{choices}>"
        elif line.startswith("? "):
            asked, _, rest = line[2:].partition(" => ")
            answer, _, conditions = rest.partition(" | ")
            asked = PART.sub(lambda match: parts[match[1]], asked)
            found.setdefault(kind, []).append(wording(asked, answer, conditions))
        elif line and not line.startswith("# "):
            raise ValueError(f"{path.name}: no kind, part, question or remark: {line}")
    return found
