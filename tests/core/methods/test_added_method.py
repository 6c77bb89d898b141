"""A method is one file: a toy one in a folder of its own meets the contract and the commands."""

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import pytest
from method_contract import QUESTION, Reading
from typer.testing import CliRunner

from longctx.cli.main import app
from longctx.core import methods

TOY = Path(__file__).parents[2] / "reference" / "toy_method.py"
pytestmark = pytest.mark.usefixtures("models_loaded_once")


@pytest.fixture
def toy(tmp_path, monkeypatch) -> str:
    """The name of a method whose file lies in another folder."""
    folder = tmp_path / "methods"
    folder.mkdir()
    shutil.copy(TOY, folder / "toy.py")
    monkeypatch.setattr("os.fsync", lambda handle: None)
    methods.__path__.append(str(folder))
    yield "toy"
    methods.__path__.remove(str(folder))
    sys.modules.pop(f"{methods.__name__}.toy", None)


@pytest.fixture
def profile(tmp_path, setup_random) -> str:
    """With an entry for it."""
    path = tmp_path / "toy.yaml"
    path.write_text(Path(setup_random.profile).read_text() + "  toy: {chunk: 16, budget: 48}\n")
    return str(path)


def test_it_meets_the_contract(tmp_path, setup_random, toy, profile):
    assert toy in methods.names()
    reading = Reading(tmp_path, dataclasses.replace(setup_random, profile=profile), toy)
    reading.stops_and_goes_on()
    reading.appends()
    reading.is_as_planned()
    reading.is_full_attention_inside()
    assert reading.asked()["state"]["method"] == toy


def test_commands_take_it(tmp_path, monkeypatch, model_folder, toy, profile):
    monkeypatch.setenv("LONGCTX_LIBRARY", str(tmp_path / "library"))
    monkeypatch.setenv("LONGCTX_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").touch()
    book = tmp_path / "book.txt"
    book.write_text("the keeper wrote in his book that a boat came home\n" * 20)
    options = ("--model", str(model_folder), "--profile", profile, "--json")

    def run(*args: object) -> dict:
        done = CliRunner().invoke(app, [*map(str, args), *options])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    read = run("ingest", book, "--method", toy)
    answer = run("ask", QUESTION, "--max-new-tokens", "3")
    assert answer["state"]["method"] == toy
    assert answer["tokens"]["answer"] == 3
    assert 0 < answer["tokens"]["gathered"] < read["tokens"]
    shown = CliRunner().invoke(app, ["ingest", str(book), "--method", "toys"])
    assert shown.exit_code == 2
    assert "streaming, tova, toy, truncate" in " ".join(shown.output.split())
