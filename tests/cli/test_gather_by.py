"""`--gather-by` of `ask` and `find`: what it changes, what it says, and what is refused."""

import json

import pytest

pytestmark = pytest.mark.usefixtures("library")
QUESTION = "who wrote of the boat?"


@pytest.fixture
def asking(longctx, model_options):
    """Runs `ask` or `find` with the random model."""
    return lambda command, *args, **more: longctx(command, *args, *model_options, **more)


def source(result) -> str:
    return json.loads(result.stdout)["state"]["gathered_by"]


@pytest.mark.parametrize("command", ["ask", "find"])
def test_by_words_and_meaning_is_the_usual_way_to_the_byte(asking, command):
    usual, named = (asking(command, QUESTION, *more) for more in ([], ["--gather-by", "hybrid"]))
    assert usual.exit_code == 0, usual.output
    assert named.stdout == usual.stdout
    assert source(asking(command, QUESTION, "--json")) == "hybrid"


@pytest.mark.parametrize("command", ["ask", "find"])
@pytest.mark.parametrize("name", ["bm25", "hybrid", "maxsim", "method"])
def test_json_says_what_was_gathered_by(asking, command, name):
    result = asking(command, "salt?", "--gather-by", name, "--gather", 200, "--json")
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert values["state"]["gathered_by"] == name
    if name in ("bm25", "hybrid"):
        assert any("salt" in passage["text"] for passage in values["passages"])


def test_it_is_a_setting(asking, monkeypatch, tmp_path):
    (tmp_path / "config.toml").write_text('[find]\ngather-by = "maxsim"\n')
    assert source(asking("find", QUESTION, "--json")) == "maxsim"
    assert source(asking("ask", QUESTION, "--json")) == "hybrid"
    monkeypatch.setenv("LONGCTX_GATHER_BY", "bm25")
    assert {source(asking(command, QUESTION, "--json")) for command in ("ask", "find")} == {"bm25"}
    assert source(asking("find", QUESTION, "--json", "--gather-by", "method")) == "method"


def test_it_is_for_all_of_many_questions(asking):
    result = asking("ask", "-", "--gather-by", "bm25", input="who came home?\nwhat news?\n")
    states = [json.loads(line)["state"] for line in result.stdout.splitlines()]
    assert [state["gathered_by"] for state in states] == ["bm25", "bm25"]


@pytest.mark.parametrize("command", ["ask", "find"])
def test_what_cannot_be_is_told_before_a_model_is_loaded(asking, monkeypatch, command):
    monkeypatch.setattr(
        "longctx.core.engine.setup.load_decoder", lambda *args: pytest.fail("loaded")
    )
    known = "Known: hybrid, bm25, dense, maxsim, method, reader."
    for name in ("nope", "", "Hybrid"):
        result = asking(command, QUESTION, "--gather-by", name)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"cannot gather by '{name}'. {known}" in result.stderr
