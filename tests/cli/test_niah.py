"""`longctx niah`: what it prints, where, and with which exit code."""

import json
import sys
import tempfile
from dataclasses import asdict

import pytest
from page_elements import Elements
from typer.testing import CliRunner

from longctx.cli import grids
from longctx.cli.main import app
from longctx.core.measure.niah import needle_test as niah
from longctx.core.measure.niah.report import HaystackRead, NeedleReport, Trial
from longctx.core.measure.runner import How

DEPTHS = (0.0, 1.0)


def trial(kind: str, depth: float, answered: bool, length: int) -> Trial:
    answer = "12345" if answered else "54321"
    timings = {"total_s": 0.5}
    return Trial(kind, length, 0, depth, 107, "What?", "12345", answer, answered, True, {}, timings)


def report(*answered: bool, **changed) -> NeedleReport:
    """Two kinds at two depths; of 1,024 tokens, and of 2,000 where there is more."""
    places = [(length, d, k) for length in (1024, 2000) for d in DEPTHS for k in ("key", "number")]
    trials = [
        trial(kind, depth, hit, length)
        for (length, depth, kind), hit in zip(places, answered, strict=False)
    ]
    lengths = tuple(dict.fromkeys(each.length for each in trials))
    reads = tuple(
        HaystackRead(f"{n}/0", n, 2.0, 1.5, tuple(t for t in trials if t.length == n))
        for n in lengths
    )
    values = {"variant": "default", "lengths": lengths, "depths": DEPTHS, "needles": 1, "trials": 1}
    values |= {"strict": False, "seed": 3, "bar": 1.0, "prose": "harbour-book", "model": "tiny"}
    values |= {
        "method": "reform",
        "device": "cpu",
        "dtype": "fp32",
        "gather": None,
        "gather_by": "method",
        "decode": None,
    }
    return NeedleReport(values | changed, reads)


@pytest.fixture
def call(monkeypatch):
    """Runs the command on a given report; returns the result and what core was asked for."""
    asked = []

    def run(found: NeedleReport, options: str = ""):
        monkeypatch.setattr(niah, "run", lambda *values: asked.append(values) or found)
        return CliRunner().invoke(app, f"niah {options}"), asked

    return run


def test_a_heat_map_counts_and_exit_code_0(call):
    result, _ = call(report(*[True] * 8), "--lengths 1K,2k --depths 2")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[:3] == [["depth", "1K", "2k"], ["0%", "100%", "100%"], ["100%", "100%", "100%"]]
    assert ["key", "4", "4", "4", "100.0%", "51.0%", "to", "100.0%"] in rows
    assert ["all", "8", "8", "8", "100.0%", "67.6%", "to", "100.0%"] in rows
    assert "100.0% answered, 100.0% wanted: passed" in result.stdout
    assert "2 of harbour-book, each read once for its 4 needles" in result.stdout
    assert "the needles are plainly worded" in result.stdout
    assert "reading 4.0 s (756 tokens/s), asking 3.0 s" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_missed_cell_is_exit_code_1_and_listed(call):
    result, _ = call(report(True, True, False, True))
    assert result.exit_code == 1
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[1:3] == [["0%", "100%"], ["100%", "50%"]]
    assert "75.0% answered, 100.0% wanted: NOT passed" in result.stdout
    assert ["1,024", "100%", "What?", "12345", "54321", "yes"] in rows


def test_a_page_has_grids_with_figures_kinds_and_what_was_missed(call, tmp_path):
    page = tmp_path / "needles.html"
    result, _ = call(report(*[True] * 6, False, True), f"--html {page}")
    assert f"page: {page}" in result.stderr
    read = Elements(page.read_text("utf-8"))
    heads = [text for tag, _, text in read.inside if tag == "figcaption"]
    what, kinds = "answered, by depth and tokens of the text", ("all kinds", "key", "number")
    assert heads == [f"{what}: {kind}" for kind in kinds]
    cells = [(attrs.get("class"), text) for tag, attrs, text in read.inside if tag == "td"]
    assert cells.count(("r10", "100%")) == 3 + 3 + 4
    assert cells.count(("r5", "50%")) == 1
    assert cells.count(("r0", "0%")) == 1
    figures = [text for tag, _, text in read.inside if tag == "small"]
    assert figures[:4] == ["2 of 2"] * 3 + ["1 of 2"]
    assert "Not answered: 1" in read.texts
    assert "87.5% answered, 100.0% wanted: not passed." in read.texts
    assert {"tiny, method reform", "2 of harbour-book, with 4 needles each"} <= {*read.texts}


def test_a_page_that_cannot_be_written_is_refused_before_any_work(call, tmp_path):
    (tmp_path / "a.html").write_text("mine")
    result, asked = call(report(True), f"--html {tmp_path / 'a.html'}")
    assert result.exit_code == 2
    assert not asked


def test_wrong_answers_beyond_ten_are_counted(call, monkeypatch):
    monkeypatch.setattr("longctx.cli.niah_tables.SHOWN", 3)
    result, _ = call(report(*[False] * 8))
    assert result.stdout.count("54321") == 3
    assert "and 5 more" in result.stdout


def test_what_was_not_gathered_is_told(call):
    found = report(True, True)
    lost = asdict(found.reads[0])
    lost["trials"][0]["gathered"] = False
    found = NeedleReport(**{**vars(found), "reads": (HaystackRead.of(lost),)})
    result, _ = call(found)
    assert result.exit_code == 0
    assert "1 of 2 needles were NOT gathered whole" in result.stderr


def test_a_reached_bar_is_exit_code_0(call):
    result, _ = call(report(True, True, False, True, variant="mixed", bar=0.7))
    assert result.exit_code == 0
    assert "75.0% answered, 70.0% wanted: passed" in result.stdout


@pytest.mark.parametrize(("hit", "code"), [(True, 0), (False, 1)])
def test_json_is_one_object(call, hit, code):
    result, _ = call(report(True, hit), "--json")
    assert result.exit_code == code
    values = json.loads(result.stdout)
    assert values["schema_version"] == 2
    assert "the needles are plainly worded" in values["note"]
    assert (values["asked"], values["answered"], values["passed"]) == (2, 1 + hit, hit)
    assert set(values["trials"][0]) == set(Trial.__dataclass_fields__)
    assert values["cells"][0] | {"interval": 0} == {
        **{"length": 1024, "depth": 0.0, "asked": 2, "answered": 1 + hit, "gathered": 2},
        **{"rate": 0.5 + hit / 2, "interval": 0},
    }


def test_options_reach_the_run(call, tmp_path):
    options = (
        "--lengths 2k,1K --depths 3 --needles 2 --trials 4 --variant uuid --strict --bar 0.5 "
        f"--gather 700 --seed 9 --method full --decode quest --threads 1 --out {tmp_path}/o "
        f"--haystack {tmp_path}"
    )
    _, asked = call(report(True, True), options)
    setup, wanted, _ = asked[0]
    assert wanted == niah.NeedleTest(
        lengths=(2000, 1024),
        depths=3,
        variant="uuid",
        needles=2,
        trials=4,
        strict=True,
        seed=9,
        haystack=tmp_path,
        bar=0.5,
        out=tmp_path / "o",
        how=How(gather=700),
    )
    assert (setup.method, setup.decode, setup.threads, setup.model) == ("full", "quest", 1, "tiny")


def test_defaults(call):
    _, asked = call(report(True, True))
    assert asked[0][1] == niah.NeedleTest((16_000,), 11)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--length 16q", "no whole number of tokens"),
        ("--length 1k --lengths 1k,2k", "Give one of them"),
        ("--length 50", "too short"),
        ("--depths 0", "0 depths"),
        ("--bar 1.5", "--bar"),
        ("--variant what", "no variant 'what'"),
        ("--model no-such-model", "no model"),
    ],
)
def test_wrong_usage_is_exit_code_2(options, message):
    result = CliRunner().invoke(app, f"niah {options}")
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_a_needle_out_of_the_gathered_text_fails(tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    options = "--length 600 --depths 1 --gather 40 --dtype fp32 --threads 1 --json"
    result = CliRunner().invoke(app, f"niah {options}")
    assert result.exit_code == 1
    assert "2 of 2 needles were NOT gathered whole" in result.stderr
    values = json.loads(result.stdout)
    assert (values["asked"], values["answered"], values["gathered"]) == (2, 0, 0)
    assert list(temporary.iterdir()) == []


def test_ctrl_c_is_exit_code_130_and_what_is_finished_stays(tmp_path, monkeypatch):
    def stop(*values):
        raise KeyboardInterrupt

    monkeypatch.setattr(niah, "ask", stop)
    options = f"--length 600 --depths 1 --dtype fp32 --threads 1 --out {tmp_path}/out"
    result = CliRunner().invoke(app, f"niah {options}")
    assert result.exit_code == 130
    assert (tmp_path / "out" / "settings.json").exists()


# --- what is shown meanwhile ---


def test_a_grid_fills_at_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with grids.live_grid("depth", ["16k"], ["0%", "100%"]) as grid:
        grid.add(0, 0, True)
        grid.add(0, 0, False)
        grid.tell("reading\x1b[31m")
    shown = capsys.readouterr()
    assert "50%" in shown.err
    assert "reading" in shown.err
    assert shown.out == ""


def test_elsewhere_a_line_comes_every_30_seconds(monkeypatch, capsys):
    now = iter([0, 10, 31, 32, 62])
    monkeypatch.setattr("longctx.cli.grids.time.monotonic", lambda: next(now))
    with grids.live_grid("depth", ["16k"], ["0%"]) as grid:
        for number in range(5):
            grid.tell(f"line {number}")
    assert capsys.readouterr().err == "line 2\nline 4\n"
