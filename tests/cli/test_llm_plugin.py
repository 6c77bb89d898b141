"""The plugin of `llm`: passages of documents as fragments, in the real program."""

import os
import tomllib
from pathlib import Path

import preloaded
import pytest

ROOT = Path(__file__).parents[2]
# The plugin by its entry point in pyproject.toml, and a model that answers with its prompt.
PROGRAM = """
import sys
from importlib.metadata import EntryPoint

import llm
from llm.cli import cli
from llm.plugins import load_plugins, pm

load_plugins()  # its own alone: LLM_LOAD_PLUGINS is empty
pm.register(EntryPoint("longctx", sys.argv.pop(1), "llm").load(), "longctx")


class Echo(llm.Model):
    model_id = "echo"

    def execute(self, prompt, stream, response, conversation):
        yield prompt.prompt


class Models:
    @llm.hookimpl
    def register_models(register):
        register(Echo())


pm.register(Models)
cli()
"""


@pytest.fixture
def run_llm(tmp_path, library):
    """f(*arguments): `llm`, with the plugin as it is declared, over a copy of the shelf."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = project["entry-points"]["llm"]["longctx"]
    home = {"LLM_USER_PATH": str(tmp_path / "llm"), "LONGCTX_LIBRARY": str(library)}
    environment = {**os.environ, **home, "LLM_LOAD_PLUGINS": ""}

    def run(*arguments):
        argv = f"import sys\nsys.argv = {['llm', declared, *arguments]!r}\n"
        return preloaded.run([], 300, env=environment, before=argv + PROGRAM)

    return run


def ask(run_llm, *fragments):
    named = [word for fragment in fragments for word in ("-f", fragment)]
    return run_llm("prompt", "-m", "echo", "--no-stream", *named, "Who wrote?")


def test_it_is_a_loader_with_a_description(run_llm):
    shown = run_llm("fragments", "loaders").stdout
    assert "longctx:" in shown
    assert "longctx:NAME#QUESTION" in shown


def test_passages_come_with_their_places(run_llm):
    result = ask(run_llm, "longctx:book#a boat came home at dawn", "longctx:#news of rain")
    assert result.returncode == 0, result.stderr
    heads = [line for line in result.stdout.splitlines() if line.startswith("[")]
    assert len(heads) >= 2
    assert all("book.txt:" in head for head in heads)
    assert "that a boat[/red] came home at dawn" in result.stdout
    assert result.stdout.rstrip().endswith("Who wrote?")
    assert result.stderr == ""
    kept = run_llm("fragments", "list").stdout
    assert kept.count("source: longctx:book/") == len({*heads})


def test_a_short_document_is_given_whole(run_llm):
    result = ask(run_llm, "longctx:book")
    assert result.stdout.count("the keeper wrote in his book") == 6


def test_what_fails_is_told_with_its_remedy(run_llm):
    result = ask(run_llm, "longctx:cook#who?")
    assert result.returncode == 1
    assert "Could not load fragment longctx:cook#who?: no document 'cook'" in result.stderr
    assert "longctx list" in result.stderr


def test_a_long_document_is_not_given_whole(monkeypatch, library):
    pytest.importorskip("llm", exc_type=ImportError)
    from longctx.cli import llm_plugin
    from longctx.core.common.errors import UsageError

    monkeypatch.setattr(llm_plugin, "WHOLE", 100)
    with pytest.raises(UsageError, match=r"too long to be given whole.*longctx:book#QUESTION"):
        llm_plugin.load("book")
