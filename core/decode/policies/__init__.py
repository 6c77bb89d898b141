"""The decode policies, one file each; the folder is the registry.

`--decode quest+raas:budget=2048` loads `quest_raas.py`, which defines `Options` and `Policy` (see
`core/contracts/policy.py`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longctx.core.common.errors import UsageError
from longctx.core.common.registry import Registry
from longctx.core.contracts.policy import PolicyOptions
from longctx.core.profile.profile import build

_registry = Registry(__name__, "decode policy", "+")
names, load = _registry.names, _registry.load
USUALLY = "dense"
WRONG = "Correct --decode, or `decoding` in the profile (docs/decoding.md)."


@dataclass(frozen=True)
class Decoding:
    """A chosen policy.

    Attributes:
        name: as the user writes it.
        options: of its module's `Options`.
    """

    name: str
    options: PolicyOptions


def choose(text: str | None, defaults: Mapping[str, Mapping[str, Any]]) -> Decoding:
    """The policy that a user names, with its options.

    Args:
        text: `NAME`, or `NAME:OPTION=VALUE,...`; None: the default.
        defaults: options by policy, from a profile.

    Raises:
        UsageError: an unknown policy or option, or a value that does not fit it.
    """
    name, _, rest = (USUALLY if text is None else text).partition(":")
    return _build(name, {**defaults.get(name, {}), **_given(rest, name)})


def check(defaults: Mapping[str, Any]) -> None:
    """Checks a profile's options of policies.

    Raises:
        UsageError: as `choose`.
    """
    for name, values in defaults.items():
        _build(name, values)


def _build(name: str, values: Any) -> Decoding:
    where = f"options of decode policy {name!r}"
    return Decoding(name, build(load(name).Options, values, where, WRONG))


def _given(rest: str, name: str) -> dict[str, Any]:
    pairs = [pair.partition("=") for pair in rest.split(",") if pair]
    if not all(key and equals and value for key, equals, value in pairs):
        raise UsageError(
            f"cannot use --decode {name}:{rest}",
            "after the policy's name stand its options as OPTION=VALUE, with commas between them",
            "For example: --decode recycled:budget=2048,stride=25.",
        )
    return {key.strip(): _value(value.strip()) for key, _, value in pairs}


def _value(text: str) -> Any:
    """A number, true, false or null as JSON writes them; anything else is a string."""
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text


USUAL = choose(None, {})
