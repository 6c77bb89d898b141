"""What is shown for why, how, and yes or no: the whole sentence or list around a place."""

import pytest

from longctx.core.passages.whole import is_list, wants_steps, wants_whole, whole_answer

STEPS = """\
The pump is old. It was built in Leeds.

To prime the pump, which loses its water overnight:

1. Close the red valve.
2. Fill the funnel with two litres
   of clean water.

3. Open the valve slowly.

Do this every morning. The pump stops because air enters
at the gland, as Mr. Hale found in May, and nobody has
packed it since. Oil is kept below.

| 1. a | 2. b |
"""


@pytest.fixture
def place(document_of):
    """Gives what `whole_answer` finds for a stretch of STEPS."""
    document = document_of(STEPS.encode(), "utf-8")

    def found(stretch):
        start = STEPS.encode().index(stretch.encode())
        low, high = whole_answer(document, 0, start, start + len(stretch.encode()))
        return STEPS.encode()[low:high].decode()

    return found


@pytest.mark.parametrize(
    ("question", "whole"),
    [
        ("Why does the pump stop?", True),
        ("How is the pump primed?", True),
        ("How do I prime it?", True),
        ("Is the pump old?", True),
        ("How many litres?", False),
        ("How old is the pump?", False),
        ("Where is oil kept?", False),
        ("What is why?", False),
        ("How to prime the pump?", True),
        ("To whom was the pump sold?", False),
        ("Island of the pump?", False),
    ],
)
def test_why_how_and_yes_or_no_want_a_whole_sentence(question, whole):
    assert wants_whole(question) is whole


def test_a_wrapped_sentence_is_whole(place):
    assert place("air enters") == (
        "The pump stops because air enters\n"
        "at the gland, as Mr. Hale found in May, and nobody has\n"
        "packed it since."
    )


@pytest.mark.parametrize("stretch", ["red valve", "of clean water", "slowly"])
def test_a_step_has_its_list_and_what_leads_to_it(place, stretch):
    found = place(stretch)
    assert found.startswith("To prime the pump, which loses its water overnight:")
    assert found.endswith("3. Open the valve slowly.")
    assert is_list(found)


def test_a_stretch_over_two_sentences_has_both(place):
    assert place("is old. It was") == "The pump is old. It was built in Leeds."
    assert not is_list("The pump is old. It was built in Leeds.")


LOOSE = """\
Do this:
1. Close the red valve and
then wait.
2. Fill the funnel.
3. Open the valve and
then stop.
"""


def test_a_list_whose_items_are_not_set_in_is_left(document_of):
    data = LOOSE.encode()
    start = data.index(b"funnel")
    low, high = whole_answer(document_of(data, "utf-8"), 0, start, start + 6)
    assert data[low:high] == b"2. Fill the funnel."


@pytest.mark.parametrize("encoding", ["cp932", "utf-8"])
def test_a_sentence_that_may_be_cut_off_is_left(document_of, encoding):
    data = ("\u3042" * 4000 + "lamp" + "\u3044" * 4000).encode(encoding)
    start = data.index(b"lamp")
    assert whole_answer(document_of(data, encoding), 0, start, start + 4) == (start, start + 4)


def test_what_leads_to_a_list_is_short_and_whole(document_of):
    steps = "1. Close the valve.\n2. Fill the funnel.\n"
    for before in ("word " * 2000, "word " * 100):
        data = f"{before}:\n{steps}".encode()
        start = data.index(b"funnel")
        low, high = whole_answer(document_of(data, "utf-8"), 0, start, start + 6)
        assert data[low:high].decode() == steps.strip()


def test_only_how_wants_a_whole_list(document_of):
    assert wants_steps("How do I prime it?")
    assert not wants_steps("Is the valve red?")
    data = STEPS.encode()
    start = data.index(b"red valve")
    low, high = whole_answer(document_of(data, "utf-8"), 0, start, start + 9, steps=False)
    assert data[low:high] == b"1. Close the red valve."
