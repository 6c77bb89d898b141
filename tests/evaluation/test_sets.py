"""The readers of docs/evaluation/public.py: what a set holds, and sets that are damaged."""

import json
import lzma

import pytest
from public_sets import financebench, lara, locomo, members
from public_sets.items import DEVELOPMENT, HELD, BadSet
from public_sets.measures import of_locomo


def test_lara_is_read_alike_from_a_folder_and_an_archive(lara_folder, packed):
    inside = members.read(lara_folder)
    found = lara.read(inside)
    assert members.read(packed(lara_folder)).digest == inside.digest == found.digest
    assert [*found.documents] == ["financial Alder", "financial Birch"]
    halves = {question.document: question.half for question in found.questions}
    assert halves == {"financial Alder": DEVELOPMENT, "financial Birch": HELD}
    last = found.questions[-1]
    assert (last.part, last.answerable) == ("financial hallu", False)
    stored = lara.stored(inside, found)
    assert stored["model full"]["financial location 2"] == {"answer": "$77,410."}


def test_a_missing_and_a_damaged_member_are_named(lara_folder, tmp_path):
    wanted = tmp_path / "list.sha256"
    wanted.write_text(members.listed(members.read(lara_folder)), "utf-8")
    members.compare(members.read(lara_folder), wanted)
    statement = lara_folder / "documents" / "financial" / "Birch.txt"
    statement.write_text("other", "utf-8")
    with pytest.raises(BadSet, match=r"damaged: other bytes in documents/financial/Birch\.txt$"):
        members.compare(members.read(lara_folder), wanted)
    statement.unlink()
    (lara_folder / "questions" / "book_comp.jsonl").unlink()
    with pytest.raises(BadSet, match=r"incomplete: .*documents/financial/Birch\.txt \(and 1 more"):
        members.compare(members.read(lara_folder), wanted)


def test_the_lists_are_those_of_the_sets_that_are_read():
    for name, count in {"lara": 57 + 12 + 6 * 24, "financebench": 51, "locomo": 1}.items():
        rows = (members.LISTS / f"{name}.sha256").read_text("utf-8").splitlines()
        assert len(rows) == count
        assert all(len(row.split("  ", 1)[0]) == 64 for row in rows)


@pytest.mark.parametrize("cut", [40, 400])
def test_an_archive_that_is_cut_off_is_refused(lara_folder, packed, cut):
    path = packed(lara_folder)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(BadSet, match=r"lara\.tar\.xz is cut off or damaged"):
        members.read(path)


def test_a_set_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadSet, match="is not there"):
        members.read(tmp_path / "lara.tar.xz")


@pytest.mark.parametrize(
    ("line", "said"),
    [("{", "line 1"), ("[]", "no JSON object"), ('{"file": "Alder.txt"}', "no file, question")],
)
def test_a_damaged_line_of_questions_is_named(lara_folder, line, said):
    (lara_folder / "questions" / "financial_location.jsonl").write_text(line + "\n", "utf-8")
    with pytest.raises(BadSet, match=said) as caught:
        lara.read(members.read(lara_folder))
    assert "questions/financial_location.jsonl" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows[:-1], "2 answers to 3 questions"),
        (lambda rows: rows[::-1], "another question than financial location 1"),
    ],
)
def test_stored_answers_to_other_questions_are_refused(lara_folder, change, said):
    file = lara_folder / "answers" / "model" / "full_financial_location.jsonl"
    file.write_text("\n".join(change(file.read_text("utf-8").splitlines())) + "\n", "utf-8")
    inside = members.read(lara_folder)
    with pytest.raises(BadSet, match=said):
        lara.stored(inside, lara.read(inside))


def test_locomo_has_a_section_for_each_session_and_names_keys_that_are_wrong(locomo_file):
    found = locomo.read(members.read(locomo_file))
    text = found.documents["c1"]["c1.md"]
    assert text.startswith(
        b"## Session 1, 1 pm on 8 May, 2023\n\nAnn: I saw a heron at the pond.\n"
    )
    first, second, third = found.questions[:3]
    assert [text[e.start : e.end] for e in first.evidence] == [b"Ann: I saw a heron at the pond."]
    assert [e.key for e in second.evidence] == ["D1:2", "D2:1"]
    assert (third.evidence, third.answerable, third.part) == ((), False, "adversarial")
    assert found.remarks[:2] == [
        "c1 question 2: 'D1:2;D2:01' is read as ['D1:2', 'D2:1']",
        "c1 question 3: the key 'D9:9' names no turn; the question is left out",
    ]
    assert {q.half for q in found.questions if q.document == "c1"} == {DEVELOPMENT}


def test_locomo_may_have_a_file_for_each_turn(locomo_file):
    found = locomo.read_files(members.read(locomo_file))
    (evidence,) = found.questions[0].evidence
    data = found.documents["c1"][evidence.source]
    assert data == b"Ann: I saw a heron at the pond.\n"
    passage = {"source": evidence.source, "start": 0, "end": len(data)}
    scores = [*of_locomo(found, found.questions[0], {"passages": [passage]})]
    assert [right for _, right in scores] == [True, True]
    assert len(found.documents["c1"]) == 4


@pytest.mark.parametrize("data", [b"[", b'[{"sample_id": "c1"}]'])
def test_a_damaged_locomo_is_refused(tmp_path, data):
    path = tmp_path / "locomo10.json.xz"
    path.write_bytes(lzma.compress(data))
    with pytest.raises(BadSet, match=r"locomo10\.json"):
        locomo.read(members.read(path))


def test_pages_of_financebench_are_counted_from_one(tmp_path):
    row = {
        **{"financebench_id": "f1", "doc_name": "A_2022", "question_type": "metrics-generated"},
        **{"question": "What?", "answer": "36%. The answer here assumes FY2023."},
        "evidence": [{"doc_name": "A_2022", "evidence_page_num": 0}],
    }
    (tmp_path / "pdfs").mkdir()
    (tmp_path / "questions.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    with pytest.raises(BadSet, match=r"it has no pdfs/A_2022\.pdf"):
        financebench.read(members.read(tmp_path))
    (tmp_path / "pdfs" / "A_2022.pdf").write_bytes(b"%PDF")
    (question,) = financebench.read(members.read(tmp_path)).questions
    assert question.right == "36%."
    assert [(e.source, e.key) for e in question.evidence] == [("A_2022.pdf", "p. 1")]
