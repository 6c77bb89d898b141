"""Dataclasses made of parsed JSON: what fits a field, and what is said of what does not."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.common.records import Reader


@dataclass(frozen=True)
class Inner:
    size: int
    name: str | None = None

    def __post_init__(self):
        if self.size == 13:
            raise ValueError("13 is no size")


@dataclass(frozen=True)
class Outer:
    rows: int
    share: float | tuple[float, ...] | None = None
    on: bool = False
    pairs: tuple[tuple[int, str], ...] = ()
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)


def read(values: Any, sized: bool = True) -> Outer:
    return Reader("Mend it.", sized).read(Outer, values, "the file")


def test_values_stay_as_they_are_and_lists_become_tuples():
    values = {
        "rows": 3,
        "share": [1, 0.5],
        "on": True,
        "pairs": [[1, "a"], [2, "b"]],
        "inner": {"size": 1, "name": None},
        "inners": [{"size": 2, "name": "x"}],
        "more": {"list": [1]},
    }
    inner, inners = Inner(1), (Inner(2, "x"),)
    made = read(values)
    assert made == Outer(3, (1, 0.5), True, ((1, "a"), (2, "b")), inner, inners, {"list": [1]})
    assert list(map(type, made.share)) == [int, float]  # no number becomes another
    assert read({**values, "inner": inner, "inners": inners, "pairs": ((1, "a"), (2, "b"))}) == made


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1], "the file is list, not a mapping. Known keys: rows, share, on, pairs, inner"),
        ({}, "there is no key 'rows' in the file. Known keys: rows"),
        ({"rows": 1, "rwos": 2}, "unknown key 'rwos' in the file. Known keys: rows"),
        ({"rows": True}, "cannot use 'rows' in the file: True is no int. Mend it."),
        ({"rows": 1.0}, "cannot use 'rows' in the file: 1.0 is no int"),
        ({"rows": 2**63}, "cannot use 'rows' in the file: 9223372036854775808 is no int"),
        ({"rows": 1, "on": 1}, "cannot use 'on' in the file: 1 is no bool"),
        ({"rows": 1, "share": "x"}, "cannot use 'share' in the file: 'x' is no float | tuple"),
        ({"rows": 1, "share": -(10**40)}, "cannot use 'share' in the file: -1000"),
        ({"rows": 1, "share": [1, True]}, r"cannot use 'share' in the file: [1, True] is no"),
        ({"rows": 1, "pairs": [[1]]}, "cannot use 'pairs' in the file: [[1]] is no tuple"),
        ({"rows": 1, "pairs": {}}, "cannot use 'pairs' in the file: {} is no tuple"),
        ({"rows": 1, "more": []}, "cannot use 'more' in the file: [] is no dict"),
        ({"rows": 1, "inner": 3}, "cannot use 'inner' in the file: 3 is no "),
        ({"rows": 1, "inners": [{"size": ""}]}, "cannot use 'size' in `inners[0]` of the file: ''"),
        (
            {"rows": 1, "inners": [Inner(1), {}]},
            "there is no key 'size' in `inners[1]` of the file",
        ),
        ({"rows": 1, "inner": {"size": 13}}, "cannot use `inner` of the file: 13 is no size"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(values, said):
    with pytest.raises(UsageError) as caught:
        read(values)
    assert str(caught.value).startswith(said)


def test_a_value_is_shown_in_part():
    with pytest.raises(UsageError) as caught:
        read({"rows": "x" * 10**6})
    assert len(str(caught.value)) < 200


def test_whole_numbers_of_any_size():
    assert read({"rows": 10**30, "share": 2**63}, sized=False) == Outer(10**30, 2**63)
    with pytest.raises(UsageError, match="True is no int"):
        read({"rows": True}, sized=False)
