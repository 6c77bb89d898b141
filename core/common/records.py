"""Dataclasses from parsed JSON or YAML: every key is known, and every value has its field's type.

A field's annotation says what fits it: plain types, `X | None`, tuples (from lists) and dataclasses
(from mappings). A bool is not an int, but an int is a float; no number changes its value. The
contents of a `dict` are not checked.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, partial
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from longctx.core.common.errors import UsageError

Cases = dict[type, Callable[[Any, str, str], Any]]  # called with a value, its key, and where it is


class _Unfit(Exception):
    """A value is not of the type of its field."""


@dataclass(frozen=True)
class Reader:
    """Makes dataclasses from mappings.

    Args:
        remedy: what to do about a value that does not fit.
        sized: whether a whole number must fit into 64 bits, as the size of a tensor must.
    """

    remedy: str
    sized: bool = True

    def read(self, kind: type, values: Any, where: str) -> Any:
        """Makes a dataclass from a mapping.

        Args:
            kind: the dataclass.
            values: its fields.
            where: what to call the mapping in a message.

        Raises:
            UsageError: `values` is not a mapping, has an unknown key, lacks one, or has a value
                that does not fit.
        """
        plan, needed = _plan(self, kind)
        if not isinstance(values, dict) or not needed <= values.keys() <= plan.keys():
            raise _misshapen(values, where, plan, needed)
        found = {}
        for key, value in values.items():
            hint, cases = plan[key]
            make = cases.get(type(value), _refuse)
            try:
                found[key] = value if make is _keep else make(value, key, where)
            except _Unfit:
                name = hint.__name__ if isinstance(hint, type) and not get_args(hint) else hint
                why = f"{value!r:.60} is no {name}"
                raise UsageError(f"cannot use {key!r} in {where}", why, self.remedy) from None
        try:
            return kind(**found)
        except (TypeError, ValueError, UsageError) as error:
            raise UsageError(f"cannot use {where}", str(error), self.remedy) from error


@cache
def _plan(reader: Reader, kind: type) -> tuple[dict[str, tuple[Any, Cases]], set[str]]:
    """The type and cases of each field of a dataclass, and the fields without a default."""
    own, hints = fields(kind), get_type_hints(kind)
    plan = {f.name: (hints[f.name], _cases(hints[f.name], reader)) for f in own}
    return plan, {f.name for f in own if f.default is MISSING and f.default_factory is MISSING}


def _cases(hint: Any, reader: Reader) -> Cases:
    """What fits a type: for each type of value, the function that converts it."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if isinstance(hint, UnionType):
        return {t: make for part in parts for t, make in _cases(part, reader).items()}
    if isinstance(hint, type) and is_dataclass(hint):
        return {hint: _keep, dict: lambda v, key, at: reader.read(hint, v, f"`{key}` of {at}")}
    if kind is tuple:
        endless = parts[-1] is ...
        each = [_cases(part, reader) for part in (parts[:1] if endless else parts)]
        return dict.fromkeys((list, tuple), partial(_items, each, endless))
    whole = _below_64_bits if reader.sized else _keep
    return {int: {int: whole}, float: {float: _keep, int: whole}}.get(kind, {kind: _keep})


def _items(each: list[Cases], endless: bool, values: Any, key: str, where: str) -> tuple:
    if endless and all(each[0].get(kind) is _keep for kind in {*map(type, values)}):
        return tuple(values)  # there may be millions
    each = each * len(values) if endless else each
    if len(each) != len(values):
        raise _Unfit
    makers = [cases.get(type(value), _refuse) for cases, value in zip(each, values, strict=True)]
    pairs = enumerate(zip(makers, values, strict=True))
    return tuple([make(value, f"{key}[{n}]", where) for n, (make, value) in pairs])


def _keep(value: Any, *_: str) -> Any:
    return value


def _refuse(*_: Any) -> Any:
    raise _Unfit


def _below_64_bits(value: int, *_: str) -> int:
    if not -(2**63) <= value < 2**63:
        raise _Unfit
    return value


def _misshapen(values: Any, where: str, plan: dict[str, Any], needed: set[str]) -> UsageError:
    known = f"Known keys: {', '.join(plan)}." if plan else "It has no keys."
    if not isinstance(values, dict):
        return UsageError(f"{where} is {type(values).__name__}, not a mapping", "", known)
    unknown = [str(key) for key in values if key not in plan]
    if unknown:
        return UsageError(f"unknown key {unknown[0]!r} in {where}", "", known)
    missing = [key for key in plan if key in needed - values.keys()]
    return UsageError(f"there is no key {missing[0]!r} in {where}", "", known)
