"""Methods side by side: with the bundled model, and with processes that say what a test wants."""

import csv
import json
import os
import subprocess
import sys
from io import StringIO
from itertools import chain, repeat
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from preloaded import PIPE, Process

from longctx.core.common.errors import UsageError
from longctx.core.engine.choice import Setup
from longctx.core.measure.eval import compare_job, compare_process, tasks
from longctx.core.measure.eval.compare import Comparison, run
from longctx.core.measure.eval.compare_files import (
    HEADERS,
    NUMBERS,
    as_csv,
    as_markdown,
    cells,
    quality_by_length,
    write,
)
from longctx.core.measure.eval.compare_job import AskSettings, CaseJob, CompareJob
from longctx.core.measure.eval.compare_process import Died, messages
from longctx.core.measure.eval.compare_rows import make_row

SETUP = Setup(device="cpu", dtype="fp32", threads=1)
WANTED = Comparison(("reform", "reattention"), ("dense", "snapkv"), (1000,), ("niah",), samples=1)

# Answers every piece of a job; `full` dies of memory, and what recycles does not fit.
FAKE = """
import json, os, sys
job = json.load(sys.stdin)
tell = lambda message: print(json.dumps(message), flush=True)
if job["setup"]["method"] == "h2":
    print("no such thing", file=sys.stderr)
    sys.exit(3)
question = {"score": 0.5, "gathered": 1.0, "tokens_per_s": 4.0,
            "timings": {"first_token_s": 0.25, "total_s": 1.5}}
for piece in job["pieces"]:
    for way in piece["ways"]:
        if way["decode"] == "recycled":
            tell({"unfit": {**way, "task": piece["task"], "why": "cannot"}})
            continue
        if job["setup"]["method"] == "reattention" and piece["sample"] == 1:
            os.kill(os.getpid(), 9)
        tell({"sample": {**way, "task": piece["task"], "sample": piece["sample"], "tokens": 1000,
                         "read_s": 2.0, "state_bytes": 3, "peak_memory": 5_000_000,
                         "questions": [question] * 2}})
"""


def fake(tmp_path, text: str = FAKE) -> list[str]:
    """A program in place of the one that does jobs; it notes the jobs that it gets."""
    note = f"\nopen({str(tmp_path / 'jobs')!r}, 'a').write(json.dumps(job) + '\\n')\nquestion ="
    file = tmp_path / "fake.py"
    file.write_text(text.replace("\nquestion =", note, 1), "utf-8")
    return [sys.executable, "-S", "-E", str(file)]


def jobs(tmp_path) -> list[dict]:
    file = tmp_path / "jobs"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def forked(monkeypatch) -> None:
    """All processes of jobs but the first have imported everything when they begin."""
    job = "from longctx.core.measure.eval import compare_job\ncompare_job.main()\nraise SystemExit"
    forks = repeat(lambda _, **pipes: Process([], before=job, **pipes))
    ways = chain([subprocess.Popen], forks)
    begin = SimpleNamespace(Popen=lambda *given, **more: next(ways)(*given, **more), PIPE=PIPE)
    monkeypatch.setattr(compare_process, "subprocess", begin)


@pytest.mark.slow
def test_two_methods_two_policies_and_the_ceiling(tmp_path, forked):
    wanted = Comparison(**{**vars(WANTED), "lengths": (400,), "in_window": 300})
    report = run(SETUP, wanted, tmp_path / "out")
    rows = {(row.method, row.decode): row for row in report.rows}
    assert [(row.method, row.decode, row.ceiling) for row in report.rows] == [
        ("full", "dense", True),
        ("reform", "dense", False),
        ("reform", "snapkv", False),
        ("reattention", "dense", False),
        ("reattention", "snapkv", False),
    ]
    assert rows["full", "dense"].length == 300
    for row in report.rows[:-1]:
        assert (row.questions, row.quality, row.why) == (1, 1.0, ""), row
        assert row.gathered == 1.0
        assert row.read_s > 0 < row.first_token_s < row.total_s
        assert row.peak_memory > 10**7 < row.state_bytes * 10**4
    refused = rows["reattention", "snapkv"]
    assert refused.not_applicable.startswith("cannot decode with 'snapkv'")
    assert refused.quality is refused.total_s is None
    assert rows["reattention", "dense"].state_bytes > rows["reform", "dense"].state_bytes

    again = run(SETUP, wanted, tmp_path / "out", command=["no-such-program"])  # nothing is to do
    assert again == report


def test_what_dies_is_a_row_and_the_run_goes_on(tmp_path):
    wanted = Comparison(
        ("reattention", "reform"), ("dense", "recycled"), (900,), ("niah_single_2",)
    )
    wanted = Comparison(**{**vars(wanted), "samples": 3})
    told: list[str] = []
    report = run(
        SETUP, wanted, tmp_path / "out", lambda one: told.append(one.name), command=fake(tmp_path)
    )
    rows = {(row.method, row.decode): row for row in report.rows}
    died, whole = rows["reattention", "dense"], rows["reform", "dense"]
    assert (died.questions, died.quality) == (2, 0.5)  # what came before
    assert "as it does when memory runs out" in died.failed
    assert died.why.startswith("failed: ")
    assert (whole.questions, whole.quality, whole.failed) == (6, 0.5, "")
    assert whole.low < 0.5 < whole.high
    assert (whole.read_s, whole.read_tokens_per_s, whole.total_s) == (2.0, 500.0, 1.5)
    assert rows["reattention", "recycled"].why == "not applicable: cannot"
    assert told == ["full/3584", "reattention/900", "reform/900"]

    before = len(jobs(tmp_path))
    run(SETUP, wanted, tmp_path / "out", command=fake(tmp_path))
    (job,) = jobs(tmp_path)[before:]  # the ceiling and REFORM are done
    assert job["setup"]["method"] == "reattention"
    assert [piece["sample"] for piece in job["pieces"]] == [1, 2]
    assert [piece["ways"] for piece in job["pieces"]] == [
        [{"gather_by": "method", "decode": "dense"}]
    ] * 2


def test_more_methods_and_lengths_go_on_in_the_same_folder_but_not_other_cases(tmp_path):
    small = Comparison(("reform",), ("dense",), (900,), ("niah",), samples=1)
    run(SETUP, small, tmp_path / "out", command=fake(tmp_path))
    larger = Comparison(("reform",), ("dense",), (900, 1000), ("niah",), samples=1)
    report = run(SETUP, larger, tmp_path / "out", command=fake(tmp_path))
    assert [row.length for row in report.rows] == [3648, 900, 1000]
    assert [job["length"] for job in jobs(tmp_path)] == [3648, 900, 1000]
    with pytest.raises(UsageError, match="seed was 0 there, and is 1 now"):
        run(SETUP, Comparison(**{**vars(small), "seed": 1}), tmp_path / "out")


def test_what_is_gathered_by_is_passed_on(tmp_path):
    wanted = Comparison(("reform",), ("dense",), (900,), ("niah",), ("method", "bm25"), samples=1)
    report = run(SETUP, wanted, command=fake(tmp_path))
    assert [row.gather_by for row in report.rows] == ["method", "method", "bm25"]
    sources = [way["gather_by"] for way in jobs(tmp_path)[1]["pieces"][0]["ways"]]
    assert sources == ["method", "bm25"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"methods": ("reform", "rform")}, "unknown method 'rform'"),
        ({"decode": ("dens",)}, "unknown decode policy 'dens'"),
        ({"decode": ("recycled:budget=x",)}, "recycled"),
        ({"tasks": ("haystack",)}, "unknown task 'haystack'. Known: cwe"),
        ({"lengths": (1000, 50)}, "50 tokens is too short"),
        ({"in_window": 50}, "50 tokens is too short"),
        ({"in_window": 5000}, "5,000 tokens: the model's window is 4,096"),
        ({"lengths": ()}, "--lengths names nothing"),
        ({"samples": 0}, "0 samples"),
    ],
)
def test_what_cannot_be_is_told_before_any_work(tmp_path, change, said):
    with pytest.raises(UsageError, match=said):
        run(SETUP, Comparison(**{**vars(WANTED), **change}), tmp_path / "out", command=["none"])
    assert not (tmp_path / "out").exists()


def test_a_task_that_does_not_fit_leaves_the_others(tmp_path):
    text = FAKE.replace('way["decode"] == "recycled"', 'piece["task"] == "vt"')
    wanted = Comparison(("reform",), ("dense",), (2000,), ("vt", "niah"), samples=1)
    report = run(SETUP, wanted, tmp_path / "out", command=fake(tmp_path, text))
    row = report.rows[-1]
    assert (row.method, row.not_applicable, row.failed) == ("reform", "vt: cannot", "")
    assert list(row.tasks) == ["niah"]


def test_a_process_that_dies_while_it_writes_is_dead(tmp_path):
    text = "import os\nos.write(1, b'{\"sample\": ')\nos.kill(os.getpid(), 9)\n"
    with pytest.raises(Died, match="as it does when memory runs out"):
        list(messages("{}", fake(tmp_path, text)))


def test_a_process_that_fails_says_how(tmp_path):
    job = CompareJob(
        Setup(method="h2"), 900, 1, 0, (CaseJob("niah", 0, (AskSettings("method", "dense"),)),)
    )
    with pytest.raises(Died, match="exit code 3: no such thing"):
        list(messages(job.to_json(), fake(tmp_path)))
    assert CompareJob.from_json(job.to_json()) == job


def test_ctrl_c_ends_the_process_and_its_files(tmp_path):
    text = (
        "import os, sys, time, json\n"
        "open(os.path.join(os.environ['TMPDIR'], 'state'), 'w').close()\n"
        "print(json.dumps([os.getpid(), os.environ['TMPDIR']]), flush=True)\n"
        "time.sleep(600)\n"
    )
    told = messages("{}", fake(tmp_path, text))
    pid, folder = next(told)
    assert os.path.exists(os.path.join(folder, "state"))
    with pytest.raises(KeyboardInterrupt):
        told.throw(KeyboardInterrupt)
    assert not os.path.exists(folder)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_job_that_its_method_cannot_do_fails_by_its_words(monkeypatch, capfd):
    piece = CaseJob("niah", 0, (AskSettings("method", "dense"),))
    job = CompareJob(Setup(**{**vars(SETUP), "method": "full"}), 4500, 1, 0, (piece,))
    monkeypatch.setattr(sys, "stdin", StringIO(job.to_json()))
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # what it does to it is undone
    compare_job.main()
    last = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert last["failed"].startswith("the document's ")
    assert "the window has room for" in last["failed"]


def test_needles_are_a_task():
    from longctx.core.engine.setup import prepare

    task = tasks.find("niah")
    cases = list(task.make(prepare(SETUP).files.tokenizer, 600, 2, 0))
    for case in cases:
        for query in case.queries:
            (span,) = query.spans
            assert query.answers[0] in case.text.encode()[span.start : span.end].decode()
            assert task.score(query.answers, f"It is {query.answers[0]}.") == 1
            assert task.score(query.answers, f"{query.answers[0]} or 12") == 0
    assert [len(case.queries) for case in cases] == [2]
    assert task.cases(2) == 1
    assert tasks.find("vt").cases(2) == 2


def sample(task: str, *scores: float, gathered: float | None = 1.0) -> dict:
    timings = {"first_token_s": 0.125, "total_s": 2.0}
    question = {"gathered": gathered, "tokens_per_s": None, "timings": timings}
    facts = {"tokens": 1000, "read_s": 4.0, "state_bytes": 1_500_000, "peak_memory": 250_000_000}
    return {"task": task, **facts, "questions": [{**question, "score": s} for s in scores]}


def rows():
    who = {"gather_by": "method", "decode": "recycled:budget=8,stride=2", "length": 4096}
    samples = [sample("a", 1, 0), sample("b", 1, gathered=None)]
    return [
        make_row(ceiling=True, method="full", samples=[sample("a", 1)], **who),
        make_row(ceiling=False, method="reform", samples=samples, **who),
        make_row(ceiling=False, method="h2o", samples=[], failed='out of "memory" | now', **who),
    ]


def test_a_row_has_the_mean_of_the_tasks_means():
    row = rows()[1]
    assert row.tasks == {"a": 0.5, "b": 1.0}
    assert (row.quality, row.questions, row.gathered) == (0.75, 3, 1.0)
    assert (row.read_s, row.read_tokens_per_s) == (4.0, 250.0)
    assert row.tokens_per_s is None  # every answer had one token


def test_csv_and_markdown_hold_the_same_numbers():
    from_csv = list(csv.reader(StringIO(as_csv(rows()))))
    lines = [line.replace("\\|", "\0") for line in as_markdown(rows()).splitlines()]
    from_markdown = [[c.strip().replace("\0", "|") for c in x.split("|")[1:-1]] for x in lines]
    del from_markdown[1]  # the rule under the headers
    assert from_csv == from_markdown == [list(HEADERS), *(list(cells(row)) for row in rows())]
    values = dict(zip(HEADERS, from_csv[2], strict=True))
    row = rows()[1]
    assert float(values["quality"]) == row.quality
    assert float(values["peak MB"]) == row.peak_memory / 1e6
    assert float(values["state MB"]) == row.state_bytes / 1e6
    assert float(values["total s"]) == row.total_s
    assert int(values["length"]) == row.length
    assert {values[name] for name in NUMBERS if values[name] == ""} == {""}  # tokens/s


def test_the_plot_has_what_was_asked_to_the_end_and_a_level_ceiling():
    who = {"gather_by": "method", "decode": "dense"}
    ceiling = make_row(ceiling=True, method="full", length=900, samples=[sample("a", 1)], **who)
    there = [
        make_row(ceiling=False, method="tova", length=length, samples=[sample("a", 0)], **who)
        for length in (4000, 8000)
    ]
    died = make_row(
        ceiling=False, method="tova", length=9000, samples=[sample("a", 1)], failed="x", **who
    )
    assert quality_by_length([ceiling, *there, died]) == {
        "full at 900 tokens": [(900, 1.0), (9000, 1.0)],
        "tova, method, dense": [(4000, 0.0), (8000, 0.0)],
    }


def test_files_are_written_from_the_rows(tmp_path):
    files = write(tmp_path, rows())
    assert [file.name for file in files] == ["compare.csv", "compare.md", "compare.svg"]
    assert files[0].read_text("utf-8") == as_csv(rows())
    assert files[1].read_text("utf-8") == as_markdown(rows())
    drawn = ElementTree.fromstring(files[2].read_text("utf-8"))
    texts = {element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Quality by length", *quality_by_length(rows())} <= texts
    assert len(write(tmp_path, rows()[2:])) == 2  # nothing to draw
