"""Contracts: what a class lacks is told when it is made."""

from abc import abstractmethod
from typing import ClassVar

import pytest

from longctx.core.common.contract import Contract


class Boat(Contract, abstract=True):
    """Has a name and a number of masts, and sails."""

    masts: ClassVar[int]
    flag: ClassVar[str] = "none"
    length: int

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def sail(self) -> str: ...


class Yacht(Boat, abstract=True):
    """A base that has a part of it."""

    masts = 1


def test_what_is_missing_is_named():
    with pytest.raises(TypeError, match=r"Raft lacks masts, name, sail$"):
        type("Raft", (Boat,), {})
    with pytest.raises(TypeError, match=r"Raft lacks sail$"):
        type("Raft", (Yacht,), {"name": "Ina"})


def test_a_whole_class_is_made_and_a_part_of_it_may_be_inherited():
    sloop = type("Sloop", (Yacht,), {"name": "Ina", "sail": lambda self: "away"})
    assert (sloop().name, sloop().sail(), sloop.masts, sloop.flag) == ("Ina", "away", 1, "none")
    assert type("Cutter", (sloop,), {})().sail() == "away"


def test_what_was_there_can_become_missing_again():
    with pytest.raises(TypeError, match=r"lacks sail$"):
        type("Wreck", (Yacht,), {"name": "Ina", "sail": Boat.sail})
