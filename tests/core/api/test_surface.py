"""The public surface: names and signatures that programs rely on, as `surface.txt` has them."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import longctx

FILE = Path(__file__).with_name("surface.txt")
MADE = ("Document", "Documents", "AnswerStream")  # by the library, so nobody relies on how
CHANGED = (
    "the public surface is another than in surface.txt. If that is meant: "
    "`python tests/core/api/test_surface.py` writes it anew, and CHANGELOG.md needs a line"
)


def surface() -> str:
    """A line for each public name, and for each public member of a class."""
    return "".join(f"{line}\n" for name in longctx.__all__ for line in _lines(name))


def _lines(name: str) -> Iterator[str]:
    thing = getattr(longctx, name)
    if not inspect.isclass(thing):
        yield f"{name}{_signature(thing)}"
        return
    bases = ", ".join(base.__name__ for base in thing.__bases__ if base is not object)
    if dataclasses.is_dataclass(thing):
        yield f"class {name}({bases}) with fields"
        fields = {field.name for field in dataclasses.fields(thing)}
        for field in dataclasses.fields(thing):
            yield f"    {field.name}: {_shown(field.type)}"
    else:
        signature = "" if name in MADE else _signature(thing.__init__)
        yield f"class {name}({bases}){signature}"
        fields = set()
    for own in sorted({member for each in thing.__mro__[:-1] for member in _public(each)}):
        member = inspect.getattr_static(thing, own)
        if own in fields:
            continue
        if isinstance(member, property):
            yield f"    {own} -> {_shown(inspect.signature(member.fget).return_annotation)}"
        elif inspect.isfunction(member):
            yield f"    {own}{_signature(member)}"


def _public(kind: type) -> Iterator[str]:
    if kind.__module__.startswith("longctx"):
        yield from (name for name in vars(kind) if not name.startswith("_"))


def _signature(thing: object) -> str:
    signature = inspect.signature(thing)
    parameters = [
        parameter.replace(annotation=_Plain(_shown(parameter.annotation)))
        if parameter.annotation is not inspect.Parameter.empty
        else parameter
        for parameter in signature.parameters.values()
    ]
    returned = signature.return_annotation
    if returned is not inspect.Signature.empty:
        returned = _Plain(_shown(returned))
    return str(signature.replace(parameters=parameters, return_annotation=returned))


class _Plain(str):
    """A text that shows itself without quotation marks."""

    def __repr__(self) -> str:
        return str(self)


def _shown(annotation: object) -> str:
    shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    shown = re.sub(r"\*<class ([\w.]+)>", r"Unpack[\1]", shown)
    return re.sub(r"['\"]|\b(?:longctx|core|collections|typing)(?:\.[a-z_]+)*\.", "", shown)


def test_nothing_public_changes_unnoticed():
    assert surface() == FILE.read_text("utf-8"), CHANGED


def test_all_that_is_public_is_documented():
    for name in longctx.__all__:
        thing = getattr(longctx, name)
        assert thing.__doc__, name
        for own in _public(thing) if inspect.isclass(thing) else ():
            member = inspect.getattr_static(thing, own)
            if isinstance(member, property) or inspect.isfunction(member):
                assert member.__doc__, f"{name}.{own}"


if __name__ == "__main__":
    FILE.write_text(surface(), "utf-8")
