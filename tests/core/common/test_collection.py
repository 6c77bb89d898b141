"""Garbage collection is as it was before, whatever other threads paused meanwhile."""

import gc

import pytest

from longctx.core.common.collection import no_collection


@pytest.fixture(params=[True, False])
def enabled(request):
    """Whether it is on before."""
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("first_in_is_first_out", [True, False])
def test_pauses_that_overlap(enabled, first_in_is_first_out):
    pauses = [no_collection(), no_collection()]
    for pause in pauses:
        pause.__enter__()
        assert not gc.isenabled()
    for pause in pauses if first_in_is_first_out else pauses[::-1]:
        pause.__exit__(None, None, None)
    assert gc.isenabled() is enabled
