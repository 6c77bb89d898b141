"""`longctx bench`: what it prints, where, and with which exit code."""

import json

import pytest

from longctx.core.bench import ceilings
from longctx.core.bench.ceilings import Ceilings

FOUND = Ceilings(2e12, 1e12, {"flash": 1e12}, 1e10, None, None, 1e9, 1e9)


@pytest.fixture
def bench(longctx, model_options, monkeypatch):
    """Runs the command on the random model, with ceilings that take no time."""
    monkeypatch.setattr(ceilings, "measure", lambda *args: FOUND)
    return lambda *options: longctx("bench", *options, *model_options, "--device", "cpu")


def test_reading_as_a_table(bench):
    result = bench("ingest", "--tokens", "100", "--tokens", "200", "--baselines")
    assert result.exit_code == 0, result.stderr
    lines = [line.split("  ") for line in result.stdout.splitlines()]
    assert ["matrix product", "2 TFLOP/s"] in [[w.strip() for w in words if w] for words in lines]
    rows = [[word.strip() for word in words if word] for words in lines]
    assert [row[:3] for row in rows if row and row[0] == "reform, 2 layers"] == [
        ["reform, 2 layers", "100", "32/24"],
        ["reform, 2 layers", "200", "32/24"],
    ]
    assert [row[1:3] for row in rows if row and row[0] == "transformers, full attention"] == [
        ["100", "all/all"]
    ]
    assert rows[-1][0].startswith("chunk 32, cache 24: 2 times the tokens take ")
    assert "reading 200 tokens, chunk 32, budget 24" in result.stderr


def test_reading_as_json(bench):
    sizes = ("--chunk", "64", "--budget", "32", "--chunk", "16")
    result = bench("ingest", "--tokens", "100", "--no-save", "--json", *sizes, "--budget", "64")
    values = json.loads(result.stdout)
    assert [(r["chunk"], r["budget"]) for r in values["readings"]] == [(64, 32), (16, 64)]
    assert [r["state_bytes"] for r in values["readings"]] == [None, None]


def test_answering_as_a_table_and_as_json(bench):
    shown = bench("ask", "--tokens", "300", "--gather", "40")
    assert shown.exit_code == 0, shown.stderr
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert ["300", "32/24", "warm"] in [row[:3] for row in rows]
    values = json.loads(bench("ask", "--tokens", "300", "--gather", "40", "--json").stdout)
    assert {answer["gathered"] for answer in values["answers"]} == {39}  # and the prefix's token


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("ingest --shapes llama-4", "unknown shape 'llama-4'. Known: llama-3.1-8b"),
        ("ingest --shapes tiny --tokens many", "cannot use 'many'"),
        ("ingest --shapes tiny --chunk 1k --chunk 2k --budget 1k", "2 times --chunk and 1 times"),
        ("ask --shapes tiny --no-save", "--no-save and --baselines are for `bench ingest`"),
        ("ingest --shapes tiny --profile tiny", "--profile needs --model"),
        ("ingest --shapes tiny --gather 40", "--gather is for `bench ask`"),
        ("dance", "'dance' is not one of"),
    ],
)
def test_wrong_usage(longctx, options, said):
    result = longctx("bench", *options.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
