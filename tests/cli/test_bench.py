"""`longctx bench`: what it prints, where, and with which exit code."""

import json

import pytest

from longctx.core.measure.bench import ceilings
from longctx.core.measure.bench.ceilings import Ceilings
from longctx.core.measure.bench.shapes import SHAPES

FOUND = Ceilings(2e12, 1e12, {"flash": 1e12}, 1e10, None, None, 1e9, 1e9)


@pytest.fixture
def bench(longctx, model_options, monkeypatch):
    """Runs the command on the random model, with ceilings that take no time."""
    monkeypatch.setattr(ceilings, "measure", lambda *args: FOUND)
    more = (*model_options, "--device", "cpu")
    return lambda *options: longctx("bench", *_once(options), *more)


def _once(options):
    """The options, with one run where nothing else is said."""
    return options if {"--runs", "--at"} & {*options} else (*options, "--runs", "1")


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


def test_several_runs_as_a_table_and_as_json(bench, monkeypatch):
    asked = ("ingest", "--tokens", "100", "--no-save", "--baselines", "--runs", "2")
    shown = bench(*asked)
    assert shown.exit_code == 0, shown.stderr
    assert "seconds" in shown.stdout
    values = json.loads(bench(*asked, "--json").stdout)
    for row in (*values["readings"], *values["baselines"]):
        assert {*row["spread"]} == {"seconds", "tokens_per_s"}
        least, most = row["spread"]["seconds"]
        assert least == row["seconds"] <= most


def test_answering_as_a_table_and_as_json(bench):
    shown = bench("ask", "--tokens", "300", "--gather", "40")
    assert shown.exit_code == 0, shown.stderr
    rows = [line.split() for line in shown.stdout.splitlines()]
    for by in ("method", "hybrid"):
        assert ["reform", by, "300", "32/24", "warm"] in [row[:5] for row in rows]
    values = json.loads(bench("ask", "--tokens", "300", "--gather", "40", "--json").stdout)
    assert {answer["gathered"] for answer in values["answers"]} == {39}  # and the prefix's token


@pytest.fixture
def keeping(longctx, monkeypatch):
    """Runs the command on a toy shape with a method that keeps everything."""
    monkeypatch.setattr(ceilings, "measure", lambda *args: FOUND)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 4}
    toy = {**SHAPES["tiny"], **sizes, "vocab_size": 61, "max_position_embeddings": 512}
    monkeypatch.setitem(SHAPES, "toy", toy)
    common = ("--shapes", "toy", "--method", "reattention", "--device", "cpu", "--dtype", "fp32")
    return lambda what, *options: longctx("bench", what, *common, *_once(options))


def test_reading_with_everything_kept(keeping):
    sizes = ("--chunk", "128", "--chunk", "64", "--kv-dtype", "int8", "--baselines")
    result = keeping("ingest", "--tokens", "400", "--no-save", *sizes)
    assert result.exit_code == 0, result.stderr
    rows = [
        [word.strip() for word in line.split("  ") if word] for line in result.stdout.splitlines()
    ]
    assert ["keys and values", "int8"] in rows
    assert [row[:3] for row in rows if row and row[0] == "reattention, 1 layer"] == [
        ["reattention, 1 layer", "400", "128/all"],
        ["reattention, 1 layer", "400", "64/all"],
    ]
    assert [row[2] for row in rows if row and row[0].startswith("sinks")] == ["128/512", "64/512"]
    assert "reading 400 tokens, chunk 64, everything kept" in result.stderr


def test_chunks_over_a_filled_memory(keeping, monkeypatch):
    monkeypatch.setattr("longctx.core.measure.bench.stretches.CHUNKS", 2)
    places = ("--at", "600", "--at", "1k", "--chunk", "64")
    result = keeping("ingest", *places)
    assert result.exit_code == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[1] for row in rows if row and row[0] == "64"] == ["288", "600", "1,000"]
    assert result.stdout.splitlines()[-1].startswith("chunk 64: 1,000 tokens would take ")
    values = json.loads(keeping("ingest", *places, "--json").stdout)
    assert [s["after"] for s in values["curves"][0]["stretches"]] == [288, 600, 1000]


def test_answering_over_a_filled_memory(keeping):
    asked = ("ask", "--tokens", "600", "--no-save", "--gather", "40")
    shown = keeping(*asked)
    assert shown.exit_code == 0, shown.stderr
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert ["reattention", "method", "600", "256/all", "in", "memory"] in [row[:6] for row in rows]
    [answer] = json.loads(keeping(*asked, "--json").stdout)["answers"]
    assert (answer["cache"], answer["state_bytes"]) == ("in memory", None)


def test_decoding_as_a_table_and_as_json(bench):
    asked = ("decode", "--tokens", "300", "--tokens", "40", "--answer", "5", "--decode", "dense")
    shown = bench(*asked, "--baselines")
    assert shown.exit_code == 0, shown.stderr
    rows = [
        [word.strip() for word in line.split("  ") if word] for line in shown.stdout.splitlines()
    ]
    assert [row[:3] for row in rows if row and row[0] == "dense"] == [
        ["dense", "300", "5"],
        ["dense", "40", "5"],
    ]
    assert len([row for row in rows if row and row[0].startswith("generate of transf")]) == 4
    assert "decoding 5 tokens after 300 with dense" in shown.stderr
    values = json.loads(bench(*asked, "--json").stdout)
    assert [(d["name"], d["tokens"]) for d in values["decoded"]] == [("dense", 300), ("dense", 40)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("ingest --shapes llama-4", "unknown shape 'llama-4'. Known: llama-3.1-8b"),
        ("ingest --shapes tiny --tokens many", "'many' is no whole number of tokens"),
        ("ingest --shapes tiny --chunk 1k --chunk 2k --budget 1k", "2 times --chunk and 1 times"),
        ("ask --shapes tiny --no-save", "the method 'reform' cannot answer without a state"),
        ("ask --shapes tiny --baselines", "--baselines is for `bench ingest` and `bench decode`"),
        ("ingest --shapes tiny --at 1k --runs 3", "--at is not for --tokens, --baselines, --no-"),
        ("ask --shapes tiny --at 1k", "--at is for `bench ingest`"),
        ("decode --shapes tiny --at 1k", "--at is for `bench ingest`"),
        ("ask --shapes tiny --answer 5", "--decode and --answer are for `bench decode`"),
        ("ingest --shapes tiny --decode dense", "--decode and --answer are for `bench decode`"),
        ("decode --shapes tiny --method reattention", "not for `bench decode`: nothing is read"),
        ("decode --shapes tiny --no-save", "not for `bench decode`: nothing is read"),
        ("decode --shapes tiny --gather 40", "--gather is for `bench ask`"),
        ("decode --shapes tiny --decode other", "unknown decode policy 'other'. Known: dense"),
        ("ingest --shapes tiny --at 1k --tokens 1k", "--at is not for --tokens, --baselines"),
        ("ingest --shapes tiny --method full", "'full' cannot be measured here"),
        (
            "ingest --shapes tiny --method reattention --budget 1k",
            "--budget is not for this method",
        ),
        ("ingest --shapes tiny --kv-dtype int8", "--kv-dtype is not for the method 'reform'"),
        ("ingest --shapes tiny --device cpu --gpu-memory 24GB", "cannot limit the memory of the"),
        ("ingest --shapes tiny --gpu-memory much", "'--gpu-memory': 'much' is no size in bytes"),
        ("ingest --shapes tiny --profile tiny", "--profile needs --model"),
        ("ingest --shapes tiny --gather 40", "--gather is for `bench ask`"),
        ("dance", "'dance' is not one of"),
    ],
)
def test_wrong_usage(longctx, options, said):
    result = longctx("bench", *options.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
