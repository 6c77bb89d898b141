"""The answer that the text has none."""

import pytest

from longctx.core.ask.refusing import is_refusal


@pytest.mark.parametrize(
    ("answer", "refused"),
    [("not in the text", True), ("Not in the document.\n", True), ("It is not in the text", False)],
)
def test_a_refusal_is_a_phrase_and_nothing_more(answer, refused):
    assert is_refusal(answer) == refused
