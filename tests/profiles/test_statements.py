"""Made-up reports, TAT-QA and SQuAD files as documents: answers stand once where they should."""

import json
import random

import pytest

from longctx.profiles.recipe.data.asked import read
from longctx.profiles.recipe.data.made.every import documents
from longctx.profiles.recipe.data.made.grids import Grid, Row, Style, laid_out
from longctx.profiles.recipe.data.sources import reports, spans

GRID = Grid(
    [["", "2020", "2019"]], [Row("Net sales", ["$1,234", "$(56)"]), Row("Margin", ["5.0%", "—"])]
)


@pytest.fixture(scope="module")
def made():
    return list(documents("statement", 1, 150))


def test_answers_stand_in_their_evidence_and_not_in_their_question(made):
    for document in made:
        for question in document.questions:
            said = [document.text[start:end] for start, end in question.evidence]
            assert (question.answer is None) == (not said)
            if question.answer:
                assert any(question.answer in text for text in said)
                assert question.answer.lower() not in question.text.lower()


def test_one_question_has_one_answer_in_a_document(made):
    for document in made:
        texts = [question.text.lower() for question in document.questions]
        assert len(texts) == len({*texts})


def test_some_questions_have_no_answer_and_most_do(made):
    questions = [question for document in made for question in document.questions]
    assert 0.04 < sum(question.answer is None for question in questions) / len(questions) < 0.12


def test_the_same_seed_gives_the_same_documents(made):
    assert list(documents("statement", 1, 20)) == made[:20]


@pytest.mark.parametrize(
    ("style", "said", "row"),
    [
        (Style("spaced", dollar=" "), ["1,234", "(56)"], "Net sales $ 1,234 $ (56)"),
        (Style("piped"), ["$1,234", "$(56)"], "Net sales | $1,234 | $(56)"),
        (Style("lined", dollar="\n"), ["1,234", "(56)"], "Net sales\n$\n1,234\n$\n(56)"),
        (Style("under"), ["$1,234", "$(56)"], "Net sales\n$1,234 $(56)"),
        (Style("spaced", close=True), ["$1,234", "$(56 )"], "Net sales $1,234 $(56 )"),
    ],
)
def test_cells_stand_where_a_layout_says(style, said, row):
    laid = laid_out(GRID, style, random.Random(3))
    assert laid.text[slice(*laid.rows[0])] == row
    assert [laid.text[slice(*cell)] for cell in laid.cells[0] if cell] == said


def test_every_style_keeps_the_cells():
    rng = random.Random(0)
    for _ in range(200):
        laid = laid_out(GRID, Style.drawn(rng), rng)
        for cells, digits in zip(laid.cells, ("1234", "50"), strict=True):
            assert cells[0]
            assert "".join(c for c in laid.text[slice(*cells[0])] if c.isdigit()) == digits


def test_a_table_and_its_paragraphs_become_documents():
    record = {
        "table": {"table": [["", "2020", "2019"], ["Net sales", "$1,234", "$1,100"]]},
        "paragraphs": [{"order": 1, "text": "Ada Ltd. was sold in May. It had debts."}],
        "questions": [
            asked("What were net sales in 2020?", ["$1,234"], "table"),
            asked("When was Ada Ltd. sold?", ["May"], "text", ["1"]),
            asked("By how much did net sales rise?", 134, "table", kind="arithmetic"),
        ],
    }
    for document in reports.documents([record], 5, 0):
        sales, sold = document.questions
        assert sales.answer in ("$1,234", "1,234", "$ 1,234")
        assert "Net sales" in document.text[slice(*sales.evidence[-1])]
        assert document.text[slice(*sold.evidence[0])].startswith("Ada Ltd. was sold in May.")


def asked(text, answer, where, related=(), kind="span"):
    """A question of TAT-QA."""
    return dict(
        question=text, answer=answer, answer_type=kind, answer_from=where, rel_paragraphs=related
    )


def test_paragraphs_with_answers_become_documents(tmp_path, monkeypatch):
    text = "We keep data. We keep it for a year. Then it goes."
    one = dict(
        question="How long?", answers=[dict(text="a year", answer_start=text.index("a year"))]
    )
    none = dict(question="Why?", answers=[dict(text="fun", answer_start=1)])
    paragraphs = [dict(context=text, qas=[one, none])] + [dict(context="x" * 4000, qas=[])] * 2
    path, out = tmp_path / "a.json", tmp_path / "out.jsonl"
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    monkeypatch.setattr("sys.argv", ["spans", str(path), "--kind", "policy", "--out", str(out)])
    spans.main()
    (document,) = read(out)
    (question,) = document.questions
    assert (document.kind, question.answer) == ("policy", "a year")
    assert document.text[slice(*question.evidence[0])] == "We keep it for a year."
    assert len(document.text) < spans.LONGEST
