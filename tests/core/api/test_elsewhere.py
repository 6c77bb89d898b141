"""Another server's model, and pages, in the Python interface."""

import threading

import pytest
from chat_server import Misbehaving, events, stream

import longctx


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Misbehaving().running() as server:
        server.give = lambda handler, _: stream(handler, events("the ", "keeper"))
        yield server


@pytest.fixture
def elsewhere(server, model_folder):
    profile = str(model_folder / "profile.yaml")
    with longctx.Model(
        str(model_folder), profile=profile, device="cpu", dtype="fp32", answer_with=server.url
    ) as model:
        yield model


def test_a_model_may_answer_elsewhere_and_nothing_is_printed(library, server, elsewhere, capfd):
    told = []
    document = library["book"]
    assert document.open(model=elsewhere).answers == server.url.removesuffix("/v1")
    assert not server.asked
    answer = document.ask("who came home", model=elsewhere, on_sending=told.append)
    assert str(answer) == "the keeper"
    assert told == [answer.sent]
    assert answer.sent.to == f"{server.url}/chat/completions"
    assert document.ask("who came home").sent is None
    assert len(server.asked) == 1
    assert capfd.readouterr() == ("", "")
    assert "answer_with" in repr(elsewhere)


def test_it_answers_piece_by_piece_and_for_several(library, server, elsewhere):
    pieces = library["book"].ask("who came home", stream=True, model=elsewhere)
    assert [*pieces] == ["the ", "keeper"]
    assert library.ask("who came home", model=elsewhere).sent.model == "one"
    assert library["book"].find("boat", model=elsewhere).passages
    assert len(server.asked) == 2


def test_one_thread_ends_what_another_waits_for_from_a_silent_server(library, server, elsewhere):
    went, ends = threading.Event(), threading.Event()

    def give(handler, _):
        stream(handler, events("the ", stop=None, done=False))
        handler.wfile.flush()
        went.set()
        ends.wait(60)

    server.give = give
    pieces = library["book"].ask("who came home", stream=True, model=elsewhere)
    assert next(pieces) == "the "
    assert went.wait(60)
    pieces.close()
    assert not ends.is_set()
    assert (pieces.answer.answer, pieces.answer.stop) == ("the", "interrupted")
    ends.set()


def test_what_goes_wrong_there_has_a_class_of_its_own(library, server, model_folder):
    server.give = lambda handler, _: stream(handler, events("the ", stop=None, done=False))
    options = {"device": "cpu", "profile": str(model_folder / "profile.yaml"), "dtype": "fp32"}
    with (
        longctx.Model(str(model_folder), answer_with=server.url, **options) as model,
        pytest.raises(longctx.NoAnswer, match="ended before the answer"),
    ):
        library["book"].ask("who", model=model)
    with (
        longctx.Model(str(model_folder), server_model="one", **options) as model,
        pytest.raises(longctx.UsageError, match="no server is named"),
    ):
        library["book"].ask("who", model=model)


def test_answers_make_a_page(library):
    shown = []
    answer = library["book"].ask("who came home", on_shown=shown.append)
    library.ask("what came home", on_shown=shown.append)
    assert shown[0].answer == answer
    library.close()
    page = longctx.answers_page(shown)
    assert page.startswith("<!doctype html>")
    assert "who came home" in page
    assert "what came home" in page
