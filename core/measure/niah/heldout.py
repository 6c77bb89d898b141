"""Needles in wordings that the bundled model never saw in training: the held-out frames.

Training code must not read those frames, nor import this (tests/test_layout.py).
"""

import random
from collections.abc import Mapping
from functools import partial
from importlib import resources
from pathlib import Path

from longctx.core.measure.eval.frames import Heldout, Kind
from longctx.core.measure.niah.kinds import Maker, Needle


def makers() -> Mapping[str, Maker]:
    """Makers of needles, by kind of frame."""
    folder = Path(str(resources.files("longctx.profiles")))
    frames = Heldout.load(folder / "tiny" / "heldout-frames.yaml")
    return {name: partial(_needle, frames, kind) for name, kind in frames.kinds.items()}


def _needle(frames: Heldout, kind: Kind, draw: random.Random, city: str) -> Needle:
    fact = frames.fact(draw.choice(kind.frames), draw)
    taken, near = set(fact.values.values()), []
    for _ in range(kind.siblings - 1):
        other = frames.sibling(fact, draw, taken)
        taken.update(other.values.values())
        near.append(other)
    return Needle(
        kind=kind.name,
        lines=tuple(fact.statements),
        question=fact.question,
        value=fact.answer,
        near=tuple(line for other in near for line in other.statements),
        secrets=(*fact.secrets, *(other.answer for other in near)),
        wording=fact.frame.question,
    )
