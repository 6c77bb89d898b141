"""What stands above a passage: the heading, the head of its table, the units."""

import pytest

from longctx.core.passages.context import LONGEST, context, is_table

STATEMENT = """\
CONSOLIDATED STATEMENTS OF OPERATIONS

(in thousands, except per share data)
Year ended March 31,
                         2021        2020
Revenue              $ 12,345    $ 11,200
"""
ROWS = "Cost of sales           4,100       3,950\nGross profit            8,245       7,250\n"


def test_a_row_far_below_has_the_years_and_the_units():
    above = context(STATEMENT, ROWS)
    assert "2021 2020" in above
    assert "in thousands" in above


def test_rows_of_a_csv_file_have_the_names_of_its_columns():
    head = "id,name,city\n" + "".join(f"{n},Ann,Oslo\n" for n in range(900))
    assert context(head, "900,Ben,Bergen\n901,Cy,Hamar\n902,Di,Bodø\n") == "id,name,city"


@pytest.mark.parametrize(
    ("before", "heading"),
    [
        ("# Repairs\n\nFirst.\n", "Repairs"),
        ("The end.\n\nThe Storm of the Century\n\nIt began.\n", "The Storm of the Century"),
        ("It ended so.\n\nCHAPTER IX\n\n", "CHAPTER IX"),
        ("He said it, and\n\nshe agreed to that.\n", ""),
        ("", ""),
    ],
)
def test_prose_has_the_heading_above_it(before, heading):
    assert context(before, "It rained for days, and nobody came.\n") == heading


def test_prose_with_commas_and_dates_is_no_table():
    assert not is_table("In 1893, on 14 November, it broke, they said.\nIn 1894, it was mended.\n")
    assert is_table(ROWS)


def test_it_is_short():
    assert len(context("# " + "x " * 4000 + "\n", "text")) <= LONGEST
    assert len(context("a,b,c\n" * 5000, "1,2,3\n" * 10)) <= LONGEST
