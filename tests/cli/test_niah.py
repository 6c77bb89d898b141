"""`longctx niah`: what it prints, where, and with which exit code."""

import json
import tempfile

import pytest
from typer.testing import CliRunner

from longctx.cli.main import app
from longctx.core import niah


def trial(kind: str, depth: float, answered: bool) -> niah.Trial:
    answer = "12345" if answered else "54321"
    return niah.Trial(kind, depth, 1007, "What?", "12345", answer, answered, True, {"total_s": 0.5})


def report(*answered: bool) -> niah.Report:
    kinds = ("passkey", "number")
    trials = [trial(kinds[number % 2], number // 2, hit) for number, hit in enumerate(answered)]
    places = sorted({trial.depth for trial in trials})
    return niah.Report(1024, places, trials, 1234.5, "tiny", "reform", 3)


@pytest.fixture
def call(monkeypatch):
    """Runs the command on a given report; returns the result and what core was asked for."""
    asked = []

    def run(found: niah.Report, options: str = ""):
        monkeypatch.setattr(niah, "run", lambda *values: asked.append(values) or found)
        return CliRunner().invoke(app, f"niah {options}"), asked

    return run


def test_table_and_exit_code_0(call):
    result, _ = call(report(True, True, True, True), "--length 1K")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["kind", "depth", "token", "expected", "answer", "answered", "gathered"]
    assert rows[1] == ["passkey", "0.00", "1,007", "12345", "12345", "yes", "yes"]
    assert [row[0] for row in rows[1:5]] == ["passkey", "passkey", "number", "number"]
    assert "1K = 1,024 tokens" in result.stdout
    assert "2 of 2 answered, 2 of 2 gathered" in result.stdout


def test_a_missed_cell_is_exit_code_1(call):
    result, _ = call(report(True, True, False, True))
    assert result.exit_code == 1
    assert "1 of 2 answered, 2 of 2 gathered" in result.stdout
    assert ["passkey", "1.00", "1,007", "12345", "54321", "NO", "yes"] in [
        line.split() for line in result.stdout.splitlines()
    ]


@pytest.mark.parametrize(("hit", "code"), [(True, 0), (False, 1)])
def test_json_is_one_object(call, hit, code):
    result, _ = call(report(True, hit), "--json")
    assert result.exit_code == code
    values = json.loads(result.stdout)
    assert values["schema_version"] == 1
    assert (values["length"], values["depths"], values["seed"]) == (1024, [0.0], 3)
    assert values["answered"] == {"passkey": [1, 1], "number": [int(hit), 1]}
    assert values["gathered"] == {"passkey": [1, 1], "number": [1, 1]}
    assert values["trials"][1]["expected"] == "12345"
    assert set(values["trials"][0]) == {
        "kind",
        "depth",
        "token",
        "question",
        "expected",
        "answer",
        "answered",
        "gathered",
        "timings",
    }
    assert (values["model"], values["method"], values["tokens_per_s"]) == ("tiny", "reform", 1234.5)


def test_options_reach_the_run(call):
    options = "--length 2k --depths 3 --gather 700 --seed 9 --method full --threads 1"
    _, asked = call(report(True, True), options)
    setup, *values = asked[0]
    assert values[:4] == [2000, 3, 700, 9]
    assert (setup.method, setup.threads, setup.model) == ("full", 1, None)


def test_defaults(call):
    _, asked = call(report(True, True))
    assert list(asked[0][1:5]) == [16_000, 5, None, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--length 16q", "no whole number of tokens"),
        ("--length 50", "too short"),
        ("--depths 0", "0 depths"),
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
    options = "--length 600 --depths 1 --gather 40 --dtype fp32 --json"
    result = CliRunner().invoke(app, f"niah {options}")
    assert result.exit_code == 1
    assert "depth 0.50 of 600 tokens" in result.stderr
    values = json.loads(result.stdout)
    assert values["gathered"] == {"passkey": [0, 1], "number": [0, 1]}
    assert values["answered"] == {"passkey": [0, 1], "number": [0, 1]}
    assert list(temporary.iterdir()) == []
