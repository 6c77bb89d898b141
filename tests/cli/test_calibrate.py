"""`longctx calibrate`: what it asks core for, what it prints, and how it ends."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest

from longctx.cli import calibrate as command
from longctx.cli import progress
from longctx.core.measure.calibrate import calibration as calibrate
from longctx.core.measure.calibrate.calibration_plan import FULL, QUICK
from longctx.core.measure.calibrate.choosing import HeadRow
from longctx.core.measure.calibrate.copying import RetrievalHead
from longctx.core.measure.calibrate.report import Calibration
from longctx.core.measure.journal import RESULTS, Journal

ROWS = [
    HeadRow("maxsim", "pattern", 2, "k", 1, 0.0081, 0.0),
    HeadRow("maxsim", "pattern", 3, "attention", 0, 0.125, 0.01),
    HeadRow("maxsim", "multi-hop", 6, "v", 0, 0.0412, None),
    HeadRow("mnr", "pattern", 3, "attention", 0, 0.0025, 0.02),
    HeadRow("mnr", "pattern", 2, "k", 1, 0.0125, 0.0011),
    HeadRow("mnr", "multi-hop", 6, "v", 0, 0.0321, 0.004),
]
HEADS = [[2, "k", 1], [6, "v", 0]]
HEAD = RetrievalHead(7, 3, 0.875, 0.05)


def found(**changed) -> Calibration:
    values = {"model": "tiny", "device": "cpu", "dtype": "fp32", "length": 8000, "samples": 8}
    values |= {"seed": 0, "rows": ROWS, "rank_by": "maxsim"}
    values |= {"heads": ((2, "k", 1), (6, "v", 0))}
    values |= {"copying": [HEAD], "needles": 20, "answered": 19, "retrieval_heads": [HEAD]}
    values |= {
        "spans": {"theta": [0.9], "phi": [0.1], "lam": [3.0], "f1": [0.5]},
        "heads_stay": False,
    }
    values |= {"profile": Path("a.yaml"), "folder": Path("a.calibration"), "seconds": 75.04}
    return Calibration(**values | changed)


@pytest.fixture
def call(monkeypatch, longctx):
    """Runs the command on a given result; returns the outcome and what core was asked for."""
    asked = []

    def invoke(result: Calibration, *options: str):
        monkeypatch.setattr(calibrate, "run", lambda *values: asked.append(values) or result)
        return longctx("calibrate", "tiny", *options), asked

    return invoke


def test_tables_and_what_was_taken(call):
    result, asked = call(found())
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    both = ["layer", "kind", "head", "MaxSim", "error", "MNR", "error"]
    best = ["2", "k", "1", "0.0081", "0.0000", "0.0125", "0.0011"]
    assert rows[1:3] == [both, best]
    assert rows[3] == ["3", "attention", "0", "0.1250", "0.0100", "0.0025", "0.0200"]
    assert ["6", "v", "0", "0.0412", "0.0321", "0.0040"] in rows  # one without a standard error
    assert ["7", "3", "0.875", "0.050"] in rows
    assert "copy score (19 of 20 needles were answered)" in result.stdout
    heads = "REFORM's heads   [2, k, 1], [6, v, 0], by rank of windows by MaxSim"
    assert heads in result.stdout
    assert "retrieval heads  [7, 3, 0.88]" in result.stdout
    assert "1:15" in result.stdout
    assert not result.stderr
    setup, wanted, _ = asked[0]
    assert setup.model == "tiny"
    assert (wanted.out, wanted.amounts, wanted.length) == (Path("tiny.yaml"), FULL, 8000)
    assert wanted.rank_by == "maxsim"


def test_the_measure_that_was_asked_for_comes_first(call):
    result, asked = call(found(rank_by="mnr"), "--rank-by", "mnr")
    assert asked[0][1].rank_by == "mnr"
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[1] == ["layer", "kind", "head", "MNR", "error", "MaxSim", "error"]
    assert rows[2] == ["3", "attention", "0", "0.0025", "0.0200", "0.1250", "0.0100"]
    assert "[6, v, 0], by mean normalised rank" in result.stdout


def test_options_reach_core(call):
    options = ("--quick", "--samples", "5", "--out", "x/my.yaml", "--length", "2K", "--seed", "9")
    _, asked = call(found(), *options, "--dtype", "fp32")
    setup, wanted, _ = asked[0]
    assert (wanted.out, wanted.length, wanted.seed) == (Path("x/my.yaml"), 2048, 9)
    assert (wanted.amounts.samples, wanted.amounts.haystacks) == (5, QUICK.haystacks)
    assert wanted.folder == Path("x/my.calibration")
    assert setup.dtype == "fp32"


def test_json_has_every_row(call):
    result, _ = call(found(), "--json")
    values = json.loads(result.stdout)
    assert values["schema_version"] == 2
    assert values["heads"] == HEADS
    assert values["rank_by"] == "maxsim"
    assert len(values["rows"]) == 6
    assert values["rows"][5] == {
        "measure": "mnr",
        "task": "multi-hop",
        "layer": 6,
        "kind": "v",
        "head": 0,
        "mean": 0.0321,
        "error": 0.004,
    }
    assert values["retrieval_heads"] == [{"layer": 7, "head": 3, "score": 0.875, "error": 0.05}]
    assert (values["profile"], values["seconds"]) == ("a.yaml", 75.0)


def test_a_profile_on_standard_output_has_it_to_itself(call):
    result, asked = call(found(), "--out", "-")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "copy score" in result.stderr
    wanted = asked[0][1]
    assert (wanted.out, wanted.printed) == (Path("tiny.yaml"), True)
    for more in (("--json",), ("--report", "-")):
        result, asked = call(found(), "--out", "-", *more)
        assert (result.exit_code, len(asked)) == (2, 1)
        assert "both want standard output" in result.stderr


@pytest.mark.parametrize("more", [(), ("--json",), ("-q",)])
def test_a_report_has_the_object_of_json(call, tmp_path, more):
    file = tmp_path / "run.json"
    result, _ = call(found(retrieval_heads=[]), "--report", file, *more)
    told = json.loads(file.read_text("ascii"))
    assert told["result"] == found(retrieval_heads=[]).as_dict() | {"heads": HEADS}
    assert any("no retrieval head" in note for note in told["notes"])
    assert told["command"] == "calibrate"
    assert bool(result.stderr) == ("-q" not in more)
    if "--json" in more:
        assert told["result"] == json.loads(result.stdout)


def test_progress_as_json(longctx, monkeypatch, tmp_path):
    def measured(setup, wanted, tell):
        for done in range(3):
            tell("ranks of heads", done, 2, "samples")
        tell("spans", 40, 40, "steps")
        return found()

    monkeypatch.setattr(calibrate, "run", measured)
    monkeypatch.chdir(tmp_path)
    result = longctx("calibrate", "tiny", "--progress", "json")
    told = [json.loads(line) for line in result.stderr.splitlines()]
    assert {line["progress"] for line in told} == {"calibrate"}
    counts = [(line["what"], line["unit"], line["processed"], line["total"]) for line in told]
    assert counts == [
        ("ranks of heads", "samples", 0, 2),
        ("ranks of heads", "samples", 2, 2),
        ("spans", "steps", 40, 40),
    ]


def test_notes_where_something_is_missing(call, monkeypatch):
    result, _ = call(found(retrieval_heads=[]))
    assert "no retrieval head was found" in result.stderr
    assert "the profile has none for the method ltri" in result.stderr
    assert "retrieval heads  none\n" in result.stdout


def test_where_no_retrieval_head_is_found_the_old_ones_are_told_of(call):
    result, _ = call(found(retrieval_heads=[], heads_stay=True))
    assert "the profile keeps those it had for the method ltri" in result.stderr
    assert "retrieval heads  none new" in result.stdout


@pytest.mark.parametrize("finished", [1, 0])
def test_after_ctrl_c_it_says_how_to_go_on_where_something_is_finished(
    monkeypatch, longctx, tmp_path, finished
):
    def stopped(setup, wanted, tell):
        with Journal(wanted.folder, {}) as journal:
            journal.put("pattern/0", {"ranks": []})
        results = wanted.folder / RESULTS
        if not finished:  # what was being written does not count
            results.write_bytes(results.read_bytes()[:-1])
        raise KeyboardInterrupt

    monkeypatch.setattr(calibrate, "run", stopped)
    result = longctx("calibrate", "tiny", "--out", tmp_path / "my.yaml")
    assert result.exit_code == 130
    assert result.stderr.count("What is finished") == finished
    assert (f"is in {tmp_path / 'my.calibration'}. The same command" in result.stderr) == finished


def test_after_ctrl_c_before_anything_is_finished_there_is_nothing_to_go_on_with(
    monkeypatch, longctx, tmp_path
):
    def stopped(setup, wanted, tell):
        Journal(wanted.folder, {}).__exit__()
        raise KeyboardInterrupt

    monkeypatch.setattr(calibrate, "run", stopped)
    result = longctx("calibrate", "tiny", "--out", tmp_path / "my.yaml")
    assert result.exit_code == 130
    assert "What is finished" not in result.stderr


def test_what_begins_is_told_at_once(monkeypatch, longctx):
    seen = []

    @contextmanager
    def status(text):
        seen.append(text)
        yield
        seen.append("ended")

    def measured(setup, wanted, tell):
        seen.append("core")
        tell("ranks of heads", 0, 16, "samples", 0)
        seen.append("begun")
        tell("spans", 0, 9, "steps", 0)
        return found()

    monkeypatch.setattr(command, "make_setup", lambda **choices: None)  # it starts too
    monkeypatch.setattr(progress, "status", status)
    monkeypatch.setattr(calibrate, "run", measured)
    result = longctx("calibrate", "tiny")
    assert result.exit_code == 0
    assert seen == ["starting", "core", "ended", "begun"]
    assert result.stderr.splitlines() == [
        "ranks of heads: 0 of 16 samples",
        "spans: 0 of 9 steps",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--samples", "1"), "cannot rank by 1 samples"),
        (("--out", "heads.json"), "it is no .yaml file"),
        (("--length", "many"), "'many' is no whole number of tokens"),
        (("--rank-by", "recall"), "cannot rank heads by 'recall'. Known: maxsim, mnr."),
        (("--length", "200"), "samples of 200 tokens are too short"),
    ],
)
def test_what_cannot_work_is_wrong_usage(longctx, monkeypatch, tmp_path, options, message):
    monkeypatch.chdir(tmp_path)
    result = longctx("calibrate", "tiny", *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(tmp_path.glob("*.yaml"))


def test_a_model_that_there_is_not(longctx, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = longctx("calibrate", "nowhere", "--quick")
    assert result.exit_code == 2
    assert "no model 'nowhere'" in result.stderr or "no profile for model" in result.stderr
