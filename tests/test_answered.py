"""docs/evaluation/answered.py: which questions belong to which document, and its tables."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent / "docs" / "evaluation" / "answered.py"


@pytest.fixture(scope="module")
def answered() -> ModuleType:
    spec = importlib.util.spec_from_file_location("answered", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_questions_belong_to_the_longest_name_that_theirs_begins_with(answered, tmp_path, capsys):
    (tmp_path / "questions").mkdir()
    (tmp_path / "package").mkdir()
    names = ("book.txt", "book-two.txt", "book.questions.jsonl", "book-hard.questions.jsonl")
    more = ("book-two.questions.jsonl", "package.questions.jsonl", "gone.yaml", "make.py")
    for name in (*names, *more, "questions/book.yaml"):
        (tmp_path / name).touch()
    found = answered.sheets([tmp_path])
    told = {path.name: sorted(file.name for file in files) for path, files in found.items()}
    assert told == {
        "book.txt": ["book-hard.questions.jsonl", "book.questions.jsonl", "book.yaml"],
        "book-two.txt": ["book-two.questions.jsonl"],
        "package": ["package.questions.jsonl"],
    }
    assert "gone.yaml" in capsys.readouterr().err


def test_a_document_is_read_once_and_counted_by_reading(answered, tmp_path, monkeypatch, capsys):
    text = "The gate opens at nine. " + "Gulls stood on the wall. " * 200
    (tmp_path / "book.txt").write_text(text, "utf-8")
    asked = {"question": "When does the gate open?", "answers": ["at nine"]}
    (tmp_path / "book.questions.jsonl").write_text(json.dumps(asked) + "\n", "utf-8")
    out = tmp_path / "out.json"
    options = ("--model", "tiny", "--readings", "1/300,2/512", "--dtype", "fp32", "--device", "cpu")
    monkeypatch.setattr("sys.argv", ["answered", str(tmp_path), *options, "--out", str(out)])
    answered.main()
    (row,) = json.loads(out.read_text("utf-8"))["book"]
    assert row["gathered"] == [True] * 4
    assert [*row["answers"]] == ["1/300", "2/512"]
    table = capsys.readouterr().out
    for reading, given in row["answers"].items():
        assert given["contained"] == ("at nine" in given["answer"])
        share = f"{given['contained']:.0f} of 1"
        assert any(f"| {reading} | {share}" in line for line in table.splitlines())
    assert "| all of them | 1 of 1" in table
