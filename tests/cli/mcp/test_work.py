"""Work in threads: turns, errors, progress, and requests that are ended."""

import threading

import anyio
import pytest

from longctx.cli.mcp import work
from longctx.cli.mcp.work import Work, resting
from longctx.core.common.interrupts import Stopped, check


def test_the_result_and_the_error_of_a_job():
    def fails():
        raise ValueError("why")

    async def main():
        assert await Work().run(lambda: 3) == 3
        with pytest.raises(ValueError, match=r"^why$"):
            await Work().run(fails)

    anyio.run(main)


def test_jobs_of_one_kind_take_turns():
    busy, most = [], []

    def job():
        busy.append(1)
        most.append(len(busy))
        threading.Event().wait(0.02)
        busy.pop()

    async def main():
        one = Work()
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(one.run, job)

    anyio.run(main)
    assert most == [1] * 4


def test_progress_is_told_meanwhile_and_at_the_end(monkeypatch):
    monkeypatch.setattr(work, "EVERY", 0.001)
    told, twice = [], threading.Event()

    async def tell():
        told.append(len(told))
        if len(told) == 2:
            twice.set()

    async def main():
        assert await Work().run(lambda: twice.wait(60), tell)
        assert len(told) >= 3

    anyio.run(main)


def test_a_request_that_is_ended_stops_its_job_and_waits_for_that():
    began, ended = threading.Event(), []

    def job():
        began.set()
        try:
            while True:
                check()
                threading.Event().wait(0.001)
        except Stopped:
            threading.Event().wait(0.05)  # as for a checkpoint
            ended.append(True)
            raise

    async def main():
        one = Work()
        async with anyio.create_task_group() as group:
            group.start_soon(one.run, job)
            await anyio.to_thread.run_sync(began.wait)
            group.cancel_scope.cancel()
        assert ended
        assert await one.run(lambda: "next") == "next"

    anyio.run(main)


def test_a_request_that_is_ended_before_its_turn_never_runs():
    let, ran = threading.Event(), []

    async def main():
        one = Work()
        async with anyio.create_task_group() as group:
            group.start_soon(one.run, lambda: let.wait(60))
            await anyio.sleep(0.01)
            with anyio.move_on_after(0.01):
                await one.run(lambda: ran.append(True))
            let.set()
        assert not ran

    anyio.run(main)


def test_rest_comes_once_after_the_last_job():
    rested = []

    async def until(count):
        with anyio.fail_after(60):
            while len(rested) < count:
                await anyio.sleep(0.005)
        await anyio.sleep(0.05)
        assert len(rested) == count

    async def main():
        one, other = Work(), Work()
        async with resting((one, other), lambda: rested.append(True), after=0.01):
            await until(0)  # nothing was done yet
            await one.run(lambda: None)
            await until(1)
            await other.run(lambda: None)
            await until(2)

    anyio.run(main)
