"""Made-up documents: their questions have one answer, which stands in their evidence."""

import random

import pytest

from longctx.profiles.recipe.data.asked import read
from longctx.profiles.recipe.data.made import __main__ as command
from longctx.profiles.recipe.data.made.asking import Asking
from longctx.profiles.recipe.data.made.every import SHARES, documents
from longctx.profiles.recipe.data.made.pages import Line, Page, Record
from longctx.profiles.recipe.data.made.pools import listed
from longctx.profiles.recipe.data.made.values import MadeValues
from longctx.profiles.recipe.data.made.wordings import wording
from longctx.profiles.recipe.data.needles.of_frames import FrameNeedles

KINDS = [*SHARES]


@pytest.mark.parametrize("kind", KINDS)
def test_answers_stand_in_their_evidence_which_is_whole_lines_or_sentences(kind):
    answered = verbatim = 0
    for document in documents(kind, 1, 60):
        for question in document.questions:
            said = [document.text[start:end] for start, end in question.evidence]
            assert (question.answer is None) == (not said)
            for (start, end), text in zip(question.evidence, said, strict=True):
                assert text.strip("\n") == text != ""
                assert start == 0 or document.text[start - 1] in " \n"
                assert end == len(document.text) or document.text[end] in " \n"
            answered += question.answer is not None
            verbatim += any((question.answer or "\0") in text for text in said)
    assert answered > 300
    assert verbatim > 0.95 * answered


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_questions_and_the_share_without_an_answer(kind):
    made, most = list(documents(kind, 2, 120)), 24 if kind == "facts" else 14
    questions = [question for document in made for question in document.questions]
    assert all(900 < len(document.text) < 16_000 for document in made)
    assert all(2 <= len(document.questions) <= most for document in made)
    assert 6 < len(questions) / len(made) < 12
    assert 0.03 < sum(question.answer is None for question in questions) / len(questions) < 0.12
    assert all("{" not in question.text for question in questions)


def test_the_same_seed_gives_the_same_documents():
    assert list(documents("mix", 3, 20)) == list(documents("mix", 3, 20))
    assert list(documents("mix", 3, 20)) != list(documents("mix", 4, 20))


def test_facts_hide_in_the_prose_that_is_given():
    filler = ["The river ran low. Nothing else happened.", "They waited until noon."]
    document = next(documents("facts", 5, 1, filler))
    assert "They waited until noon." in document.text


def test_facts_stand_between_the_lines_of_code_and_logs(tmp_path):
    code = "\n".join(f"    step_{number} = {number}" for number in range(60))
    (tmp_path / "code.py").write_text(f"def run():\n{code}\n")
    (tmp_path / "prose.txt").write_text("It was\na wet day.\n\nNobody came.\n")
    parts = command.paragraphs(tmp_path / "code.py")
    assert [part.count("\n") for part in parts] == [39, 20]
    assert command.paragraphs(tmp_path / "prose.txt") == ["It was a wet day.", "Nobody came."]
    document = next(documents("facts", 5, 1, parts))
    assert "\n    step_3 = 3\n" in document.text
    for question in document.questions:
        for start, _ in question.evidence:
            assert start == 0 or document.text[start - 1] == "\n"


def test_some_documents_have_many_facts_of_one_wording():
    counts = [len(one.questions) for one in documents("facts", 5, 120)]
    assert sum(count > 14 for count in counts) > 6
    assert max(counts) <= 24


def test_keys_of_rivals_differ_in_a_sign():
    values = MadeValues(listed(), random.Random(4))
    frames = FrameNeedles(values)
    for _ in range(40):
        needles = frames.keyed(4)
        asked = {needle.question for needle in needles}
        assert len(needles) == len(asked) > 1
        assert {len(one.texts) for one in needles} == {1}


def asking(*rows: dict[str, str]) -> Asking:
    """Questions to a page of rows about prices."""
    records = [Record("price", row, Line(" ".join(row.values()))) for row in rows]
    page = Page("table", [record.line for record in records], records, [])
    one = wording("What does {item} cost?", "{price}")
    return Asking(page, {"price": [one]}, page.laid_out()[1], random.Random(0))


def test_what_two_rows_answer_is_not_asked():
    twice = asking({"item": "a lamp", "price": "3.10"}, {"item": "a lamp", "price": "4.20"})
    assert not any(twice.one() for _ in range(30))
    once = asking({"item": "a lamp", "price": "3.10"}, {"item": "a lump", "price": "4.20"})
    found = {one.text: one for one in (once.one() for _ in range(30)) if one}
    assert found["What does a lump cost?"].answer == "4.20"
    assert found["What does a lump cost?"].evidence == ((12, 23),)


def test_the_command_writes_a_file_that_training_reads(tmp_path, monkeypatch):
    out = tmp_path / "made.jsonl.xz"
    monkeypatch.setattr("sys.argv", ["made", "--count", "12", "--seed", "6", "--out", str(out)])
    command.main()
    assert list(read(out)) == list(documents("mix", 6, 12))


def test_few_lines_say_all_that_is_asked():
    first, second, third = Line("job 7 of Ann"), Line("job 7 failed"), Line("job 7 of Ann ended")
    said = {"job": [first, second, third], "who": [first, third], "line2": [second]}
    record = Record("job", {"job": "7", "who": "Ann"}, first, said)
    assert record.lines(["job", "who"]) == [third]
    assert {*record.lines(["who", "line2"])} == {second, third}
    assert record.lines(["job", "line2"]) == [second]
