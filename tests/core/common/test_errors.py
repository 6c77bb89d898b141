"""An error that another process told is the same one here."""

import pytest

from longctx.core.common import errors
from longctx.core.common.errors import LongctxError, UnreadableInput, of_parts, parts_of

KINDS = [LongctxError, *LongctxError.__subclasses__()]
KINDS = [kind for kind in KINDS if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", KINDS)
def test_class_code_and_message_come_back(kind):
    told = kind("cannot read 'a.txt'", "it is not text", "Leave it out.")
    again = of_parts(parts_of(told))
    assert (type(again), again.exit_code) == (kind, kind.exit_code)
    assert str(again) == str(told)
    assert (again.what, again.why, again.remedy) == (told.what, told.why, told.remedy)


def test_what_is_no_class_of_its_own_here_comes_as_the_one_of_its_code():
    class Other(UnreadableInput):
        def __init__(self) -> None:
            super().__init__("cannot read 'a.zip'")

    again = of_parts(parts_of(Other()))
    assert (type(again), str(again)) == (UnreadableInput, "cannot read 'a.zip'")
