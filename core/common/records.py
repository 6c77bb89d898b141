"""Dataclasses made of parsed JSON or YAML: every key is known, and every value of its field's type.

A field's annotation says what fits it: plain types, `X | None`, tuples, for which there are lists,
and dataclasses, for which there are mappings. A bool is no int, and an int is a float; no number
becomes another. What a `dict` holds is not checked.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, partial
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from longctx.core.common.errors import UsageError


class _Unfit(Exception):
    """A value is not of the type of its field."""


@dataclass(frozen=True)
class Reader:
    """Makes dataclasses of mappings.

    Args:
        remedy: what to do about a value that does not fit.
        sized: whether a whole number must fit into 64 bits, as the size of a tensor must.
    """

    remedy: str
    sized: bool = True

    def read(self, kind: type, values: Any, where: str) -> Any:
        """Makes a dataclass of a mapping.

        Args:
            kind: the dataclass.
            values: its fields; what is one already stays.
            where: what to call the mapping in a message.

        Raises:
            UsageError: `values` is no mapping, has an unknown key, lacks one, or has a value that
                does not fit.
        """
        if isinstance(values, kind):
            return values
        plan, needed = _plan(self, kind)
        if not isinstance(values, dict) or not needed <= values.keys() <= plan.keys():
            raise _misshapen(values, where, plan, needed)
        found = {}
        for key, value in values.items():
            hint, as_is, make = plan[key]
            try:
                found[key] = value if type(value) in as_is else make(value, key, where)
            except _Unfit:
                name = hint.__name__ if isinstance(hint, type) and not get_args(hint) else hint
                why = f"{value!r:.60} is no {name}"
                raise UsageError(f"cannot use {key!r} in {where}", why, self.remedy) from None
        try:
            return kind(**found)
        except (TypeError, ValueError, UsageError) as error:
            raise UsageError(f"cannot use {where}", str(error), self.remedy) from error


@cache
def _plan(reader: Reader, kind: type) -> tuple[dict[str, tuple], set[str]]:
    """Of each field its type, `_as_is` and `_maker`; and the fields without a default."""
    own, hints = fields(kind), get_type_hints(kind)
    found = {f.name: hints[f.name] for f in own}
    plan = {key: (t, _as_is(t, reader), _maker(t, reader)) for key, t in found.items()}
    return plan, {f.name for f in own if f.default is MISSING and f.default_factory is MISSING}


def _as_is(hint: Any, reader: Reader) -> set[type]:
    """The types of values that fit, whatever they are."""
    if isinstance(hint, UnionType):
        return set().union(*(_as_is(part, reader) for part in get_args(hint)))
    kind = get_origin(hint) or hint
    kinds = {float: {float, int}, tuple: set()}.get(kind, {kind})
    return kinds - {int} if reader.sized else kinds


def _maker(hint: Any, reader: Reader) -> Callable[[Any, str, str], Any]:
    """What makes a value of a type of (value, key, where); it raises `_Unfit`."""
    as_is, parts = _as_is(hint, reader), get_args(hint)
    if is_dataclass(hint):
        return lambda value, key, where: reader.read(hint, value, f"`{key}` of {where}")
    makers = [_maker(part, reader) for part in parts if part is not ...]
    if isinstance(hint, UnionType):
        return partial(_first_that_fits, makers)
    if get_origin(hint) is tuple:
        return partial(_items, makers, parts[-1] is ..., _as_is(parts[0], reader))
    return partial(_plain, as_is, hint in (int, float))


def _first_that_fits(makers: list, value: Any, key: str, where: str) -> Any:
    for make in makers:
        with suppress(_Unfit):
            return make(value, key, where)
    raise _Unfit


def _items(makers: list, any_length: bool, as_is: set, value: Any, key: str, where: str) -> tuple:
    if not isinstance(value, list | tuple) or not (any_length or len(value) == len(makers)):
        raise _Unfit
    if any_length and as_is.issuperset(map(type, value)):  # there may be millions
        return tuple(value)
    makers = makers * len(value) if any_length else makers
    pairs = enumerate(zip(makers, value, strict=True))
    return tuple([make(item, f"{key}[{number}]", where) for number, (make, item) in pairs])


def _plain(as_is: set, is_number: bool, value: Any, *_: str) -> Any:
    if type(value) in as_is or (is_number and type(value) is int and -(2**63) <= value < 2**63):
        return value
    raise _Unfit


def _misshapen(values: Any, where: str, plan: dict[str, Any], needed: set[str]) -> UsageError:
    known = f"Known keys: {', '.join(plan)}." if plan else "It has no keys."
    if not isinstance(values, dict):
        return UsageError(f"{where} is {type(values).__name__}, not a mapping", "", known)
    unknown = [str(key) for key in values if key not in plan]
    if unknown:
        return UsageError(f"unknown key {unknown[0]!r} in {where}", "", known)
    missing = [key for key in plan if key in needed - values.keys()]
    return UsageError(f"there is no key {missing[0]!r} in {where}", "", known)
