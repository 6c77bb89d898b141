"""What functions and classes take, raise, give back and build on, read from the syntax tree."""

import ast
from collections.abc import Iterator

from longctx.profiles.recipe.data.sources.code.source import DULL, Fact, Function, Source, spoken
from longctx.profiles.recipe.data.sources.code.verbs import VERBS

ORDINARY = ("property", "method", ".setter", ".getter", "overload")  # decorators not asked for


def defaults(source: Source) -> Iterator[Fact]:
    """Values that parameters take unless told otherwise."""
    for name, node in source.functions():
        plain = [*node.args.posonlyargs, *node.args.args]
        pairs = [
            *zip(plain[len(plain) - len(node.args.defaults) :], node.args.defaults, strict=True)
        ]
        pairs += [*zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
        for parameter, value in pairs:
            answer = source.written(value) if value is not None else None
            if value is None or not answer:
                continue
            slots = {"function": name, "name": parameter.arg, "words": spoken(parameter.arg)}
            slots["spoken"] = spoken(name)
            kinds = ["dull_default" if answer in DULL else "default"]
            if answer not in DULL and slots["spoken"].partition(" ")[0] in VERBS:
                kinds.append("default_of_verb")
            if isinstance(value, ast.Constant) and type(value.value) is int and value.value > 1:
                kinds += ["count"] * parameter.arg.endswith("s")
            yield Fact(tuple(kinds), slots, answer, _lines(node, value))


def types(source: Source) -> Iterator[Fact]:
    """Types of results and of parameters, where they are written."""
    for name, node in source.functions():
        answer = _short(source, node.returns) if node.returns is not None else None
        if node.returns is not None and answer and answer not in ("None", "bool"):
            yield Fact(("result_type",), {"function": name}, answer, _lines(node, node.returns))
        for parameter in [*node.args.args, *node.args.kwonlyargs]:
            if parameter.annotation is not None and parameter.arg not in ("self", "cls"):
                slots = {"function": name, "name": parameter.arg, "words": spoken(parameter.arg)}
                if answer := _short(source, parameter.annotation):
                    lines = _lines(node, parameter.annotation)
                    yield Fact(("parameter_type",), slots, answer, lines)


def raised(source: Source) -> Iterator[Fact]:
    """Exceptions of functions that raise a single one, and the messages of exceptions."""
    for name, node in source.functions():
        found = [one for one in ast.walk(node) if isinstance(one, ast.Raise)]
        named = [(one, _exception(source, one)) for one in found]
        known = {exception for _, exception in named if exception}
        for one, exception in named:
            if not exception:
                continue
            lines = _lines(node, one)
            slots = {"function": name, "words": spoken(name), "exception": exception}
            if len(known) == 1 and len(named) == len(found):
                by_verb = ("raises_of_verb",) if slots["words"].partition(" ")[0] in VERBS else ()
                yield Fact(("raises", *by_verb), slots, exception, lines)
            if message := _message(source, one):
                told = {**slots, "message": message}
                yield Fact(("complains",), told, name, lines)
                yield Fact(("message_exception",), told, exception, lines)
                if sum(other == exception for _, other in named) == 1:
                    yield Fact(("message",), slots, message, lines)


def returned(source: Source) -> Iterator[Fact]:
    """What functions return that always return the same plain value."""
    for name, node in source.functions():
        results = [one for one in ast.walk(node) if isinstance(one, ast.Return | ast.Yield)]
        nested = any(isinstance(one, Function) for one in ast.walk(node) if one is not node)
        value = results[0].value if len(results) == 1 else None
        answer = source.written(value) if value is not None and not nested else None
        named = value is not None and any(isinstance(one, ast.Name) for one in ast.walk(value))
        if answer and not named:
            slots = {"function": name, "words": spoken(name)}
            yield Fact(("returns",), slots, answer, _lines(node, results[0]))


def bases(source: Source) -> Iterator[Fact]:
    """Classes that a class derives from, and what decorates classes and functions."""
    for name, node in source.classes():
        if len(node.bases) == 1 and (base := _short(source, node.bases[0])) and base != "object":
            slots = {"class": name, "words": spoken(name), "base": base}
            yield Fact(("base",), slots, base, (node.lineno,))
            yield Fact(("derived",), slots, name, (node.lineno,))
    for name, node in [*source.functions(), *source.classes()]:
        if len(node.decorator_list) == 1:
            decorator = _short(source, node.decorator_list[0])
            if decorator and not decorator.endswith(ORDINARY):
                lines = (node.decorator_list[0].lineno, node.lineno)
                yield Fact(("decorator",), {"function": name}, decorator, lines)


def imports(source: Source) -> Iterator[Fact]:
    """Modules that names are taken from, and other names they are given."""
    for node in source.tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
            for alias in node.names:
                at = (node.lineno, *((alias.lineno,) if alias.lineno != node.lineno else ()))
                module = "." * node.level + node.module
                yield Fact(("imported",), {"name": alias.asname or alias.name}, module, at)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    slots = {"module": alias.name}
                    yield Fact(("alias",), slots, alias.asname, (node.lineno,))


def _short(source: Source, node: ast.expr) -> str | None:
    segment = source.segment(node)
    return segment if 0 < len(segment) <= 50 and "\n" not in segment else None


def _exception(source: Source, node: ast.Raise) -> str | None:
    made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    answer = _short(source, made) if made is not None else None
    return answer if answer and answer.split(".")[-1][:1].isupper() else None


def _message(source: Source, node: ast.Raise) -> str | None:
    if isinstance(node.exc, ast.Call) and node.exc.args:
        first = node.exc.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            told = first.value
            in_one = told in (source.segment(first))
            return told if in_one and len(told.split()) >= 3 and len(told) <= 90 else None
    return None


def _lines(definition: Function, node: ast.AST) -> tuple[int, ...]:
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    return (definition.lineno, *range(first, last + 1))
