"""Turns: in the order in which threads came, again in the same thread, and given to others."""

import threading
import time

import pytest

from longctx.core.common.interrupts import Stopped, ended_by
from longctx.core.common.turns import Turns


def queued(turns: Turns, count: int, work) -> list[threading.Thread]:
    """Threads that wait for a turn, in their order."""
    threads = []
    for number in range(count):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        while len(turns._waiting) <= number:
            time.sleep(0.001)
    return threads


def test_threads_have_their_turn_in_order():
    turns, done = Turns(), []

    def work(number: int) -> None:
        with turns, turns:
            done.append(number)

    with turns:
        threads = queued(turns, 5, work)
        assert done == []
    for thread in threads:
        thread.join()
    assert done == [0, 1, 2, 3, 4]


def test_who_works_long_lets_the_others_go_first():
    turns, done = Turns(), []

    def work(number: int) -> None:
        with turns:
            done.append(number)

    with turns:
        turns.give_way()  # to nobody
        with turns:
            threads = queued(turns, 3, work)
            turns.give_way()
            done.append("mine")
    for thread in threads:
        thread.join()
    assert done == [0, 1, 2, "mine"]


def test_waiting_can_be_ended():
    turns, end, ended = Turns(), threading.Event(), []

    def work(number: int) -> None:
        with pytest.raises(Stopped), ended_by(end), turns:
            pass
        ended.append(number)

    with turns:
        (thread,) = queued(turns, 1, work)
        end.set()
        thread.join()
        assert ended == [0]
    with turns:
        assert not turns._waiting
