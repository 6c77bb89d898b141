"""A small round of each attack; `tests/faults/attack.py` does as many as wanted."""

import sys
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

from attack import ATTACKS, attack  # noqa: E402
from attacks.world import SMALL, Skipped, World  # noqa: E402


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> World:
    """The world that each attack begins with."""
    return World(tmp_path_factory.mktemp("attacks") / "template").build()


@pytest.mark.parametrize("name", ATTACKS)
def test_a_round(name, template, tmp_path):
    try:
        assert attack(name, 0, 1, template, tmp_path / "world", SMALL) == ""
    except Skipped as lacks:
        pytest.skip(str(lacks))
