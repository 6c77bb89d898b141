"""Contracts: missing members are reported when a class is created, not when it is used."""

from inspect import get_annotations
from typing import ClassVar, get_origin


class Contract:
    """A base whose abstract methods, and class variables without a value, every subclass must have.

    Plain annotations (`depth: int`) are not checked: an instance may set them later.
    A subclass that is itself a base declares it: `class Answer(Policy, abstract=True)`.

    Raises:
        TypeError: a class is created without some members; the message names them.
    """

    def __init_subclass__(cls, abstract: bool = False, **more: object) -> None:
        super().__init_subclass__(**more)
        if missing := [] if abstract else sorted(filter(cls._lacks, cls._members())):
            raise TypeError(f"{cls.__module__}.{cls.__qualname__} lacks {', '.join(missing)}")

    @classmethod
    def _lacks(cls, name: str) -> bool:
        return not hasattr(cls, name) or _is_abstract(getattr(cls, name))

    @classmethod
    def _members(cls) -> set[str]:
        """The members that its bases require."""
        methods = {n for base in cls.__mro__ for n, it in vars(base).items() if _is_abstract(it)}
        hints = [item for base in cls.__mro__ for item in get_annotations(base).items()]
        return methods | {name for name, hint in hints if get_origin(hint) is ClassVar}


def _is_abstract(member: object) -> bool:
    return getattr(member, "__isabstractmethod__", False) is True
