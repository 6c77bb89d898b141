"""Threads beside the main one: order, bounds, errors, and that none outlives its context."""

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from longctx.core.common.background import Behind, prefetched


class Fault(BaseException):
    """An error that nobody else raises; Ctrl-C is no Exception either."""


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


@pytest.mark.parametrize("depth", [1, 3, 100])
def test_what_is_read_ahead_comes_in_order(depth):
    with prefetched(iter_of(range(50)), depth) as items:
        assert list(items) == list(range(50))


def iter_of(items, made=None, closed=None):
    """A generator that notes what it made, and that it was closed."""
    try:
        for item in items:
            if made is not None:
                made.append(item)
            yield item
    finally:
        if closed is not None:
            closed.set()


def test_no_more_is_read_ahead_than_is_allowed():
    made: list[int] = []
    with prefetched(iter_of(range(100), made), 3) as items:
        for item in items:
            assert len(made) <= item + 1 + 3 + 1  # taken, waiting, and the one in hand
    assert len(made) == 100


def test_an_error_comes_after_what_was_before_it():
    def failing():
        yield 1
        raise Fault("here")

    with prefetched(failing(), 8) as items:
        assert next(items) == 1
        with pytest.raises(Fault, match="here"):
            next(items)


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_reading_ahead_ends_with_its_context(taken):
    closed = threading.Event()

    def read() -> None:
        with prefetched(iter_of(range(10**9), None, closed), 2) as items:
            for _ in range(taken):
                next(items)
            raise Fault

    with pytest.raises(Fault):
        read()
    assert closed.is_set()


def test_calls_are_made_in_order_in_another_thread():
    calls: list[tuple[int, bool]] = []

    def note(number: int) -> None:
        calls.append((number, threading.current_thread() is threading.main_thread()))

    with Behind(2) as behind:
        for number in range(20):
            behind.do(note, number)
        behind.wait()
        assert calls == [(number, False) for number in range(20)]


def test_no_more_calls_wait_than_are_allowed():
    held, go, made = threading.Event(), threading.Event(), []

    def hold() -> None:
        held.set()
        go.wait()

    with Behind(2) as behind:
        behind.do(hold)
        held.wait()  # it is in hand, so two more may wait
        behind.do(made.append, 1)
        behind.do(made.append, 2)
        late = threading.Thread(target=behind.do, args=(made.append, 3))
        late.start()
        late.join(0.05)
        assert late.is_alive()
        go.set()
        late.join()
    assert made == [1, 2, 3]


def test_more_calls_may_wait_while_what_they_hold_has_room():
    held, go, made = threading.Event(), threading.Event(), []

    def hold() -> None:
        held.set()
        go.wait()

    with Behind(1, room=1 << 20) as behind:
        behind.do_holding(1 << 18, hold)
        held.wait()  # what a call holds counts until it has been made
        for number in range(3):
            behind.do_holding(1 << 18, partial(made.append, number))
        late = threading.Thread(target=behind.do_holding, args=(1, partial(made.append, 3)))
        late.start()
        late.join(0.05)
        assert late.is_alive()
        go.set()
        late.join()
    assert made == [0, 1, 2, 3]


@pytest.mark.parametrize("how", ["do", "wait", "leave"])
def test_an_error_is_raised_by_the_next_step_and_no_later_call_is_made(how):
    made: list[int] = []

    def fail() -> None:
        raise Fault("disk full")

    def write() -> None:
        with Behind(4) as behind:
            behind.do(fail)
            behind.do(made.append, 1)
            if how == "wait":
                behind.wait()
            elif how == "do":
                behind._waiting.join()
                behind.do(made.append, 2)

    with pytest.raises(Fault, match="disk full"):
        write()
    assert made == []


def test_what_was_due_before_an_exception_is_done():
    made: list[int] = []

    def write() -> None:
        with Behind(8) as behind:
            for number in range(5):
                behind.do(made.append, number)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert made == [0, 1, 2, 3, 4]


def test_a_second_interrupt_drops_what_waits_and_leaves_no_thread():
    begun, go, made = threading.Event(), threading.Event(), []

    def first():
        begun.set()
        go.wait(30)

    behind = Behind(4)
    thread = behind._thread
    real, calls = thread.join, []

    def interrupted(timeout=None):
        calls.append(timeout)
        if len(calls) == 1:
            raise KeyboardInterrupt
        go.set()
        real(timeout)

    thread.join = interrupted
    behind.__enter__()
    behind.do(first)
    behind.do(made.append, 1)
    begun.wait(30)
    with pytest.raises(KeyboardInterrupt):
        behind.__exit__(None)
    assert not thread.is_alive()
    assert made == []
