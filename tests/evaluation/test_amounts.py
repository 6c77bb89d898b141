"""Figures of filings: within 1%, with their unit and sign."""

import pytest
from public_sets import amounts

MILLIONS = "What is the FY2018 capital expenditure amount (in USD millions)?"
BILLIONS = "What is the net PPNE? Answer in USD billions."
PERCENTS = "What is the growth of revenue? Answer in units of percents."


@pytest.mark.parametrize(
    ("question", "right", "answer", "holds"),
    [
        (MILLIONS, "$1577.00", "$1,577", True),
        (MILLIONS, "$1577.00", "$1,577 million", True),
        (MILLIONS, "$1577.00", "1.577 billion dollars", True),
        (MILLIONS, "$1577.00", "$1,577,000,000", True),
        (MILLIONS, "$1577.00", "(1,577)", True),  # spending stands in brackets in its table
        (MILLIONS, "$1577.00", "$1,577 thousand", False),
        (MILLIONS, "$1577.00", "1,590", True),  # within 1%
        (MILLIONS, "$1577.00", "1,600", False),
        ("What is the working capital? Answer in USD millions.", "$58.00", "(58)", False),
        (BILLIONS, "$8.70", "$8.738 billion", True),
        (BILLIONS, "$8.70", "$8,738 million", True),
        (BILLIONS, "$8.70", "$8,738", False),  # a table's figure without its unit
        (PERCENTS, "30.8%", "30.8", True),
        (PERCENTS, "30.8%", "31%", True),
        (PERCENTS, "30.8%", "30.8 million", False),
        ("What is the ratio?", "0.66", "0.66", True),
        ("What is the ratio?", "0.66", "66%", True),
        ("What is the ratio?", "0.66", "66", False),
        ("What is the tax rate?", "0.62%", "0.62", False),  # that would be 62%
        ("What is the cycle?", "-3.7", "-3.7 days", True),
        ("What is the cycle?", "-3.7", "(3.7)", True),
        ("What is the cycle?", "-3.7", "a negative 3.7", True),
        ("What is the cycle?", "-3.7", "3.7", False),
        ("What was the tax rate?", "-14.76%", "(14.76)%", True),
        ("How did it change?", "A decline of 0.6%.", "It decreased by 0.6%", True),
        ("How did it change?", "A decline of 0.6%.", "It increased by 0.6%", False),
        ("What was it?", "It rose from 20% to 20.1% in FY2023.", "20.1%, from 20.0%", True),
        ("What was it?", "Richard A. Johnson", "Richard", False),
    ],
)
def test_amounts(question, right, answer, holds):
    assert amounts.holds(question, right, answer) is holds


@pytest.mark.parametrize(
    "text",
    ["FY2023", "in 2021", "August 30, 2023", "the 10-K", "Q2 of FY 2024", "(1) Current Health"],
)
def test_years_forms_and_numbers_of_items_are_no_amounts(text):
    assert amounts.amounts(text) == []


def test_what_stands_in_brackets_as_an_aside_is_not_negative():
    (one,) = amounts.amounts("most came from operations ($1.8 bn)")
    assert (one.sign, one.figure.whole) == (0, 1.8e9)
