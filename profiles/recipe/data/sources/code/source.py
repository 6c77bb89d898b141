"""A Python file, parsed: its functions and classes by name, and its lines. Knows no questions."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

DULL = {"None", "True", "False", "()", "[]", "...", "''"}  # values that can be guessed
CONSTRUCTOR = "__init__"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Fact:
    """Something that a file says, and that can be asked for.

    Attributes:
        kinds: the kinds of wordings that fit, as in wordings.yaml.
        slots: what a wording is filled in with.
        answer: as it stands in the file, a string without its quotes.
        lines: all that must be read, 1-based.
    """

    kinds: tuple[str, ...]
    slots: Mapping[str, str]
    answer: str
    lines: tuple[int, ...]


@dataclass(frozen=True)
class Definition:
    """A function or class at the top of a file or of a class."""

    node: Function | ast.ClassDef
    owner: str  # the class it stands in, or ""

    @property
    def line(self) -> int:
        """Where it is named."""
        return self.node.lineno


@dataclass(frozen=True)
class Source:
    """A file's text and its parts."""

    text: str
    tree: ast.Module = field(repr=False)

    @cached_property
    def lines(self) -> list[str]:
        """The lines, with their ends."""
        return lines(self.text)

    @cached_property
    def _bytes(self) -> list[bytes]:
        return [line.encode() for line in self.lines]

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node. That of `ast` splits the whole file each time."""
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        covered = self._bytes[first : last + 1]
        covered[-1] = covered[-1][: node.end_col_offset]
        covered[0] = covered[0][node.col_offset :]
        return b"".join(covered).decode()

    @cached_property
    def definitions(self) -> list[Definition]:
        """Functions and classes, but for those inside functions."""
        return [*_defined(self.tree.body, "")]

    @cached_property
    def _names(self) -> Counter[str]:
        return Counter(one.node.name for one in self.definitions)

    def name(self, one: Definition) -> str:
        """What people call it: a constructor by its class, a method of a common name with it."""
        if one.owner and one.node.name == CONSTRUCTOR:
            return one.owner
        alone = self._names[one.node.name] == 1 or not one.owner
        return one.node.name if alone else f"{one.owner}.{one.node.name}"

    def functions(self) -> Iterator[tuple[str, Function]]:
        """The functions and methods, as people call them; of those named by Python constructors."""
        for one in self.definitions:
            special = one.node.name.startswith("__") and one.node.name != CONSTRUCTOR
            if not special and not _overload(one.node) and not isinstance(one.node, ast.ClassDef):
                yield self.name(one), one.node

    def classes(self) -> Iterator[tuple[str, ast.ClassDef]]:
        """The classes."""
        for one in self.definitions:
            if isinstance(one.node, ast.ClassDef):
                yield self.name(one), one.node

    def written(self, node: ast.expr) -> str | None:
        """How a short value is written, a string without quotes; None if it is no plain value."""
        segment = self.segment(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            value = node.value
            return value if value.strip() and value in segment and len(value) <= 60 else None
        plain = all(isinstance(part, PLAIN) for part in ast.walk(node))
        return segment if plain and 0 < len(segment) <= 60 and "\n" not in segment else None


PLAIN = (
    *(ast.Constant, ast.Tuple, ast.List, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop),
    *(ast.Attribute, ast.Name, ast.expr_context),
)


def lines(text: str) -> list[str]:
    """The lines of a text with their ends, as Python counts them: a form feed ends none."""
    return re.findall(r".*\n|.+\Z", text)


def parsed(text: str) -> Source | None:
    """A file's source; None if it does not parse."""
    try:
        return Source(text, ast.parse(text))
    except (SyntaxError, ValueError):
        return None


def spoken(identifier: str) -> str:
    """The words of an identifier: MAX_RETRIES and maxRetries are both max retries."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_.]+", " ", identifier)
    return " ".join(parted.lower().split())


def _overload(node: Function | ast.ClassDef) -> bool:
    return any(ast.unparse(one).endswith("overload") for one in node.decorator_list)


def _defined(body: list[ast.stmt], owner: str) -> Iterator[Definition]:
    for node in body:
        if isinstance(node, Function):
            yield Definition(node, owner)
        elif isinstance(node, ast.ClassDef):
            yield Definition(node, owner)
            yield from _defined(node.body, node.name)
