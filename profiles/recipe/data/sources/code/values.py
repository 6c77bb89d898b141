"""What a file sets: constants, entries of tables, environment variables, versions and notices."""

import ast
import re
from collections.abc import Iterator

from longctx.profiles.recipe.data.sources.code.source import DULL, Fact, Source, spoken

SIZES = re.compile(r"size|len|length|width|height|limit|max|min|capacity|buffer|depth", re.I)
TIMES = re.compile(r"timeout|delay|interval|seconds|ttl|wait|expir", re.I)
NOTICES = (
    (
        "copyright",
        re.compile(r"copyright +(?:\(c\)|©)? *(?:[\d, -]+)?(?:by )?([A-Z][^.\n<,]{3,60})", re.I),
    ),
    (
        "licence",
        re.compile(
            r"licensed under the ([A-Z][\w .,-]{2,40}?)(?= \(|,|\.?$| licen[cs]e)", re.I | re.M
        ),
    ),
    ("licence", re.compile(r"SPDX-License-Identifier: *([\w.-]+)")),
    (
        "author",
        re.compile(
            r"^(?:# *)?(?:authors?|written by|contributed by|created by):? +([A-Z][^<(\n,]{4,40})",
            re.I | re.M,
        ),
    ),
)
VARIABLE = re.compile(
    r"os\.(?:environ(?:\.get\(|\[)|getenv\()[\"'](\w+)[\"'](?:, *[\"']?([\w./:-]+)[\"']?\))?"
)
SPECIAL = {"version": "version", "author": "author", "license": "licence", "email": "email"}


def constants(source: Source) -> Iterator[Fact]:
    """Plain values that a module or a class gives a name, and what a comment says of them."""
    for owner, body in _bodies(source):
        for node in body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            answer = source.written(node.value)
            if not isinstance(target, ast.Name) or answer is None or len(target.id) < 3:
                continue
            if answer in DULL or isinstance(node.value, ast.Name | ast.Attribute):
                continue
            slots = {"name": target.id, "words": spoken(target.id), "owner": owner}
            lines = (*_header(source, owner), *range(node.lineno, (node.end_lineno or 0) + 1))
            yield Fact(_constant_kinds(target.id, owner, node.value), slots, answer, lines)
            yield from _commented(source, node.lineno, slots, answer, lines)


def _constant_kinds(name: str, owner: str, value: ast.expr) -> tuple[str, ...]:
    special = SPECIAL.get(name.strip("_"))
    if special and name.startswith("__"):
        return (special,)
    kinds = ["attribute" if owner else "constant"]
    number = isinstance(value, ast.Constant) and type(value.value) in (int, float)
    if number and not owner and len(spoken(name).split()) > 1:
        kinds += ["size"] * bool(SIZES.search(name)) + ["time"] * bool(TIMES.search(name))
    return tuple(kinds)


def _commented(
    source: Source, line: int, slots: dict[str, str], answer: str, lines: tuple[int, ...]
) -> Iterator[Fact]:
    found = re.search(r"\S.*#:? +([A-Za-z][^#\n]{12,70})$", source.lines[line - 1].rstrip())
    if found and not re.search(r"noqa|type:|pragma|pylint|pyright|TODO", found[1]):
        said = found[1].rstrip(". ")
        yield Fact(("commented",), {**slots, "comment": said}, slots["name"], lines)
        yield Fact(("commented_value",), {**slots, "comment": said}, answer, lines)


def entries(source: Source) -> Iterator[Fact]:
    """Keys and values of tables that a module or class gives a name."""
    for owner, body in _bodies(source):
        for node in body:
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if not isinstance(target, ast.Name) or not isinstance(node.value, ast.Dict):
                continue
            slots = {"name": target.id, "words": spoken(target.id)}
            yield from _entries(source, node, node.value, slots, _header(source, owner))


def _entries(
    source: Source,
    node: ast.Assign | ast.AnnAssign,
    table: ast.Dict,
    slots: dict[str, str],
    header: tuple[int, ...],
) -> Iterator[Fact]:
    pairs = [
        (source.written(key), source.written(value), value.end_lineno or 0, key.lineno)
        for key, value in zip(table.keys, table.values, strict=True)
        if key is not None
    ]
    values = [value for _, value, _, _ in pairs]
    for key, value, last, first in pairs:
        if key and value and not key.isdigit() and value not in ("True", "False", "None"):
            lines = (*header, node.lineno, *range(first, last + 1))
            yield Fact(("entry",), {**slots, "key": key}, value, lines)
            if values.count(value) == 1 and len(value) > 2:
                yield Fact(("key",), {**slots, "value": value}, key, lines)


def environment(source: Source) -> Iterator[Fact]:
    """Environment variables that are read, by what reads them, and what they fall back to."""
    assigned = [node for node in source.tree.body if isinstance(node, ast.Assign)]
    for node in assigned:
        target, found = node.targets[0], VARIABLE.search(source.segment(node))
        if found and isinstance(target, ast.Name):
            lines = tuple(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            yield Fact(("variable_of_name",), {"name": target.id}, found[1], lines)
            if found[2]:
                yield Fact(("variable_default",), {"variable": found[1]}, found[2], lines)
    for name, node in source.functions():
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            if found := VARIABLE.search(source.lines[number - 1]):
                yield Fact(("variable",), {"function": name}, found[1], (node.lineno, number))
                if found[2]:
                    slots = {"variable": found[1]}
                    yield Fact(("variable_default",), slots, found[2], (node.lineno, number))


def notices(source: Source) -> Iterator[Fact]:
    """Who wrote a file, who holds its copyright and under which licence it is."""
    head = "".join(source.lines[:40])
    for kind, pattern in NOTICES:
        if found := pattern.search(head):
            line = head.count("\n", 0, found.start(1)) + 1
            yield Fact((kind,), {}, found[1].strip(" ,"), (line,))


def _bodies(source: Source) -> Iterator[tuple[str, list[ast.stmt]]]:
    yield "", source.tree.body
    for name, node in source.classes():
        yield name, node.body


def _header(source: Source, owner: str) -> tuple[int, ...]:
    return tuple(node.lineno for name, node in source.classes() if owner and name == owner)
