"""Signals that wait: each arrives once, where it may."""

import signal
import threading

import pytest

from longctx.core.common.interrupts import ENDING, Held


@pytest.fixture(autouse=True)
def handled(handlers):
    """SIGTERM has a handler too, as in the command line."""

    def handle(number: int, frame: object) -> None:
        raise KeyboardInterrupt(128 + number)

    for number in ENDING:
        signal.signal(number, handle)


def until_let(number: int, done: list[str]) -> None:
    with Held() as held:
        signal.raise_signal(number)
        done.append("first")
        with held.let():
            done.append("never")


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_waits_until_it_is_let_through(number):
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt) as caught:
        until_let(number, done)
    assert done == ["first"]
    assert caught.value.args == (128 + number,)


def until_the_end(done: list[str]) -> None:
    with Held():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        done.append("all")


def test_or_until_the_end():
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt) as caught:
        until_the_end(done)
    assert done == ["all"]
    assert caught.value.args == (143,)  # of the first one


def test_within_it_takes_effect_at_once_and_afterwards_nothing_waits():
    with Held() as held:
        with pytest.raises(KeyboardInterrupt), held.let():
            signal.raise_signal(signal.SIGINT)
        with held.let():
            pass


def failing() -> None:
    with Held():
        signal.raise_signal(signal.SIGINT)
        raise ZeroDivisionError


def test_an_error_is_not_replaced_and_handlers_return():
    before = [signal.getsignal(number) for number in ENDING]
    with pytest.raises(ZeroDivisionError):
        failing()
    assert [signal.getsignal(number) for number in ENDING] == before


def test_what_is_ignored_or_left_to_the_system_stays_so():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with Held() as held:
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        signal.raise_signal(signal.SIGINT)
        with held.let():
            pass


def test_in_another_thread_nothing_is_held():
    done = []

    def work() -> None:
        with Held() as held, held.let():
            done.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == ["done"]
