"""When a checkpoint is due: tokens or seconds, whichever comes first, and not too often."""

import pytest

from longctx.core.ingest import checkpoints
from longctx.core.ingest.checkpoints import Cadence, Checkpoints


@pytest.fixture
def clock(monkeypatch):
    """A time that only a test moves."""

    class Clock:
        now = 100.0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(checkpoints, "time", clock)
    return clock


def test_after_tokens_or_seconds_whichever_comes_first(clock):
    usual = Checkpoints(Cadence())
    assert not usual.is_due(262_143)
    assert usual.is_due(262_144)
    clock.now += 59
    assert not usual.is_due(1)
    clock.now += 1
    assert usual.is_due(1)


def test_only_what_the_user_said(clock):
    tokens, seconds = Checkpoints(Cadence.given(100, None)), Checkpoints(Cadence.given(None, 5))
    clock.now += 1e6
    assert (tokens.is_due(99), tokens.is_due(100)) == (False, True)
    seconds.start(0)
    assert not seconds.is_due(10**9)
    assert Cadence.given(None, None) == Cadence()


def test_never_twice_at_the_same_place(clock):
    every = Checkpoints(Cadence.given(None, 5))
    clock.now += 10
    assert not every.is_due(0)


def test_counted_from_the_last_checkpoint(clock):
    every = Checkpoints(Cadence.given(100, None))
    with every.writing(130):
        clock.now += 2
    assert (every.is_due(229), every.is_due(230)) == (False, True)
    assert every.spent == 2


@pytest.mark.parametrize(
    ("given", "waits"), [(Cadence(10, 1), True), (Cadence.given(10, 1), False)]
)
def test_by_default_checkpoints_take_a_twentieth_of_the_time(clock, given, waits):
    every = Checkpoints(given)
    with every.writing(10):
        clock.now += 3
    clock.now += 59
    assert every.is_due(1000) is not waits
    clock.now += 1
    assert every.is_due(1000)


def test_what_took_no_reading_makes_none_due(clock):
    usual = Checkpoints(Cadence.given(100, 5))
    usual.skip(500)
    assert (usual.is_due(599), usual.is_due(600)) == (False, True)
    clock.now += 5
    assert (usual.is_due(500), usual.is_due(501)) == (False, True)
