"""What docstrings say: what a function or class does, its arguments, since when it exists."""

import ast
import re
from collections.abc import Iterator

from longctx.profiles.recipe.data.sources.code.source import Fact, Function, Source
from longctx.profiles.recipe.data.sources.code.verbs import VERBS, third
from longctx.profiles.recipe.data.words import words

# Arguments as three styles write them: name, default and description.
DEFAULTS_TO = re.compile(
    r"^ *(\w+) *\(`[^`\n]*`, \*optional\*, defaults to `?([^`)\n]{1,30})`?\): *\n? *"
    r"([A-Z][^\n]{15,90})",
    re.M,
)
ARGUMENTS = (
    re.compile(r"^ +(\w{3,}) ?(?:\([^)\n]*\))?: ([A-Z][^\n:]{20,90})$", re.M),
    re.compile(r"^ +(\w{3,}) : [^\n]+\n +([A-Z][^\n]{20,90})$", re.M),
    re.compile(r":param (?:\w+ )?(\w{3,}): ([^\n:]{20,90})$", re.M),
)
SINCE = re.compile(r"\.\. (versionadded|versionchanged|deprecated):: ?([\d.]*\d)")
UNFINISHED = {*words("common")}


def described(source: Source) -> Iterator[Fact]:
    """Functions and classes by the first sentence of their docstring, and the other way round."""
    for name, node in _documented(source):
        first = (ast.get_docstring(node) or "").split("\n")[0].strip()
        at = _found(source, node, first)
        if at is None or not 20 <= len(first) <= 110 or not re.fullmatch(r"[^.:]+[^.:\s]\.", first):
            continue
        said, lines = first.rstrip("."), (node.lineno, at)
        yield Fact(("purpose",), {"function": name}, said, lines)
        verb, _, rest = said.partition(" ")
        lowered = said[0].lower() + said[1:]
        do = next((one for one in (verb.lower(), verb.lower()[:-1]) if one in VERBS), None)
        if do and not isinstance(node, ast.ClassDef):
            slots = {"do": do, "does": third(do), "rest": rest, "short": shortened(rest)}
            yield Fact(("function_for",), slots, name, lines)
        elif isinstance(node, ast.ClassDef) and verb in ("A", "An", "The"):
            yield Fact(("class_for",), {"what": lowered, "short": shortened(lowered)}, name, lines)


def arguments(source: Source) -> Iterator[Fact]:
    """Arguments by what the docstring says of them, and their defaults."""
    for name, node in _documented(source):
        text = ast.get_docstring(node, clean=False) or ""
        for found in DEFAULTS_TO.finditer(text):
            parameter, value, said = found.groups()
            at = _found(source, node, found[0].strip().split("\n")[0])
            if at is not None:
                lines = (node.lineno, *range(at, at + 1 + found[0].strip().count("\n")))
                slots = {"function": name, "name": parameter, "said": _clause(said)}
                yield Fact(("argument_default",), slots, value.strip("\"'"), lines)
        for pattern in ARGUMENTS:
            for found in pattern.finditer(text):
                parameter, said = found.groups()
                at = _found(source, node, found[0].strip().split("\n")[0])
                if at is not None and parameter in _parameters(node):
                    lines = (node.lineno, *range(at, at + 1 + found[0].strip().count("\n")))
                    slots = {
                        "function": name,
                        "said": _clause(said),
                        "short": shortened(_clause(said)),
                    }
                    yield Fact(("argument_for",), slots, parameter, lines)


def versions(source: Source) -> Iterator[Fact]:
    """Releases in which something came, changed or was given up."""
    for name, node in _documented(source):
        for found in SINCE.finditer(ast.get_docstring(node, clean=False) or ""):
            at = _found(source, node, found[0])
            if at is not None:
                yield Fact((found[1],), {"function": name}, found[2], (node.lineno, at))


def shortened(said: str) -> str:
    """What is said without what follows a comma or a subordinate clause, articles or brackets."""
    first = re.split(r", |; | \(| which | that | using | based on | so that | when ", said)[0]
    said = first if len(first.split()) > 3 else said
    return re.sub(r"\b(the|a|an|given|specified) ", "", said, flags=re.I).rstrip()


def _clause(said: str) -> str:
    said = re.split(r"\. |, e\.g| \(", said)[0].rstrip(".,; ").replace("`", "")
    while " " in said and said.rpartition(" ")[2].lower() in UNFINISHED:
        said = said.rpartition(" ")[0].rstrip(",")
    return said if said[:2].isupper() else said[0].lower() + said[1:]


def _parameters(node: Function | ast.ClassDef) -> set[str]:
    """The parameters of a function, or of a class's methods."""
    inside = (one for one in ast.walk(node) if isinstance(one, Function))
    arguments = (one.args for one in inside)
    return {one.arg for each in arguments for one in [*each.args, *each.kwonlyargs]}


def _documented(source: Source) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    yield from source.functions()
    yield from source.classes()


def _found(source: Source, node: Function | ast.ClassDef, text: str) -> int | None:
    """The first line of a definition's docstring that has a text."""
    docstring = node.body[0]
    for number in range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1):
        if text and text in source.lines[number - 1]:
            return number
    return None
