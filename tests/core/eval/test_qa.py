"""Questions on a document: places by bytes, recall at budgets, answers, and going on."""

import json

import pytest
import torch

from longctx.core.errors import UnreadableInput, UsageError
from longctx.core.eval import qa
from longctx.core.eval.qa import Wanted, is_gathered, run
from longctx.core.eval.qa_questions import place, read_items
from longctx.core.ingest import ingest
from longctx.core.memory import Scores
from longctx.core.session import Session

FIRST = "Größe und Maß: the keeper wrote «Ёлка» in his book.\nA boat came home at dawn.\n" * 3
SECOND = "news of rain and salt\n" * 12 + "the boat is called Zoë\n"


def line(answer: str, text: str, source: str, **more: object) -> dict:
    offset = len(text[: text.index(answer)].encode())
    where = {"path": source, "byte_offset": offset, "line": 1}
    return {"question": f"the keeper {answer}", "answers": [answer, "other"], "where": where} | more


LINES = [
    line("Ёлка", FIRST, "letters/one.txt"),
    line("dawn", FIRST, "one.txt"),
    line("Zoë", SECOND, "letters/two.txt"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory, model_folder):
    from longctx.core.setup import Setup

    folder = tmp_path_factory.mktemp("qa")
    (folder / "letters").mkdir()
    files = [folder / "letters" / "one.txt", folder / "letters" / "two.txt"]
    for file, text in zip(files, (FIRST, SECOND), strict=True):
        file.write_bytes(text.encode())
    profile = str(model_folder / "profile.yaml")
    setup = Setup(str(model_folder), profile, device="cpu", dtype="fp32", threads=1)
    ingest(folder / "library", [*map(str, files)], setup, name="letters")
    return folder / "library"


@pytest.fixture
def session(library, setup_random):
    with Session(library, "letters", setup_random) as opened:
        yield opened


@pytest.fixture
def questions(tmp_path):
    """Writes lines, objects or text, to a file."""

    def write(*lines: dict | str):
        file = tmp_path / "a.questions.jsonl"
        texts = [x if isinstance(x, str) else json.dumps(x, ensure_ascii=False) for x in lines]
        file.write_text("\n".join(texts), "utf-8")
        return file

    return write


def test_places_are_bytes_also_after_other_scripts_and_in_other_sources(session, questions):
    file = questions(*LINES)
    for one, text in zip(
        place(file, read_items(file), session.document), (FIRST, FIRST, SECOND), strict=True
    ):
        span = one.query.spans[0]
        assert text.encode()[span.start : span.end].decode() == one.item.answers[0]
        source, start, end = session.document.span(one.token, one.token + 1)
        assert session.document.manifest.sources[source].name == span.source
        assert start <= span.start < end


def test_empty_lines_count_in_line_numbers(questions):
    assert [item.line for item in read_items(questions("", LINES[0], "  ", LINES[1]))] == [2, 4]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("{broken", "it is no JSON"),
        ("[1]", "no 'question'"),
        ({**LINES[0], "question": " "}, "no 'question'"),
        ({**LINES[0], "answers": []}, "no list 'answers'"),
        (json.dumps({**LINES[0], "question": "a\ud800"}), "no text: .*surrogates not allowed"),
        (json.dumps({**LINES[0], "answers": ["x", "\udc00"]}), "no text: .*surrogates not allowed"),
        ({**LINES[0], "answers": ["x", ""]}, "no list 'answers'"),
        ({**LINES[0], "where": {"path": "one.txt"}}, "no 'byte_offset'"),
        ({**LINES[0], "where": {"path": "one.txt", "byte_offset": -1}}, "no 'byte_offset'"),
        ({**LINES[0], "where": {"path": "one.txt", "byte_offset": True}}, "no 'byte_offset'"),
        ({**LINES[0], "where": {"path": 3, "byte_offset": 1}}, "names no source"),
    ],
)
def test_a_wrong_line_is_named(questions, wrong, said):
    with pytest.raises(UsageError, match=f"line 3 of .*{said}"):
        read_items(questions(LINES[0], "", wrong))


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"path": "one.txt", "byte_offset": 10**6}, r"byte 1,000,000 is beyond .*one.txt"),
        ({"path": "one.txt", "byte_offset": 1}, "stands 'r.*not its first answer 'Ёлка'"),
        ({"path": "three.txt", "byte_offset": 0}, "no source named 'three.txt'.*two.txt"),
        ({"path": "e.txt", "byte_offset": 0}, "no source named 'e.txt'"),  # not a whole part
        ({"byte_offset": 0}, "several sources to choose without a 'path'"),
    ],
)
def test_a_wrong_place_is_named(session, questions, where, said):
    file = questions(LINES[1], {**LINES[0], "where": where})
    with pytest.raises(UsageError, match=f"line 2 of .*{said}"):
        place(file, read_items(file), session.document)


def test_files_that_hold_no_questions(questions, tmp_path):
    with pytest.raises(UsageError, match="no questions"):
        read_items(questions("", " "))
    with pytest.raises(UsageError, match="cannot read"):
        read_items(tmp_path / "absent.jsonl")
    (tmp_path / "latin").write_bytes("Größe".encode("latin-1"))
    with pytest.raises(UnreadableInput):
        read_items(tmp_path / "latin")


def test_tokens_that_were_not_attended_to_are_gathered_at_no_budget():
    raw, pooled = torch.tensor([0.0, 2.0, 0.0, 0.0]), torch.tensor([-1.0, 2.0, 2.0, -1.0])
    found = [[is_gathered(Scores(raw, pooled), t, b) for t in range(4)] for b in (1, 2, 3)]
    assert found == [
        [False, True, False, False],
        [False, True, True, False],
        [False, True, True, False],
    ]
    hybrid = Scores(torch.tensor([-3.0, -2.0, -1.5]), torch.tensor([-2.0, -1.0, -1.0]))
    assert [is_gathered(hybrid, t, 2) for t in range(3)] == [False, True, True]


@pytest.fixture
def found(session, questions):
    """Runs on the three questions."""

    def call(wanted: Wanted, folder=None):
        file = questions(*LINES)
        return run(session, place(file, read_items(file), session.document), wanted, folder)

    return call


def test_recall_is_what_find_gives_and_answers_are_what_ask_gives(session, found):
    report = found(Wanted(budgets=(20, 60, 10**6)))
    for trial in report.trials:
        for budget, hit in trial["recall"]["method"].items():
            runs = session.find(trial["question"], int(budget)).passages
            at = trial["byte_offset"]
            holds = [p for p in runs if p.source == trial["source"] and p.start <= at < p.end]
            assert hit == bool(holds)
        answer = session.ask(trial["question"]).answer
        assert trial["answers"]["method"]["answer"] == answer
    rates = {(rate.what, rate.budget): rate for rate in report.rates}
    assert rates["recall", 10**6].rate == 1
    hits = [trial["recall"]["method"]["60"] for trial in report.trials]
    assert rates["recall", 60].rate == round(sum(hits) / 3, 4)
    assert rates["recall", 60].low <= rates["recall", 60].rate <= rates["recall", 60].high
    assert {what for what, _ in rates} == {"recall", "exact_match", "f1", "contained"}
    assert json.loads(json.dumps(report.as_dict()))["trials"] == report.trials


def test_answers_are_judged_by_what_was_said(found, monkeypatch):
    real = qa.ask

    def say(session, query, how):
        from dataclasses import replace

        return replace(real(session, query, how), answer="The Ёлка, dawn")

    monkeypatch.setattr(qa, "ask", say)
    trials = found(Wanted(budgets=(20,))).trials
    judged = [trial["answers"]["method"] for trial in trials]
    assert [one["contained"] for one in judged] == [1, 1, 0]
    assert [one["exact_match"] for one in judged] == [0, 0, 0]
    assert [round(one["f1"], 2) for one in judged] == [0.67, 0.67, 0]


def test_a_second_run_asks_nothing_again(session, found, monkeypatch, tmp_path):
    asked, scored = [], []
    ask, score = Session.ask, Session.score
    monkeypatch.setattr(Session, "ask", lambda s, *a, **k: asked.append(a) or ask(s, *a, **k))
    monkeypatch.setattr(Session, "score", lambda s, *a, **k: scored.append(a) or score(s, *a, **k))
    wanted = Wanted(budgets=(20, 40, 60))
    first = found(wanted, tmp_path / "out")
    assert (len(asked), len(scored)) == (3, 3)  # once for all budgets
    results = tmp_path / "out" / "results.jsonl"
    kept = results.read_text("utf-8").splitlines(keepends=True)
    results.write_text("".join(kept[:4]), "utf-8")  # two answers are lost
    again = found(wanted, tmp_path / "out")
    assert (len(asked), len(scored)) == (5, 3)

    def untimed(report):
        for trial in report.trials:
            trial["answers"]["method"].pop("timings")
        return report.trials, report.rates

    assert untimed(again) == untimed(first)
    with pytest.raises(UsageError, match="budgets was"):
        found(Wanted(budgets=(20,)), tmp_path / "out")
    assert len(found(Wanted(budgets=(20,), answers=False)).rates) == 1
