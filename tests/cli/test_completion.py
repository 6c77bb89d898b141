"""What shells are offered, through the variables by which they ask."""

import subprocess
import sys

import pytest

from longctx.core import methods
from longctx.core.decode import policies
from longctx.core.measure.calibrate.ranks import MEASURES
from longctx.core.profile.profile import shipped

SHELLS = ["bash", "zsh", "fish", "powershell"]


@pytest.fixture
def completed(longctx, monkeypatch):
    """What is printed for variables of a shell."""
    monkeypatch.setenv("COLUMNS", "80")  # put back afterwards

    def ask(**env: str) -> str:
        result = longctx(env=env, prog_name="longctx")
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    return ask


@pytest.fixture
def offered(completed):
    """The names that bash is offered for a command line whose last word is being typed."""

    def ask(line: str) -> list[str]:
        number = str(len(line.split(" ")) - 1)
        return completed(
            _LONGCTX_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=number
        ).split()

    return ask


@pytest.mark.parametrize(
    "line",
    [
        "show ",
        "rm ",
        "rename ",
        "export b",
        "verify ",
        "ask --doc ",
        "find who --doc bo",
        "ingest --append ",
        "find who --doc x --doc bo",
    ],
)
def test_documents(offered, library, line):
    assert offered(f"longctx {line}") == ["book"]


def test_documents_of_the_library_that_is_meant(offered, shelf, tmp_path, monkeypatch):
    monkeypatch.delenv("LONGCTX_LIBRARY")
    assert offered(f"longctx show --library {shelf} ") == ["book"]
    (tmp_path / "config.toml").write_text(f'library = "{shelf}"\n')
    assert offered("longctx show ") == ["book"]
    assert offered("longctx eval qa ") == ["book"]
    (tmp_path / "config.toml").write_text("no toml at all")
    assert offered("longctx show ") == []


def test_no_library_offers_nothing(offered):
    assert offered("longctx show ") == []


def test_names(offered):
    assert offered("longctx ingest x --method ") == methods.names()
    assert offered("longctx ask --decode ") == policies.names()
    assert offered("longctx ask --profile ") == sorted(p.name for p in shipped())
    assert offered("longctx ask --model t") == offered("longctx calibrate t") == ["tiny"]
    assert offered("longctx calibrate tiny --profile ti") == ["tiny"]
    assert offered("longctx calibrate tiny --rank-by m") == [*MEASURES]
    assert offered("longctx ask --method re") == ["reattention", "reform"]
    assert offered("longctx find --gather-by b") == ["bm25"]
    assert "--report" in offered("longctx --re")
    assert "ruler" in offered("longctx eval ")


@pytest.mark.parametrize("shell", ["zsh", "fish", "powershell"])
def test_other_shells(completed, library, shell):
    env = {
        "_LONGCTX_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "longctx show ",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    assert "book" in completed(**env)


def test_a_help_text_is_one_line(completed):
    env = {
        "_LONGCTX_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_ARGS": "longctx ask --",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    lines = completed(**env).splitlines()
    assert lines
    assert all(line.startswith("--") for line in lines)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_every_shell(completed, shell):
    assert "_LONGCTX_COMPLETE" in completed(_LONGCTX_COMPLETE=f"source_{shell}")


def test_it_can_be_installed(longctx):
    shown = longctx("--help").stdout
    assert "--install-completion" in shown
    assert "--show-completion" in shown


def test_no_model_library_is_imported():
    code = (
        "import os, sys, contextlib, io\n"
        "from longctx.cli.main import app\n"
        "os.environ.update(_LONGCTX_COMPLETE='complete_bash', COMP_CWORD='3')\n"
        "for line in ('ask --decode ', 'ask --doc ', 'ask --profile ', 'ingest --method '):\n"
        "    os.environ['COMP_WORDS'] = 'longctx ' + line\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "        app([])\n"
        "heavy = {'torch', 'transformers', 'numpy', 'tokenizers'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
