"""What a list says of a document, by its facts alone."""

import pytest

from longctx.core.api.told import listed
from longctx.core.store.facts import Facts

SECOND = 10**9


@pytest.mark.parametrize(
    ("modified", "saved"),
    [
        (86_400 * SECOND + 1, "1970-01-02T00:00:00+00:00"),
        (0, None),
        (10**12 * SECOND, None),  # some file systems keep such times
        (-(10**12) * SECOND, None),
        (253_402_300_799 * SECOND, None),  # elsewhere it is the year 10000 already
    ],
)
def test_a_time_that_no_calendar_has_is_unknown(modified, saved):
    stamp = (modified, 1, 1, 1)
    facts = Facts("a", None, "complete", 1, 1, "reform", {}, {}, True, "", (), stamp=stamp)
    assert listed(facts)["saved"] == saved
