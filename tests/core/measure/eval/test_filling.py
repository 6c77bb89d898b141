"""Filling up to a length: never above it, and not one unit less than there is room for."""

from itertools import count as numbers
from random import Random

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.measure.eval.filling import UnitStream, counter, fill, spread
from longctx.core.model.files import open_model_files


def uneven(number: int) -> str:
    """A text whose units have 1 to 40 letters."""
    draw = Random(7)
    return "".join("x" * draw.randint(1, 40) for _ in range(number))


@pytest.mark.parametrize("length", [0, 1, 39, 40, 1000, 4096])
def test_one_unit_more_would_be_too_long(length):
    text = fill(uneven, len, length, "a test")
    units = next(n for n in numbers() if len(uneven(n)) > length) - 1
    assert text == uneven(units)


def test_few_measurements_are_enough():
    measured = []

    def count(text: str) -> int:
        measured.append(len(text))
        return len(text)

    fill(uneven, count, 200_000, "a test")
    assert len(measured) <= 15


def test_units_may_run_out():
    assert fill(uneven, len, 10_000, "a test", most=5) == uneven(5)
    assert fill(uneven, len, 10_000, "a test", most=0) == ""


def test_units_that_add_nothing_at_first():
    def render(number: int) -> str:
        return "x" * max(0, number - 1000)

    assert len(fill(render, len, 500, "a test")) == 500


def test_what_is_too_long_unfilled_is_told():
    with pytest.raises(UsageError, match=r"5 tokens is too short for vt.*it has 9"):
        fill(lambda number: "x" * (9 + number), len, 5, "vt")


def test_pieces_stand_in_order_at_their_places():
    units = list("0123456789")
    assert "".join(spread(["a", "b", "c"], units, [0.0, 0.5, 0.9999])) == "a01234b56789c"
    assert spread(["a", "b"], [], [0.2, 0.7]) == ["a", "b"]
    assert spread([], units, []) == units


def test_a_stream_is_read_once():
    stream = UnitStream(iter("abcdef"))
    assert stream.first(4) == list("abcd")
    assert stream.first(2) == list("ab")
    assert stream.first(9) == list("abcdef")


def test_tokens_are_those_of_the_tokenizer_without_special_ones():
    tokenizer = open_model_files("tiny").tokenizer
    text = "The keeper wrote <|bos|> in his book.\n"
    plain = "The keeper wrote  in his book.\n"
    ids = tokenizer(plain, add_special_tokens=False)["input_ids"]
    assert counter(tokenizer)(plain) == len(ids)
    assert counter(tokenizer)(text) > len(ids) + 1
