"""Files of questions: JSON lines and YAML, and which line or question is wrong."""

import json

import pytest

from longctx.core.common.errors import UnreadableInput, UsageError
from longctx.core.measure.eval.qa_questions import read_items

GOOD = {"question": "who?", "answers": ["x", "y"], "where": {"path": "one.txt", "byte_offset": 7}}
SHEET = """\
document: one.txt
# the first
questions:
  - question: "who wrote?"
    answer: "the keeper"
    line: 3
    accept: ["keeper", "he"]
  - {question: "when?", answers: [dawn], where: {path: two.txt}}
"""


@pytest.fixture
def sheet(tmp_path):
    """Writes a file of YAML."""

    def write(text: str, name: str = "a.yaml"):
        (tmp_path / name).write_text(text, "utf-8")
        return tmp_path / name

    return write


def test_lines_that_are_empty_or_comments_count_in_line_numbers(questions):
    file = questions("", GOOD, "  ", "# " + json.dumps(GOOD), ' #{"question"', GOOD)
    assert [(item.unit, item.number) for item in read_items(file)] == [("line", 2), ("line", 6)]


def test_a_place_may_be_a_byte_a_line_or_nothing(questions):
    bare = {"question": "who?", "answer": "x", "accept": ["y"]}
    places = [GOOD["where"], {"doc": "a/b.txt", "line": 4}, {"byte_offset": 0, "line": 2}]
    lines = [bare, {**bare, "line": 9}, *({**bare, "where": where} for where in places)]
    items = read_items(questions(*lines))
    assert {item.answers for item in items} == {("x", "y")}
    assert [(item.source, item.offset, item.line) for item in items] == [
        ("", None, None),
        ("", None, 9),
        ("one.txt", 7, None),
        ("a/b.txt", None, 4),
        ("", 0, 2),
    ]


@pytest.mark.parametrize("name", ["a.yaml", "a.YML"])
def test_a_sheet_names_what_it_is_about_and_a_question_may_name_another(sheet, name):
    first, second = read_items(sheet(SHEET, name))
    assert (first.unit, first.number, first.source, first.line) == ("question", 1, "one.txt", 3)
    assert first.answers == ("the keeper", "keeper", "he")
    assert (second.number, second.source, second.line) == (2, "two.txt", None)
    assert second.answers == ("dawn",)


WRONG = [
    ([1], "no 'question'"),
    ({**GOOD, "question": " "}, "no 'question'"),
    ({**GOOD, "answers": []}, "no list 'answers'"),
    ({**GOOD, "answers": ["x", ""]}, "no list 'answers'"),
    ({**GOOD, "answer": "x"}, "'answers' and also 'answer'"),
    ({**GOOD, "accept": ["x"]}, "'answers' and also 'answer'"),
    ({"question": "who?"}, "no 'answer': it is missing, or stands in a comment"),
    ({"question": "who?", "accept": ["x"]}, "no 'answer'"),
    ({"question": "who?", "answer": 58204}, "'answer' is no text: .* in quotes"),
    ({"question": "who?", "answer": "x", "accept": "y"}, "'accept' is no list"),
    ({"question": "who?", "answer": "x", "accept": []}, "'accept' is no list"),
    ({**GOOD, "where": "one.txt"}, "'where' is no object"),
    ({**GOOD, "where": {"byte_offset": -1}}, "'byte_offset' is no number"),
    ({**GOOD, "where": {"byte_offset": True}}, "'byte_offset' is no number"),
    ({**GOOD, "where": {"line": 0}}, "'line' is no number of 1"),
    ({"question": "who?", "answer": "x", "line": "3"}, "'line' is no number of 1"),
    ({**GOOD, "where": {"path": 3, "byte_offset": 1}}, "names no source"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG)
def test_a_wrong_question_is_named_in_both_forms(questions, sheet, wrong, said):
    with pytest.raises(UsageError, match=rf"line 3 of .*a\.questions\.jsonl.*{said}"):
        read_items(questions(GOOD, "# a comment", wrong))
    with pytest.raises(UsageError, match=rf"question 2 of .*a\.yaml.*{said}"):
        read_items(sheet(json.dumps({"questions": [GOOD, wrong]})))  # JSON is YAML


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("{broken", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        (json.dumps({**GOOD, "question": "a\ud800"}), "no text: .*surrogates not allowed"),
        (json.dumps({**GOOD, "answers": ["x", "\udc00"]}), "no text: .*surrogates not allowed"),
    ],
)
def test_a_line_that_is_no_text_is_named(questions, wrong, said):
    with pytest.raises(UsageError, match=f"line 2 of .*{said}"):
        read_items(questions(GOOD, wrong))


def test_an_answer_in_a_comment_is_missed(sheet):
    text = SHEET.replace("    answer: ", "    # answer: ")
    with pytest.raises(UsageError, match=r"question 1 of .*no 'answer'.*in a comment"):
        read_items(sheet(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a, b]", "no list 'questions'"),
        ("questions: who", "no list 'questions'"),
        ("questions: []", "no questions"),
        ("document: 3\nquestions: []", "'document' is no name"),
        ("a: *b", "cannot read"),
        ("a: [", "cannot read"),
    ],
)
def test_sheets_without_questions(sheet, text, said):
    with pytest.raises(UsageError, match=said):
        read_items(sheet(text))


def test_files_that_hold_no_questions(questions, tmp_path):
    with pytest.raises(UsageError, match="no questions"):
        read_items(questions("", " ", "# all of it"))
    for name in ("absent.jsonl", "absent.yaml"):
        with pytest.raises(UsageError, match="cannot read"):
            read_items(tmp_path / name)
    (tmp_path / "latin").write_bytes("Größe".encode("latin-1"))
    with pytest.raises(UnreadableInput):
        read_items(tmp_path / "latin")
