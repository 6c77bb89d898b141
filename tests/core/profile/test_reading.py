"""How passages are put before a model: the values that a profile may give."""

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.profile import profile
from longctx.core.profile.reading import Reading


def test_a_profile_that_says_nothing_reads_as_ever():
    assert profile.load("name: a\n", "a.yaml").reading == Reading()
    assert (Reading().order, Reading().separator) == ("document", "")


def test_a_profile_says_how_passages_are_read():
    text = (
        "name: a\nreading: {tokens: 600, passages: 2, order: best-last, "
        'separator: "\\n\\n", quote: true}\n'
    )
    wanted = Reading(600, 2, "best-last", "\n\n", True)
    assert profile.load(text, "a.yaml").reading == wanted


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("{window: 64}", "unknown key 'window' in `reading` of a.yaml"),
        ("{order: best}", r"`order` is 'best'.* document, best-first, best-last"),
        ("{tokens: 0}", "`tokens` is 0.* 1 or more"),
        ("{passages: -1}", "`passages` is -1"),
        ("{passages: two}", "passages"),
        ("{seperator: x}", "unknown key 'seperator' in `reading` of a.yaml"),
        ("4", "reading"),
    ],
)
def test_a_wrong_value_is_refused_and_named(values, message):
    with pytest.raises(UsageError, match=message):
        profile.load(f"name: a\nreading: {values}\n", "a.yaml")
