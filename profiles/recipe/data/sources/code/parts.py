"""Cuts a Python file into parts at its definitions. Knows nothing of questions."""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass

from longctx.profiles.recipe.data.asked import Span
from longctx.profiles.recipe.data.sources.code.source import Source, lines

SIZE = (1_500, 12_000)  # characters


@dataclass(frozen=True)
class Part:
    """Lines [first, end) of a file, 1-based, as a document."""

    first: int
    text: str

    @property
    def spans(self) -> dict[int, Span]:
        """The characters of each line, without the white space around them."""
        found, start = {}, 0
        for number, line in enumerate(lines(self.text), self.first):
            begun = start + len(line) - len(line.lstrip())
            found[number] = (min(begun, start + len(line)), start + len(line.rstrip()))
            start += len(line)
        return found


def parts(source: Source, rng: random.Random) -> Iterator[Part]:
    """Parts of between the two sizes of `SIZE`, cut before definitions of the file or of a class.

    What cannot be cut small enough is left out, and so is a rest that is too short.
    """
    sizes = [0]
    for line in source.lines:
        sizes.append(sizes[-1] + len(line))
    cuts = [*sorted(cut for cut in _cuts(source) if cut > 1), len(source.lines) + 1]
    first, wanted, last = 1, rng.randint(*SIZE), 0
    for cut in cuts:
        long = sizes[cut - 1] - sizes[first - 1]
        if long > wanted and last > first:
            yield from _part(source, first, last)
            first, wanted = last, rng.randint(*SIZE)
        last = cut
    yield from _part(source, first, last)


def _part(source: Source, first: int, end: int) -> Iterator[Part]:
    text = "".join(source.lines[first - 1 : end - 1]).rstrip() + "\n"
    if SIZE[0] <= len(text) <= SIZE[1]:
        yield Part(first, text)


def _cuts(source: Source) -> set[int]:
    """Lines where a definition begins, with its decorators and the comment before it."""
    found = set()
    for one in source.definitions:
        line = min([one.line, *(node.lineno for node in one.node.decorator_list)])
        while line > 1 and source.lines[line - 2].lstrip().startswith("#"):
            line -= 1
        found.add(line)
    return found | {node.lineno for node in source.tree.body if isinstance(node, ast.Assign)}
