"""Variants of the needle test: which kinds of needles, and how many (docs/needles.md)."""

from collections.abc import Mapping
from dataclasses import dataclass

from longctx.core.common.errors import UsageError
from longctx.core.measure.niah import heldout
from longctx.core.measure.niah.kinds import MAKERS, Maker


@dataclass(frozen=True)
class Variant:
    """Kinds in equal shares.

    Attributes:
        name: as in `--variant`; `default` without one.
        kinds: kinds of needles, which take turns from depth to depth.
        at_once: needles at each depth, multiplied by `--needles`.
        bar: share of right answers needed to pass.
    """

    name: str
    kinds: tuple[str, ...]
    at_once: int = 1
    bar: float = 0.9


DEFAULT, HELDOUT = "default", "heldout"
OWN = (
    Variant(DEFAULT, ("passkey", "number"), at_once=2, bar=1.0),
    *(Variant(kind, (kind,)) for kind in ("passkey", "number", "multikey", "uuid")),
    Variant("mixed", tuple(MAKERS), at_once=4),
)


def names() -> list[str]:
    """All variants that `--variant` takes."""
    return [*(each.name for each in OWN[1:]), HELDOUT]


def variant(name: str | None) -> tuple[Variant, Mapping[str, Maker]]:
    """A variant, and the makers of its kinds of needles.

    Args:
        name: the variant's; None: pass keys and numbers.

    Raises:
        UsageError: there is no such variant.
    """
    known = {each.name: each for each in OWN}
    if name == HELDOUT:
        found = heldout.makers()
        return Variant(HELDOUT, tuple(found), at_once=4), found
    if (name or DEFAULT) not in known:
        known_names = f"there are {', '.join(names())}"
        raise UsageError(f"there is no variant {name!r}", known_names, "Name one of them.")
    return known[name or DEFAULT], MAKERS
