"""Questions from files, in every form and misshape."""

import pytest

from longctx.cli.questions import from_file
from longctx.core.common.errors import UnreadableInput, UsageError


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.txt", "\ufeffwho?\n\n  when? \r\n"),
        ("q.txt", "\ufeff# of the book\nwho?\n  #why?\nwhen?\n"),
        ("q.jsonl", '{"question": "who?", "answer": 1}\n\n{"question": "when?"}\n'),
        ("q.yaml", "document: x\nquestions:\n- question: who?\n  line: 3\n- {question: 'when?'}\n"),
        ("q.yml", "questions: [{question: 'who?'}, {question: 'when?'}]"),
    ],
)
def test_every_form(tmp_path, name, text):
    (tmp_path / name).write_text(text, "utf-8")
    assert from_file(tmp_path / name) == ["who?", "when?"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("q.jsonl", "who?\n", "who?"),
        ("q.jsonl", '{"query": "who?"}\n', "'query'"),
        ("q.jsonl", '{"question": 3}\n', "3"),
        ("q.yaml", "questions: who?", "no list 'questions'"),
        ("q.yaml", "- who?", "no list 'questions'"),
        ("q.yaml", "questions: [who]", "'who'"),
        ("q.yaml", "a: [", "cannot read"),
    ],
)
def test_what_is_no_question_is_named(tmp_path, name, text, said):
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(UsageError, match=r"q\.") as caught:
        from_file(tmp_path / name)
    assert said in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        from_file(tmp_path / "none.txt")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9?\n")
    with pytest.raises(UnreadableInput, match="UTF-8"):
        from_file(tmp_path / "latin.txt")


@pytest.mark.parametrize(
    ("name", "text"),
    [("q.txt", ""), ("q.txt", "\n# who?\n"), ("q.jsonl", ""), ("q.yaml", "questions: []")],
)
def test_a_file_without_questions_is_refused_before_anything_is_opened(
    longctx, tmp_path, name, text
):
    (tmp_path / name).write_text(text)
    result = longctx("ask", "--questions", tmp_path / name)  # there is no library either
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"no questions in '{tmp_path / name}'" in result.stderr.replace("\n", "")
