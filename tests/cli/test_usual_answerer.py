"""Which model answers where the user names none: `small`, from what `tiny` has read."""

import json

import pytest

TOLD = "small demonstration model"


@pytest.fixture
def asked(longctx, tmp_path, monkeypatch):
    """Reads a small document with `tiny`; asks it, and returns the answer and what was told."""
    (tmp_path / "a.txt").write_text("The keeper of the lamp was Ilse Marquand.\n")

    def ask(*options, method="reform"):
        longctx("ingest", tmp_path / "a.txt", "--name", method, "--method", method)
        monkeypatch.delenv("LONGCTX_ANSWER_MODEL", raising=False)
        done = longctx("ask", "Who was the keeper?", "--doc", method, "--json", *options)
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout), done.stderr

    return ask


def test_small_answers_what_tiny_has_read(asked):
    answer, told = asked()
    assert (answer["state"]["model"], answer["state"]["answer_model"]) == ("tiny", "small")
    assert "Ilse Marquand" in answer["answer"]
    assert TOLD not in told


@pytest.mark.parametrize(
    "options",
    [("--answer-model", "own"), ("--gather-by", "method"), ("--model", "tiny")],
    ids=["own", "published", "named"],
)
def test_the_model_that_read_it_answers_where_the_user_says_so(asked, options):
    answer, told = asked(*options)
    assert answer["state"]["answer_model"] == "tiny"
    better = "--answer-model small gets a better one"
    assert (better in told) == ("--gather-by" in options)  # who names a model knows it


def test_what_was_kept_is_asked_with_the_model_that_kept_it(asked):
    answer, _ = asked(method="reattention")
    assert answer["state"]["answer_model"] == "tiny"


@pytest.mark.parametrize("own", [False, True])
def test_eval_qa_is_answered_as_ask_is(longctx, tmp_path, monkeypatch, own):
    monkeypatch.delenv("LONGCTX_ANSWER_MODEL", raising=False)
    (tmp_path / "a.txt").write_text("The keeper of the lamp was Ilse Marquand.\n")
    (tmp_path / "q.jsonl").write_text(
        json.dumps({"question": "Who was the keeper?", "answers": ["Ilse Marquand"]})
    )
    longctx("ingest", tmp_path / "a.txt", "--name", "a")
    asked = ("eval", "qa", "a", tmp_path / "q.jsonl", "--gather-by", "bm25")
    done = longctx(*asked, *(["--answer-model", "own"] if own else []))
    assert done.exit_code == 0, done.stderr
    assert ("answered by small" in done.stdout) == (not own)
    assert longctx(*asked, "--no-answers", "--json").exit_code == 0
