"""Pages: lines with the records that stand in them, laid out as one text with spans.

Knows nothing of questions and of what the lines say.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from longctx.profiles.recipe.data.asked import Span


@dataclass(eq=False)
class Line:
    """A line or sentence of a document; two of the same text are two.

    Attributes:
        text: what it says.
        end: what follows it: a newline, or a space where sentences make a paragraph.
    """

    text: str
    end: str = "\n"


@dataclass(eq=False)
class Record:
    """What a few lines say, field by field.

    Attributes:
        kind: records of one kind have the same fields, and are asked for in the same words.
        fields: what is said; a field that is not said is missing.
        line: the line that says it.
        apart: the lines that say a field, where it is not that line.
    """

    kind: str
    fields: dict[str, str]
    line: Line
    apart: dict[str, list[Line]] = field(default_factory=dict)

    def lines(self, names: Iterable[str]) -> list[Line]:
        """Few lines that say all of these fields: where several say as much, the last."""
        missing = {name: self.apart.get(name, [self.line]) for name in names}
        found: list[Line] = []
        while missing:
            lines = list(dict.fromkeys(line for said in missing.values() for line in said))
            found.append(
                max(reversed(lines), key=lambda line: sum(line in s for s in missing.values()))
            )
            missing = {name: said for name, said in missing.items() if found[-1] not in said}
        return found


@dataclass
class Page:
    """A document before it is asked.

    Attributes:
        kind: the kind of its source.
        lines: all of its lines, in order.
        records: what they say, in order of their lines.
        hidden: records of the same kinds that are not in it: its questions without an answer.
    """

    kind: str
    lines: list[Line]
    records: list[Record]
    hidden: list[Record]

    def laid_out(self) -> tuple[str, dict[Line, Span]]:
        """The text, and where each line stands in it."""
        parts, spans, at = [], {}, 0
        for line in self.lines:
            spans[line] = (at, at + len(line.text))
            parts += [line.text, line.end]
            at += len(line.text) + len(line.end)
        return "".join(parts).rstrip() + "\n", spans
