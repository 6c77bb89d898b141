"""docs/evaluation/public.py as it is run: asks with a process of longctx, resumes, and reports."""

import json

import pytest
from chat_server import Misbehaving, events, stream
from public_sets import members
from public_sets.command import main
from public_sets.installation import Installation, Refused
from public_sets.items import Evidence, PublicSet, Question
from public_sets.measures import TURNS, of_financebench, seen_turns
from public_sets.reading import drawn
from public_sets.report import System, report
from sample_files import pdf

TINY = ("--model", "tiny", "--device", "cpu", "--dtype", "fp32")


@pytest.fixture
def listed(tmp_path):
    def write(path):
        file = tmp_path / "members.sha256"
        file.write_text(members.listed(members.read(path)), "utf-8")
        return str(file)

    return write


@pytest.fixture
def lara_set(lara_folder, packed, listed):
    path = packed(lara_folder)
    return ("lara", str(path), "--list", listed(path))


@pytest.mark.slow
def test_answers_are_put_in_the_table_next_to_stored_ones(lara_set, tmp_path, capfd):
    def give(handler, body):
        alder = "revenue of Alder" in body["messages"][0]["content"]
        stream(handler, events("$1,250" if alder else "not in the text"))

    out = tmp_path / "out"
    with Misbehaving().running() as server:
        server.give = give
        ask = ("ask", *lara_set, *TINY, "--out", str(out), "--library", str(tmp_path / "library"))
        ask = (*ask, "--gather-by", "bm25", "--answer-with", server.url, "--system", "mine")
        assert main(ask) == 0
    assert "mine: 4 of 4 questions are done" in capfd.readouterr().out
    kept = [json.loads(line) for line in (out / "results.jsonl").read_text("utf-8").splitlines()]
    assert [row["name"] for row in kept][2:] == ["financial location 3", "financial hallu 1"]
    assert {row["result"]["passages"][0]["source"] for row in kept} == {"Alder.txt", "Birch.txt"}
    table = ("table", *lara_set, "--stored", "all", "--against", "mine")
    assert main([*table, "--runs", str(out)]) == 0
    rows = capfd.readouterr().out
    assert "| financial location: figures | mine | 1 of 2 | 9% to 91% |  |  | 2 |  |" in rows
    assert "| financial location: figures | model full | 2 of 2 | 34% to 100% | +50.0 |" in rows
    assert "| financial: refused, not in the text | mine | 1 of 1 |" in rows
    assert "| financial: refused, in the text | mine | 2 of 3 |" in rows


def test_a_search_that_was_stopped_goes_on_and_is_compared(locomo_file, listed, tmp_path, capfd):
    where = ("locomo", str(locomo_file), "--list", listed(locomo_file))
    found, ranked = tmp_path / "found", str(tmp_path / "ranked")
    ask = ("ask", *where, *TINY, "--find", "--gather-by", "bm25", "--together")
    ask = (*ask, "--out", str(found), "--library", str(tmp_path / "library"))
    assert main([*ask, "--limit", "2"]) == 0
    results = found / "results.jsonl"
    first = results.read_bytes()
    results.write_bytes(first + b'{"name": "c1 3", "resu')  # stopped within a line
    assert main(ask) == 0
    whole = results.read_bytes()
    assert whole.startswith(first)
    assert [json.loads(line)["name"] for line in whole.splitlines()][2:4] == ["c1 3", "c2 1"]
    rank = ("rank", *where, "--by", "bm25s", "--out", ranked)
    assert main([*rank, "--seconds", "0"]) == 0
    assert "bm25s: 0 of 6 are done" in capfd.readouterr().out
    assert main(rank) == 0
    assert main([*rank, "-k", "3"]) == 1
    assert "k was 16 there" in capfd.readouterr().err
    runs = (f"longctx={found}", f"BM25S={ranked}")
    assert main(["table", *where, "--runs", *runs, "--against", "BM25S"]) == 0
    out, notes = capfd.readouterr()
    assert "| all: all evidence in the first 5 turns | BM25S | 4 of 4 |" in out
    assert "in the first 5 turns, in one library | longctx |" in out
    assert "c2 question 3: the key 'D9:9' names no turn" in notes


def test_answers_of_a_file_are_scored_and_empty_ones_counted(lara_set, tmp_path, capfd):
    file = tmp_path / "mine.jsonl"
    rows = [
        {"name": "financial location 1", "answer": "$1,250"},
        {"question": "What was the net loss of Birch?", "answer": None},
        {"name": "financial hallu 1", "answer": "$"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    assert main(["table", *lara_set, "--answers", str(file)]) == 0
    out = capfd.readouterr().out
    assert "| financial location: figures | mine | 1 of 2 | 9% to 91% |  |  | 1 | 1 |" in out
    assert "not in the text | mine | 0 of 1 | 0% to 79% |  |  | 1 | 1 |" in out
    read = ("verdicts", *lara_set, "--answers", str(file), "--said", "right", "--by", "figures")
    assert main(read) == 0
    assert "1. financial location 1, mine: right by figures" in capfd.readouterr().out
    file.write_text('{"question": "Who?", "answer": "I"}\n', "utf-8")
    assert main(["table", *lara_set, "--answers", str(file)]) == 1
    assert "mine.jsonl, line 1: it belongs to 0 questions" in capfd.readouterr().err


def test_errors_name_what_is_wrong(lara_set, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    before = {*tmp_path.iterdir()}
    cases = {
        ("table", *lara_set, "--runs", str(tmp_path / "none")): "has no results",
        ("table", *lara_set, "--stored", "other"): "there are: model full",
        ("table", *lara_set, "--stored", "all", "--against", "x"): "no system 'x'",
        ("table", "lara", lara_set[1]): "it has no answers/claude",
        (
            "ask",
            *lara_set,
            "--longctx",
            "/none/longctx",
            "--out",
            "o",
            "--library",
            "l",
        ): "no Python",
        ("rank", *lara_set, "--by", "mpnet", "--out", "o"): "needs --weights",
    }
    for arguments, said in cases.items():
        assert main(arguments) == 1
        assert said in capfd.readouterr().err
    assert {*tmp_path.iterdir()} == before


def test_refusals_count_only_with_answers():
    asked = [
        Question("1", "a", "book hallu", "held", "Who?", "It does not say.", answerable=False),
        Question("2", "a", "book location", "held", "When was it?", "In 1841."),
    ]
    found = PublicSet("lara", "", {"a": {}}, asked)
    refusal = {"answer": "not in the text"}
    alone = report(found, asked, [System("x", {"1": refusal})], None)
    assert "not counted: the run has no answers" in alone
    both = report(found, asked, [System("x", {"1": refusal, "2": refusal})], None)
    assert "| book: refused, not in the text | x | 1 of 1 |" in both
    assert "| book: refused, in the text | x | 1 of 1 |" in both


def test_runs_of_one_system_may_have_different_measures():
    asked = [Question("1", "a", "book location", "held", "When was it?", "In 1841.")]
    found = PublicSet("lara", "", {"a": {"a.txt": b"It was in 1841."}}, asked)
    spot = {"source": "a.txt", "start": 0, "end": 15}
    runs = [System("x", {"1": {"answer": "1841"}}), System("x", {"1": {"passages": [spot]}})]
    other = System("y", {"1": {"answer": "1842"}})
    rows = report(found, asked, [*runs, other], "x")
    assert "| book location: figures | x | 1 of 1 |" in rows
    assert "| book location: figures in the first 16 passages | x | 1 of 1 |" in rows
    assert "| book location: figures | y | 0 of 1 | 0% to 79% | -100.0 |" in rows


def test_the_turn_with_the_matching_line_is_the_first_of_a_passage():
    lines = [f"Ann: turn {number}." for number in range(9)]
    data = "\n\n".join(["## Session 1", *lines]).encode()
    found = PublicSet("locomo", "d", {"c": {"c.md": data}}, [])
    at = [data.index(line.encode()) for line in lines]
    spot = {"source": "c.md", "start": at[2] + 9, "end": at[6], "match": [at[4], at[5], "9"]}
    again = {"source": "c.md", "start": at[0], "end": len(data)}
    seen = seen_turns(found, "c", {"passages": [spot, again]})
    assert [turn.start for turn in seen] == [at[4], at[3], at[5], at[0], at[1]]
    assert len(seen) == TURNS


def test_a_page_counts_where_a_passage_begins_and_where_its_line_matches():
    question = Question("1", "f", "x", "held", "?", evidence=(Evidence("f.pdf", "p. 7"),))
    found = PublicSet("financebench", "", {}, [question])
    first = {"source": "f.pdf", "place": "p. 6", "match": [0, 1, "p. 7"]}
    others = [{"source": "g.pdf", "place": "p. 7"}, {"source": "f.pdf", "place": "p. 8"}]

    def hits(*passages):
        return [hit for _, hit in of_financebench(found, question, {"passages": passages})]

    assert hits(first) == [True, True, True]
    assert hits(*others, first) == [False, True, True]
    assert hits(*others) == [False, False, False]


@pytest.mark.slow
def test_a_document_that_has_lost_text_is_read_once(tmp_path):
    file, library = tmp_path / "Alder.pdf", tmp_path / "library"
    file.write_bytes(pdf("Revenue was $1,250.", None))
    model = {"name": "tiny", "device": "cpu", "dtype": "fp32"}
    with Installation(None, library, model) as installed:
        first = installed.ingest([file])
        assert {**installed.ingest([file]), "seconds": 0} == {**first, "seconds": 0}
        assert installed.find(["Alder"], "What was the revenue?", gather_by="bm25")["passages"]
        file.write_bytes(pdf("Revenue was $1,251.", None))
        with pytest.raises(Refused, match="'Alder' exists"):
            installed.ingest([file])
    file.write_bytes(pdf("Revenue was $1,250.", None))
    otherwise = Installation(None, library, {**model, "method": "truncate"})
    with otherwise, pytest.raises(Refused, match="'Alder' exists"):
        otherwise.ingest([file])


def test_verdicts_on_filings_are_those_of_their_table():
    asked = Question("1", "f", "x", "held", "What was the revenue in USD millions?", "$1577.00")
    found = PublicSet("financebench", "", {}, [asked])
    near = System("mine", {"1": {"answer": "$1,580 million"}})
    assert "| figures within 1% | mine | 1 of 1 |" in report(found, [asked], [near], None)
    (text,) = drawn(found, [asked], [near], "right", "figures", 1, 0)
    assert "1, mine: right by figures" in text
