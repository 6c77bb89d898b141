"""`verify --weights`: are the weights still those with which documents were read?"""

import json
import os
import shutil
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from longctx.cli.main import app
from longctx.core.engine.model_check import check
from longctx.core.ingest.ingest import ingest
from longctx.core.model import weights
from longctx.core.store.library import Library


@pytest.fixture
def model(model_folder, tmp_path):
    """A copy of the random model, with which two documents were read."""
    return shutil.copytree(model_folder, tmp_path / "model")


@pytest.fixture
def library(model, setup_random, tmp_path, monkeypatch):
    """A library of two documents, with a cache of digests of its own."""
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / "cache")
    (tmp_path / "a.txt").write_text("the keeper wrote in his book\n" * 4)
    for name in ("a", "b"):
        chosen = replace(setup_random, model=str(model))
        ingest(tmp_path / "library", [str(tmp_path / "a.txt")], chosen, name=name)
    return tmp_path / "library"


def verified(library, *more: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["verify", "--weights", "--library", str(library), *more])
    return result.exit_code, result.stdout


def spoil(model, monkeypatch) -> None:
    """Other weights that the cache of digests takes for the old ones, as on a disk that lies."""
    file = model / "model.safetensors"
    before = file.stat()
    with file.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"\x7f")
    cache = weights.cached_json("weights.json")
    after = file.stat()
    fields = ("st_size", "st_mtime_ns", "st_ino", "st_ctime_ns")
    old, new = (
        "|".join([str(file), *(str(getattr(s, f)) for f in fields)]) for s in (before, after)
    )
    cache[new] = cache[old]


def test_whole_weights(library, model):
    seen = []
    names = ("a", "b", "nothing")
    (found,) = check(Library.open(library), names, lambda done, total: seen.append((done, total)))
    size = (model / "model.safetensors").stat().st_size
    assert (found.name, found.documents) == (str(model), ("a", "b"))
    assert (found.status, found.bytes, found.error) == ("ok", size, None)
    assert seen[-1] == (size, size)
    code, out = verified(library)
    assert code == 0
    assert out.splitlines()[-1].startswith(f"model {model}: ok, ")


def test_other_weights_are_found_whatever_is_remembered(library, model, monkeypatch):
    spoil(model, monkeypatch)
    code, out = verified(library)
    assert code == 13
    told = f"model {model}: changed: its weights are not those that were recorded for a, b"
    assert out.splitlines() == [*out.splitlines()[:2], told]
    code, out = verified(library, "--json", "a")
    assert code == 13
    (found,) = json.loads(out)["models"]
    assert (found["status"], found["documents"]) == ("changed", ["a"])
    code, out = verified(library, "b")
    assert code == 13


def test_without_the_option_models_are_not_looked_at(library, model, monkeypatch):
    spoil(model, monkeypatch)
    result = CliRunner().invoke(app, ["verify", "--json", "--library", str(library)])
    assert result.exit_code == 0
    assert "models" not in json.loads(result.stdout)


@pytest.mark.parametrize("left", ["nothing", "no weights", "half"])
def test_a_model_that_is_not_there_is_said(library, model, left):
    if left == "nothing":
        shutil.rmtree(model)
    elif left == "no weights":
        (model / "model.safetensors").unlink()
    else:
        os.truncate(model / "model.safetensors", 100)
    code, out = verified(library)
    told = out.splitlines()[-1]
    if left == "half":
        assert code == 13
        assert told.startswith(f"model {model}: changed: ")
    else:
        assert code == 0
        assert told == f"model {model}: absent: it is not on this computer: not checked"
