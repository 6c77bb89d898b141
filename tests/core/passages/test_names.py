"""Where a name begins in which a quotation begins."""

import pytest

from longctx.core.passages.names import name_start

MET = "They met"


@pytest.mark.parametrize(
    "name",
    [
        "St. Mary's",
        "Dr. Agnes Duthie",
        "J. R. Hale",
        "Captain Iain MacLeod",
        "Rosa de la Cruz",
        "Sir Humphrey Pole-Carew",
        "Lieut. Thomas O'Brien",
        "Wm. Harding",
        "\u00c9mile \u00d6rrock",
    ],
)
def test_a_name_keeps_its_first_word(name):
    for before in (f"{MET} ", f"{MET}, \u201c", "", "It was so. ", "# "):
        text = f"{before}{name} at sea."
        start = text.index(name.split()[-1])
        assert text[name_start(text, start) :].startswith(name), text
    assert name_start(text, start, start - 1) == start  # not before where it may begin


def test_a_name_may_go_on_in_the_next_line_of_wrapped_prose():
    text = (
        "The bells of the church were cast in 1702 by Josiah\n"
        "Kemble and brought here in a boat that was built for\n"
        "them alone, and in which nobody else wanted to sail."
    )
    assert text[name_start(text, text.index("Kemble")) :].startswith("Josiah\nKemble")
    assert name_start("* Josiah\n* Kemble\n", 11) == 11


@pytest.mark.parametrize(
    "before",
    [
        "The ",
        "But ",
        "On Monday ",
        "I met ",
        "It was red. ",
        "Mary, ",
        "Of the ",
        "In 1854 ",
        "Room B12 ",
        "There was a harbour. Harbour ",
        "a (Mary) ",
        "so said de ",
    ],
)
def test_what_is_before_a_name_is_no_part_of_it(before):
    text = f"{before}Hale came."
    assert name_start(text, text.index("Hale")) == text.index("Hale")


@pytest.mark.parametrize("words", ["Josiah Kemble's clock", "Pier B12", "John made 42", "Of THE"])
def test_a_quotation_that_begins_with_no_name_begins_where_it_did(words):
    start = words.rindex(" ") + 1
    assert name_start(words, start) == start
