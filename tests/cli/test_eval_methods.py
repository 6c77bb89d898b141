"""`longctx eval qa` and `longctx eval compare`: what they print, where, and what they refuse."""

import csv
import json
import re
import shutil
from io import StringIO
from pathlib import Path

import pytest
from chat_server import Misbehaving, events, stream
from page_elements import Elements

from longctx.cli import measuring
from longctx.cli.eval import COMMANDS
from longctx.cli.eval import pace as pace_file
from longctx.cli.eval.pace import Pace
from longctx.cli.eval.qa import named_pairs
from longctx.core.ask.session import Session
from longctx.core.common.errors import LongctxError
from longctx.core.measure.eval import compare
from longctx.core.measure.eval.compare_rows import make_row
from longctx.core.report.html import legal
from longctx.core.retrieve import gather_by

BOOK = "the keeper wrote in his book"


@pytest.fixture
def questions(tmp_path):
    where = {"path": "book.txt", "byte_offset": BOOK.index("book")}
    lines = [
        {"question": "where did the keeper write", "answers": ["book"], "where": where},
        {"question": "who wrote", "answers": ["the keeper"], "where": {"byte_offset": 0}},
    ]
    file = tmp_path / "book.questions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return file


def test_every_subcommand_has_help_with_examples(longctx):
    for name, module in COMMANDS.items():
        shown = longctx("eval", name, "--help")
        assert shown.exit_code == 0
        assert f"longctx eval {name}" in shown.stdout.split("Examples:")[1]
        assert module.run.__doc__.splitlines()[0] in shown.stdout


def test_qa_as_a_page(longctx, library, questions, tmp_path):
    page = tmp_path / "qa.html"
    given = ("eval", "qa", "book", questions, "--gather", "20,1m", "--device", "cpu", "--json")
    result = longctx(*given, "--html", page)
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout)["documents"]
    read = Elements(page.read_text("utf-8"))
    shown = [text for tag, attrs, text in read.inside if str(attrs.get("class")).startswith("r")]
    assert shown == [f"{rate['rate']:.0%}" for rate in found["rates"]]
    assert {"where did the keeper write", "who wrote", "the keeper"} <= {*read.texts}
    for trial in found["trials"]:
        for by, rank in trial["rank"].items():
            assert (f"within {rank:,}" if rank else "no") in read.texts
            assert legal(trial["answers"][by]["answer"] or "(none)") in read.texts


def test_qa_with_answers_of_another_server(longctx, library, questions, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("LONGCTX_DECODE", "dense")  # settings are for models here
    page = tmp_path / "qa.html"
    with Misbehaving().running() as server:
        server.give = lambda handler, _: stream(handler, events("it was the keeper"))
        given = ("eval", "qa", "book", questions, "--gather", "20", "--gather-by", "bm25")
        result = longctx(*given, "--answer-with", server.url, "--json", "--html", page)
        assert result.exit_code == 0, result.stderr
        refused = longctx(*given, "--answer-with", server.url, "--no-answers")
        assert refused.exit_code == 2
        assert len(server.asked) == 2
    assert f"gathered for it are sent to {server.url}/chat/completions" in result.stderr
    (found,) = json.loads(result.stdout)["documents"]
    assert [trial["answers"]["bm25"]["contained"] for trial in found["trials"]] == [0, 1]
    assert found["settings"]["server"]["to"] == f"{server.url}/chat/completions"
    marked = [text for tag, _, text in Elements(page.read_text("utf-8")).inside if tag == "mark"]
    assert marked == ["it was the keeper"]


def test_names_with_commas_and_policies_with_options():
    given = ["dense, quest", "recycled:budget=8,stride=2,raas:budget=9", "dense"]
    found = ("dense", "quest", "recycled:budget=8,stride=2", "raas:budget=9")
    assert measuring.names(given) == found
    assert measuring.tokens(["1k,2K", "4_000"]) == (1000, 2048, 4000)


def test_qa_as_tables(longctx, library, questions, model_options):
    options = ("--gather", "20,1m", "--device", "cpu")
    usual = longctx("eval", "qa", "book", questions, *options).stdout.splitlines()
    assert [line.split()[0] for line in usual[3::3]] == [gather_by.USUAL, gather_by.USUAL]
    result = longctx("eval", "qa", "book", questions, *options, "--gather-by", "all")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].endswith("tokens, 2 questions, counted by place")
    assert lines[2].split() == ["gathered", "by", "20", "1,000,000"]
    names = [name for name in gather_by.names() if name != "dense"]  # there are no vectors
    rows = dict(zip(names, lines[3:], strict=False))
    for name, row in rows.items():
        assert row.startswith(f"{name} ")
        assert "2 of 2 (34% to 100%)" in row
    answered = lines[len(rows) + 4 :]
    assert answered[0].split() == ["answered", "from", "exact", "match", "f1", "contained"]
    assert [row.split()[0] for row in answered[1:]] == names


def test_qa_as_json_goes_on_in_its_folder(longctx, library, questions, tmp_path, monkeypatch):
    options = ("--no-answers", "--gather", "20", "--out", tmp_path / "out", "--json")
    first = longctx("eval", "qa", "book", questions, *options, "--device", "cpu")
    values = json.loads(first.stdout)
    assert (values["eval"], values["schema_version"]) == ("qa", 2)
    (found,) = values["documents"]
    assert (found["document"], found["files"]) == ("book", [str(questions)])
    assert [trial["number"] for trial in found["trials"]] == [1, 2]
    assert [(rate["gather_by"], rate["what"]) for rate in found["rates"]] == [("hybrid", "recall")]
    assert values["sum"] == {"questions": 2, "rates": found["rates"]}
    monkeypatch.setattr("longctx.core.ask.session.Session.gathered", None)  # it would be called
    again = longctx("eval", "qa", "book", questions, *options, "--device", "cpu")
    assert again.stdout == first.stdout


def test_qa_tells_what_begins_and_what_was_done_before(longctx, library, questions, tmp_path):
    options = ("--no-answers", "--gather", "20", "--out", tmp_path / "out", "--device", "cpu")
    options += ("--gather-by", "method")
    first = longctx("eval", "qa", "book", questions, *options)
    assert first.stderr.splitlines() == ["gathering by method: 0 of 2 questions"]
    results = tmp_path / "out" / "results.jsonl"
    results.write_text(results.read_text("utf-8").splitlines(keepends=True)[1], "utf-8")
    again = longctx("eval", "qa", "book", questions, *options, "--progress", "json")
    told = [json.loads(line) for line in again.stderr.splitlines()]
    counts = [(line["processed"], line["cache"], line["total"]) for line in told]
    assert counts == [(1, 1, 2), (2, 1, 2)]


def test_qa_tells_what_is_wrong_before_the_model_is_loaded(
    longctx, library, questions, monkeypatch
):
    monkeypatch.setattr("longctx.core.ask.session.Session.__init__", None)
    absent = longctx("eval", "qa", "novel", questions)
    assert (absent.exit_code, absent.stdout) == (10, "")
    text = questions.read_text("utf-8").replace('["book"]', '["boot"]')
    questions.write_text(text, "utf-8")
    wrong = longctx("eval", "qa", "book", questions)
    assert wrong.exit_code == 2
    assert "line 1 of" in wrong.stderr
    assert "not its first answer 'boot'" in wrong.stderr
    assert longctx("eval", "qa", "book", questions, "--gather", "9q").exit_code == 2


SHEET = "document: book.txt\nquestions: [{question: who wrote, answer: keeper, line: 1}]\n"


@pytest.fixture
def sheet(tmp_path):
    (tmp_path / "a.yaml").write_text(SHEET, "utf-8")
    return tmp_path / "a.yaml"


def recall(longctx, *args: object):
    options = ("--no-answers", "--gather", "20", "--gather-by", "method", "--device", "cpu")
    result = longctx("eval", "qa", *args, *options)
    assert result.exit_code == 0, result.stderr
    return result


@pytest.mark.usefixtures("library")
def test_qa_of_several_files_is_one_table(longctx, questions, sheet):
    result = recall(longctx, "book", questions, sheet, "--json")
    (found,) = json.loads(result.stdout)["documents"]
    assert found["counted"] == {"place": 2, "line": 1, "text": 0, "absent": 0}
    told = [(trial["file"], trial["number"]) for trial in found["trials"]]
    assert told == [(str(questions), 1), (str(questions), 2), (str(sheet), 1)]


def test_qa_of_several_documents_has_a_table_of_each_and_of_the_sum(
    longctx, library, questions, sheet, tmp_path
):
    shutil.copytree(library, tmp_path / "copy")
    assert longctx("rename", "book", "novel").exit_code == 0
    shutil.copytree(tmp_path / "copy", library, dirs_exist_ok=True)
    args = ("novel", questions, f"book={sheet}", "--out", tmp_path / "out")
    result = recall(longctx, *args)
    titles = [line for line in result.stdout.splitlines() if "questions" in line or ": " in line]
    assert [title.split(":")[0] for title in titles] == ["novel", "book", "in sum"]
    assert titles[1].endswith("1 question, counted by their text on a line")
    ways = "2 by place, 1 by their text on a line"
    assert titles[2] == f"in sum: 3 questions, counted {ways}"
    told = [line.split(":")[0] for line in result.stderr.splitlines()]
    assert told == ["novel", "book"]
    assert sorted(folder.name for folder in (tmp_path / "out").iterdir()) == ["book", "novel"]
    values = json.loads(recall(longctx, *args, "--json").stdout)
    assert [one["document"] for one in values["documents"]] == ["novel", "book"]
    assert values["sum"]["questions"] == 3


@pytest.mark.usefixtures("library")
def test_a_document_twice_has_a_table_for_each_of_its_files(longctx, questions, sheet, tmp_path):
    args = (f"book={questions}", f"book={sheet}", "--out", tmp_path / "out", "--markdown")
    lines = recall(longctx, *args).stdout.splitlines()
    titles = [line.split(":")[0] for line in lines if "question" in line and "counted" in line]
    assert titles == [f"book ({questions})", f"book ({sheet})", "in sum"]
    tables = [line for line in lines if line.startswith("|")]
    assert tables[:2] == ["| gathered by | 20 |", "| --- | --- |"]
    assert len(tables) == 9
    assert all(re.fullmatch(r"\| method \| \d of \d \(.*\) \|", row) for row in tables[2::3])
    folders = sorted(folder.name for folder in (tmp_path / "out").iterdir())
    assert folders == ["book", "book-2"]


@pytest.mark.usefixtures("library")
def test_qa_tells_how_many_answers_stand_nowhere(longctx, sheet):
    text = SHEET.replace("keeper, line: 1", "wolf").replace("}]", "}, {question: a, answer: boat}]")
    sheet.write_text(text, "utf-8")
    title = recall(longctx, "book", sheet).stdout.splitlines()[0]
    way = "2 questions, counted by their text anywhere"
    assert title.endswith(f"{way}; the answers of 1 stand nowhere and count as not gathered")


def test_qa_tells_what_it_leaves_out(longctx, library, sheet, monkeypatch):
    gathered = Session.gathered

    def some(session, question, by, budgets):
        if by == "hybrid":
            raise LongctxError("cannot mix", "\x1b[31mno embeddings")
        return gathered(session, question, by, budgets)

    monkeypatch.setattr(Session, "gathered", some)
    result = longctx("eval", "qa", "book", sheet, "--no-answers", "--gather", "20")
    assert result.exit_code == 0, result.stderr
    assert "book is not gathered by hybrid: cannot mix: " in result.stderr
    assert "\x1b" not in result.stderr
    assert not any(line.startswith("hybrid") for line in result.stdout.splitlines())
    named = longctx("eval", "qa", "book", sheet, "--no-answers", "--gather-by", "bm25,hybrid")
    assert (named.exit_code, named.stdout) == (1, "")


def test_qa_of_another_model_that_answers(
    longctx, library, sheet, model_options, make_model_folder, tmp_path
):
    folder = make_model_folder(tmp_path / "other", "a boat came home with news of rain", 300)
    command = ["eval", "qa", "book", sheet, "--gather", 20, "--gather-by", "bm25", *model_options]
    command += ["--json", "--out", tmp_path / "out"]
    found = longctx(*command, "--answer-model", folder)
    assert found.exit_code == 0, found.stderr
    (document,) = json.loads(found.stdout)["documents"]
    assert document["settings"]["answerer"]["model"] == str(folder)
    assert document["settings"]["model"] != str(folder)
    other = longctx(*command)
    assert other.exit_code == 2  # these are results of another run
    assert "out" in other.stderr


def test_arguments_name_documents_and_their_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b=c.jsonl").touch()
    given = ["a.jsonl", "b=c.jsonl", "b=d.jsonl", "e.yaml", "x/y=z.jsonl"]
    assert named_pairs("book", given) == [
        ("book", [Path("a.jsonl"), Path("b=c.jsonl")]),
        ("b", [Path("d.jsonl"), Path("e.yaml"), Path("x/y=z.jsonl")]),
    ]
    assert named_pairs("b=c.jsonl", []) == [("b", [Path("c.jsonl")])]


def test_documents_without_questions_are_refused(longctx, sheet):
    for args in (["book"], ["book", f"novel={sheet}"]):
        result = longctx("eval", "qa", *args)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "cannot ask 'book': there are no questions" in result.stderr
    both = longctx("eval", "qa", "book", sheet, "--json", "--markdown")
    assert (both.exit_code, both.stdout) == (2, "")


def test_settings_of_the_config_file_reach_subcommands(longctx, tmp_path, monkeypatch, questions):
    monkeypatch.delenv("LONGCTX_LIBRARY")  # it would win
    config = tmp_path / "config.toml"
    config.write_text('[eval]\nlibrary = "elsewhere"\n', "utf-8")
    shown = longctx("eval", "qa", "book", questions)
    assert shown.exit_code == 10
    assert "elsewhere" in shown.stderr
    config.write_text("[eval]\nshelf = 1\n", "utf-8")
    assert "unknown key 'shelf'" in longctx("eval", "qa", "book", questions).stderr


@pytest.fixture
def compared(longctx, monkeypatch):
    """Runs `eval compare` on given rows; returns the result and what core was asked for."""
    asked = []
    who = {"ceiling": False, "gather_by": "method", "length": 4000}
    timings = {"first_token_s": 0.5, "total_s": 1.25}
    question = {"score": 1, "gathered": 1.0, "tokens_per_s": 8.0, "timings": timings}
    sample = {"task": "niah", "tokens": 4000, "read_s": 2.0, "state_bytes": 10**6}
    sample |= {"peak_memory": 10**8, "questions": [question]}
    rows = [
        make_row(method="reform", decode="dense", samples=[sample], **who),
        make_row(method="reform", decode="quest", samples=[], failed="out of memory", **who),
    ]

    def run(setup, wanted, *more):
        asked.append((setup, wanted))
        return compare.ComparisonReport({"samples": 1}, rows)

    monkeypatch.setattr(compare, "run", run)
    return lambda *options: (longctx("eval", "compare", *options), asked[-1:])


def test_compare_as_a_page(compared, tmp_path):
    page = tmp_path / "compared.html"
    assert compared("--html", page)[0].exit_code == 0
    text = page.read_text("utf-8")
    read = Elements(text)
    table = list(csv.DictReader(StringIO(compared("--csv")[0].stdout)))
    cells = [text for tag, _, text in read.inside if tag == "td"]
    for row in table:
        assert {value for value in row.values() if value} <= {*cells, *read.texts}
    rates = [f"{float(row['quality']):.0%}" for row in table if row["quality"]]
    shown = [text for tag, attrs, text in read.inside if str(attrs.get("class")).startswith("r")]
    assert sorted(shown) == sorted(rates)
    assert "<svg" in text
    assert "script" not in {tag for tag, _ in read.found}


def test_compare_in_each_form(compared):
    table, _ = compared()
    assert table.exit_code == 0, table.stderr
    assert table.stdout.splitlines()[1].split()[:4] == ["reform", "method", "dense", "4000"]
    assert "failed: out of memory" in table.stdout.splitlines()[-1]
    values = json.loads(compared("--json")[0].stdout)
    as_csv = list(csv.DictReader(StringIO(compared("--csv")[0].stdout)))
    markdown = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in compared("--markdown")[0].stdout.splitlines()
    ]
    assert markdown[2:] == [[*row.values()] for row in as_csv]
    for row, shown in zip(values["rows"], as_csv, strict=True):
        assert row["method"] == shown["method"]
        for key, name in {"quality": "quality", "read_s": "read s", "total_s": "total s"}.items():
            assert row[key] == (float(shown[name]) if shown[name] else None)


def test_options_reach_the_comparison(compared):
    options = "--methods reform,full --decode dense,recycled:budget=8,stride=2 --lengths 1k,2K"
    more = "--samples 3 --seed 7 --in-window 600 --gather-by method,bm25 --threads 1"
    _, [(setup, wanted)] = compared(*options.split(), *more.split())
    assert wanted == compare.Comparison(
        methods=("reform", "full"),
        decode=("dense", "recycled:budget=8,stride=2"),
        lengths=(1000, 2048),
        tasks=("niah",),
        gather_by=("method", "bm25"),
        samples=3,
        seed=7,
        in_window=600,
    )
    assert (setup.threads, setup.method) == (1, None)


def test_one_form_at_a_time(compared):
    result, asked = compared("--csv", "--markdown")
    assert (result.exit_code, result.stdout, asked) == (2, "", [])
    assert "Give one of" in result.stderr


def test_what_is_told_at_once_says_what_was_there_and_rates_are_of_this_run(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(pace_file.time, "monotonic", lambda: now[0])
    pace = Pace(first_s=0)
    for seconds, done in ((0, 400), (9, 409), (10, 420)):
        now[0] = 100.0 + seconds
        pace.tell("asking", done, 500, "questions", 400)
    pace.tell("another", 0, 2, "questions", 0)
    assert capsys.readouterr().err.splitlines() == [
        "asking: 400 of 500 questions, from an earlier run",
        "asking: 420 of 500 questions, 2.00 questions/s, 40.0 s left",
        "another: 0 of 2 questions",
    ]


def test_progress_has_rate_and_time_left_after_two_seconds(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(pace_file.time, "monotonic", lambda: now[0])
    pace = Pace()
    for seconds, done in ((0, 2), (1, 3), (4, 6), (5, 7), (20, 22)):
        now[0] = 100.0 + seconds
        pace.tell("asking", done, 42, "questions")
    pace.tell("another", 0, None, "questions")
    assert capsys.readouterr().err.splitlines() == [
        "asking: 6 of 42 questions, 1.00 questions/s, 36.0 s left",
        "asking: 22 of 42 questions, 1.00 questions/s, 20.0 s left",
    ]
