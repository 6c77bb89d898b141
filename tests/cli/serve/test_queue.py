"""One answer after another: a bounded queue, clients that leave, and streams that fail."""

import asyncio
import json
import shutil
import threading

import openai
import pytest
from raw_clients import until

import longctx
from longctx.cli.serve import resting, sse
from longctx.cli.serve.errors import Refused
from longctx.cli.serve.options import Options
from longctx.cli.serve.work import Left, Work
from longctx.core.common.interrupts import check

USER = [{"role": "user", "content": "Who kept the lighthouse?"}]


@pytest.fixture
def work():
    """A queue with room for two."""
    found = Work(2)
    yield found
    found.close()


class Busy:
    """Work that goes on until it is told to end, or is ended."""

    def __init__(self):
        self.begun, self.end, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, *_: object) -> str:
        self.begun.set()
        try:
            while not self.end.wait(0.01):
                check()
        finally:
            self.ended.set()
        return "done"


async def occupied(work: Work) -> tuple[Busy, asyncio.Task]:
    busy = Busy()
    task = asyncio.ensure_future(work.run(busy))
    await asyncio.to_thread(busy.begun.wait)
    await asyncio.sleep(0)
    return busy, task


def test_the_queue_has_an_end(work):
    async def run():
        busy, first = await occupied(work)
        others = [asyncio.ensure_future(work.run(lambda: "later")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="2 requests wait already") as caught:
            await work.run(lambda: "never")
        with pytest.raises(Refused):
            work.stream(lambda on_text: "never")
        assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "1"})
        busy.end.set()
        assert await first == "done"
        assert await asyncio.gather(*others) == ["later", "later"]
        assert (work.waiting, work.running, work.refused) == (0, 0, 2)

    asyncio.run(run())


def test_what_nobody_waits_for_is_not_begun(work):
    async def run():
        busy, first = await occupied(work)
        done = []
        other = asyncio.ensure_future(work.run(lambda: done.append(1)))
        stream = work.stream(lambda on_text: done.append(2))
        await asyncio.sleep(0)
        assert work.waiting == 2
        other.cancel()
        stream.close()
        stream.close()
        await asyncio.gather(other, return_exceptions=True)
        assert work.waiting == 0
        busy.end.set()
        await first
        assert await work.run(lambda: "next") == "next"
        assert done == []

    asyncio.run(run())


def test_what_nobody_waits_for_any_more_ends(work):
    async def run():
        busy, first = await occupied(work)
        first.cancel()
        assert await asyncio.to_thread(busy.ended.wait, 60)
        assert await work.run(lambda: "next") == "next"

    asyncio.run(run())


def test_pieces_come_in_order_then_the_whole(work):
    def asks(on_text):
        for number in range(100):
            on_text(str(number))
        return "whole"

    async def run():
        ends = []
        pieces = work.stream(asks, ends.append)
        assert [piece async for piece in pieces] == [*map(str, range(100))]
        assert (pieces.answer, ends, pieces.ended) == ("whole", ["whole"], True)

    asyncio.run(run())


def test_a_stream_that_nobody_reads_ends(work):
    async def run():
        busy = Busy()
        pieces = work.stream(busy)
        assert await pieces.next(0.2) is None
        assert not pieces.ended
        pieces.close()
        assert await asyncio.to_thread(busy.ended.wait, 60)
        with pytest.raises(Left):
            await pieces.next(60)

    asyncio.run(run())


async def body(response) -> str:
    return "".join([part async for part in response.body_iterator])


async def shown(work: Work, asks):
    events = [lambda: "begin ", lambda piece: f"{piece} ", lambda whole: f"end {whole}"]
    return await sse.streamed(work.stream(asks), *events, lambda refused: f"failed: {refused}")


def test_an_error_before_the_first_piece_has_its_own_status(work):
    def asks(on_text):
        raise Refused(404, "nothing", "none")

    with pytest.raises(Refused, match="nothing"):
        asyncio.run(shown(work, asks))


def test_an_error_behind_it_is_an_event(work):
    def asks(on_text):
        on_text("piece")
        raise Refused(500, "broken", "broken")

    async def run():
        return await body(await shown(work, asks))

    assert asyncio.run(run()) == "begin piece failed: broken"


def test_a_long_wait_keeps_the_connection_open(work, monkeypatch):
    monkeypatch.setattr(sse, "PATIENCE", 0.05)
    end = threading.Event()

    def asks(on_text):
        end.wait(60)
        on_text("piece")
        return "whole"

    async def run():
        response = await shown(work, asks)
        parts = []
        async for part in response.body_iterator:
            parts.append(part)
            if len(parts) == 4:
                end.set()
        return parts

    parts = asyncio.run(run())
    assert parts[:4] == ["begin ", *[sse.ALIVE] * 3]
    assert parts[-2:] == ["piece ", "end whole"]


def held(served):
    """Keeps the model's thread busy; gives what lets it go."""
    end = threading.Event()
    served.app.state.work._thread.submit(end.wait, 60)
    return end


def test_clients_beyond_the_bound_are_told_to_wait(serve):
    served = serve(waiting=0)
    end, answers = held(served), []

    def ask():
        answers.append(served.openai.chat.completions.create(model="longctx/notes", messages=USER))

    first = threading.Thread(target=ask)
    first.start()
    until(lambda: served.app.state.work.waiting == 1)
    with pytest.raises(openai.RateLimitError) as caught:
        served.openai.chat.completions.create(model="longctx/notes", messages=USER)
    assert int(caught.value.response.headers["retry-after"]) >= 1
    assert caught.value.code == "too_many_requests"
    end.set()
    first.join()
    assert len(answers) == 1
    assert "longctx_refused_total 1\n" in served.http.get("/metrics").text


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_the_queue_is_not_answered(served, stream):
    end = held(served)
    before = served.app.state.counts.tokens["answer"]
    with pytest.raises(openai.APITimeoutError):
        served.openai.with_options(timeout=0.5).chat.completions.create(
            model="longctx/notes", messages=USER, stream=stream
        )
    until(lambda: served.app.state.work.waiting == 0)
    end.set()
    served.http.get("/health").raise_for_status()
    assert served.app.state.counts.tokens["answer"] == before


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_a_client_that_leaves_stops_its_answer(served, path):
    """It would have a thousand tokens: sampled so hot, it does not end by itself."""
    asked = {"model": "longctx/notes", "stream": True, "temperature": 5.0, "seed": 1}
    asked |= {"messages": USER, "max_tokens": 1000, "input": "Who?", "max_output_tokens": 1000}
    asked["longctx"] = {"anyway": True}
    work, counts = served.app.state.work, served.app.state.counts
    before = counts.tokens["answer"]
    with served.http.stream("POST", path, json=asked) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        while "delta" not in next(lines):
            pass
        assert work.running == 1
    until(lambda: work.running == 0)
    assert counts.tokens["answer"] == before


def test_events_are_valid_json(served):
    body = {"model": "longctx/notes", "messages": USER, "stream": True}
    lines = served.http.post("/v1/chat/completions", json=body).text.splitlines()
    data = [line.removeprefix("data: ") for line in lines if line]
    assert data[-1] == "[DONE]"
    assert all(json.loads(line)["object"] == "chat.completion.chunk" for line in data[:-1])


def test_documents_that_nobody_asks_for_are_closed(run_server, documents, monkeypatch, tmp_path):
    monkeypatch.setattr(resting, "REST_S", 0.1)
    folder = shutil.copytree(documents.path, tmp_path / "library")
    others = longctx.Library(folder)
    with (
        longctx.Library(folder, documents.model) as library,
        run_server(library, Options()) as served,
    ):
        library.document("notes").open()
        with pytest.raises(longctx.Locked):
            others.remove("notes")
        for model in ("longctx/notes", "longctx"):
            asked = {"model": model, "messages": USER, "max_tokens": 1}
            served.http.post("/v1/chat/completions", json=asked).raise_for_status()
        until(lambda: is_removed(others, "notes"))
        until(lambda: is_removed(others, "letter"))


def is_removed(library, name: str) -> bool:
    try:
        library.remove(name)
    except longctx.Locked:
        return False
    return True
