"""Files of questions: every form that goes around, and broken ones."""

import json

import pytest

from longctx.core.common.errors import UnreadableInput, UsageError
from longctx.core.measure.eval.ruler.squad import SquadQuestion, read_squad

DATA = {
    "version": "v2.0",
    "data": [
        {
            "title": "Boats",
            "paragraphs": [
                {
                    "context": " Boats float. ",
                    "qas": [
                        {"question": "What do boats do?", "answers": [{"text": "float"}] * 2},
                        {"question": "Why?", "answers": [], "is_impossible": True},
                    ],
                },
                {"context": "Some sink.", "qas": []},
            ],
        },
        {"title": "Sea", "paragraphs": [{"context": "It is salt.", "qas": []}]},
    ],
}


def test_squads_json(tmp_path):
    file = tmp_path / "squad.json"
    file.write_text(json.dumps(DATA))
    squad = read_squad(file)
    expected = SquadQuestion("What do boats do?", ("float",), ("Boats float.",), ("Some sink.",))
    assert squad.questions == (expected,)
    assert squad.paragraphs == ("Boats float.", "Some sink.", "It is salt.")


@pytest.mark.parametrize("answers", [["a", "b"], {"text": ["a", "b", "a"]}, [{"text": "a"}, "b"]])
def test_json_lines(tmp_path, answers):
    file = tmp_path / "squad.jsonl"
    lines = [
        {"context": "One.", "question": "Q?", "answers": answers},
        {"context": ["One.", "Two."], "question": "R?", "answers": ["c"]},
        {"context": "Three.", "question": "S?", "answers": []},
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    squad = read_squad(file)
    first, second = (
        SquadQuestion("Q?", ("a", "b"), ("One.",)),
        SquadQuestion("R?", ("c",), ("One.", "Two.")),
    )
    assert squad.questions == (first, second)
    assert squad.paragraphs == ("One.", "Two.", "Three.")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no questions in"),
        ('{"data": []}', "no questions in"),
        ('{"data": [{"title": "Boats"}]}', "'paragraphs' is wrong"),
        ('{"data": 3}', "cannot read"),
        ("not json", "cannot read line 1"),
        ('{"context": "a", "question": "b"}', "'answers' in"),
        ('{"context": "a", "question": 7, "answers": []}', "'7' is no text"),
        ('{"context": "a", "question": "b", "answers": "c"}', "'answers' is no list"),
        ('\n["a"]', "cannot read line 2"),
        ("[" * 200_000, "nested too deeply"),
        (
            '\n{"context": "\\ud800", "question": "b", "answers": []}',
            r"cannot read line 2 .*'\\ud800' is no text: .*surrogates not allowed",
        ),
        (
            '{"data": [{"paragraphs": [{"context": "a\\ud800", "qas": []}]}]}',
            r"'a\\ud800' is no text: .*surrogates not allowed",
        ),
    ],
)
def test_broken_files_are_told(tmp_path, text, said):
    file = tmp_path / "squad.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=said) as told:
        read_squad(file)
    assert "squad.json" in str(told.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        read_squad(tmp_path / "absent.json")
    (tmp_path / "bytes").write_bytes(b"\xff\x00")
    with pytest.raises(UnreadableInput, match="not UTF-8"):
        read_squad(tmp_path / "bytes")
