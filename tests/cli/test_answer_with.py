"""`ask --answer-with`: what is said before, errors, settings, and the prompt; `ask --html`."""

import json

import pytest
from chat_server import Misbehaving, events, reply, stream
from page_elements import Elements

QUESTION = "who wrote in his book?"


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Misbehaving().running() as server:
        server.give = lambda handler, _: stream(handler, events("the ", "keeper"))
        yield server


@pytest.fixture
def ask(longctx, library, server):
    def run(*options, **more):
        return longctx("ask", *options, "--answer-with", server.url, **more)

    return run


def test_the_answer_comes_with_what_was_sent_said_before(ask, server, monkeypatch):
    monkeypatch.setenv("LONGCTX_SERVER_KEY", "secret-1")
    done = ask(QUESTION, "--gather", 40)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("the keeper\n")
    (told,) = [line for line in done.stderr.splitlines() if "sends" in line]
    text = server.asked[0][2]["messages"][0]["content"]
    assert f"and the question, {len(text):,} characters, to {server.url}/chat/completions" in told
    assert "(model one, with the key of LONGCTX_SERVER_KEY): " in told
    assert "book.txt:" in told
    assert "secret-1" not in done.stderr + done.stdout
    assert "\x1b" not in done.stderr


def test_json_has_what_was_sent_and_nothing_else_is_sent(ask, longctx, server):
    answer = json.loads(ask(QUESTION, "--json", "--server-model", "mine").stdout)
    assert answer["answer"] == "the keeper"
    assert answer["state"]["answer_model"] == answer["sent"]["model"] == "mine"
    text = server.asked[0][2]["messages"][0]["content"]
    assert answer["sent"]["characters"] == len(text)
    assert {"document", "source", "place", "line", "start", "end", "characters"} == {
        *answer["sent"]["passages"][0]
    }
    answer = json.loads(longctx("ask", QUESTION, "--json").stdout)
    assert answer["sent"] is None
    assert len(server.asked) == 1


def test_many_questions_go_on_where_the_server_refuses_one(ask, server, tmp_path):
    def give(handler, body):
        if "second" in body["messages"][0]["content"]:
            reply(handler, 500, {"error": "no"})
        else:
            stream(handler, events("so"))

    server.give = give
    file = tmp_path / "questions.txt"
    file.write_text("first book?\nsecond book?\nthird book?\n")
    done = ask("--questions", file)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line.get("answer") for line in lines] == ["so", None, "so"]
    assert lines[1]["error"]["code"] == done.exit_code == 14


def test_no_setting_lets_text_leave_this_computer(longctx, library, server, tmp_path, monkeypatch):
    monkeypatch.setenv("LONGCTX_ANSWER_WITH", server.url)
    assert longctx("ask", QUESTION).exit_code == 0
    (tmp_path / "config.toml").write_text(f'answer-with = "{server.url}"\n')
    assert longctx("ask", QUESTION).exit_code == 2
    assert not server.asked


def test_settings_for_models_here_do_not_reach_a_server_and_options_are_refused(
    ask, server, monkeypatch
):
    monkeypatch.setenv("LONGCTX_DECODE", "dense")
    monkeypatch.setenv("LONGCTX_TOP_K", "3")
    monkeypatch.setenv("LONGCTX_QUOTE", "1")
    monkeypatch.setenv("LONGCTX_ANSWER_MODEL", "tiny")
    assert ask(QUESTION).exit_code == 0
    for options in (
        ("--decode", "dense"),
        ("--top-k", "3"),
        ("--quote",),
        ("--answer-model", "tiny"),
        ("--answer-profile", "tiny"),
    ):
        done = ask(QUESTION, *options)
        assert done.exit_code == 2
        assert f"cannot take both --answer-with and {options[0]}" in done.stderr
    assert len(server.asked) == 1


def test_an_error_says_what_to_do(ask, longctx, library, server):
    server.give = lambda handler, _: reply(handler, 401, {"error": {"message": "no\x1b[31m key"}})
    done = ask(QUESTION)
    assert done.exit_code == 14
    assert "it wants a key (401: no [31m key). Set LONGCTX_SERVER_KEY" in done.stderr
    done = longctx("ask", QUESTION, "--server-model", "one")
    assert done.exit_code == 2
    assert "Give --answer-with URL too" in done.stderr


# --- pages ---


def test_a_page_is_written_beside_the_answer(ask, server, tmp_path):
    server.give = lambda handler, _: stream(handler, events("<script>the keeper</script>"))
    page = tmp_path / "page.html"
    done = ask(QUESTION, "--gather", 40, "--html", page)
    assert done.exit_code == 0, done.stderr
    assert f"page: {page}" in done.stderr
    text = page.read_text("utf-8")
    read = Elements(text)
    assert ("h1", {}, QUESTION) in read.inside
    assert ("p", {"class": "answer"}, "<script>the keeper</script>") in read.inside
    assert "script" not in {tag for tag, _ in read.found}
    assert any("http://x" in text for text in read.texts)  # markup of the document is text
    assert not {"\x1b", "\u202e", "\x07", "\x9b"} & {*text}
    assert f"{server.url}/chat/completions" in "".join(read.texts)


def test_many_questions_have_one_page_also_with_json(longctx, library, tmp_path):
    page, file = tmp_path / "page.html", tmp_path / "questions.txt"
    file.write_text("who wrote?\nwhat came home?\n")
    done = longctx("ask", "--questions", file, "--html", page, "--json")
    assert done.exit_code == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    heads = [text for tag, _, text in Elements(page.read_text("utf-8")).inside if tag == "h2"]
    assert heads == ["who wrote?", "what came home?"]


def test_what_cannot_be_a_page_is_refused_before_any_work(ask, server, tmp_path):
    other = tmp_path / "book.txt"
    other.write_text("a book")
    for path in (other, tmp_path, "-"):
        done = ask(QUESTION, "--html", path)
        assert done.exit_code == 2
        assert "cannot write the page" in done.stderr
    assert other.read_text() == "a book"
    assert not server.asked
