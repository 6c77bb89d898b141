"""Commands that people are told to run: pasted into a shell they run nothing else."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from longctx.cli import cautions, render
from longctx.core.common import pasting
from longctx.core.common.errors import LongctxError, StateMismatch
from longctx.core.ingest.append_plan import anew
from longctx.core.store.document import Document
from longctx.core.store.manifest import Manifest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there is no sh")

PLAIN = ["book", "a b", "a'b", 'a"b', "; touch x #", "$(touch x)", "`touch x`", "a&touch x&", "> x"]
PLAIN += ["|touch x", "x\\", "~", "*", "a!b", "a=b", "книга", "本", "é", "-rf", "--library=/x", "-"]
PLAIN += ["'; touch x; '", "${IFS}", "#", "-- -x", "a\\'; touch x #"]
CHANGED = ["book\x1b", "book\x1b'; touch x #", "\x1b[31m'", "a\nb", "a\n; touch x #", "a\ttouch x"]
CHANGED += [
    "\x9b1m; touch x",
    "a\u202eb",
    "a\u2028touch x",
    "a\udcffb",
    " a",
    "a ",
    "a  b",
    "a\xa0b",
]
CHANGED += ["", "a\x7fb", "a\rtouch x"]
FAKE = """#!/bin/sh
for word in "$@"; do printf '%s\\0' "$word"; done > "$ARGS"
"""


class Shell:
    """Runs what was printed as a shell does where it is pasted; `longctx` writes its words down."""

    def __init__(self, folder: Path):
        self.stood, self._args, own = folder / "stood", folder / "args", folder / "bin"
        own.mkdir()
        self.stood.mkdir()
        (own / "longctx").write_text(FAKE)
        (own / "longctx").chmod(0o755)
        path = f"{own}:{os.environ['PATH']}"
        self._env = {"PATH": path, "ARGS": str(self._args), "HOME": str(folder)}

    def words(self, line: str) -> list[str]:
        """The words that `longctx` got; nothing else may have run."""
        self._args.unlink(missing_ok=True)
        done = subprocess.run(
            ["sh", "-c", line], cwd=self.stood, env=self._env, capture_output=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), line
        assert os.listdir(self.stood) == [], line
        return self._args.read_bytes().decode().split("\0")[:-1]


@pytest.fixture(scope="module")
def shell(tmp_path_factory) -> Shell:
    return Shell(tmp_path_factory.mktemp("shell"))


def printed(capsys, name: str, what: str) -> str:
    """A remedy as it is printed, from its command on."""
    if what == "words":
        state = {"without_vectors": [], "counted_again": [name]}
        found = {"question": "", "passages": [{}], "found": "yes", "documents": [name]}
        cautions.warn_of_search({**found, "state": state})
        return re.search(r"`(longctx ingest .*)` writes it$", capsys.readouterr().err, re.S)[1]
    document = SimpleNamespace(manifest=SimpleNamespace(name=name))
    render.error(f"error: {LongctxError('x', 'y', f'Read everything anew: {anew(document)}')}")
    return capsys.readouterr().err.partition("anew: ")[2].rstrip("\n")


@pytest.mark.parametrize("name", PLAIN)
def test_a_name_is_one_word_and_runs_nothing(shell, capsys, name):
    given = [f"--name={name}"] if name.startswith("-") else ["--name", name]
    for what in ("words", "anew"):
        assert shell.words(printed(capsys, name, what)) == [
            *("ingest", "PATH...", *given, "--replace"),
        ]


@pytest.mark.parametrize("name", CHANGED, ids=ascii)
def test_a_name_that_is_not_shown_as_it_is_is_not_shown(shell, capsys, name):
    for what in ("words", "anew"):
        told = printed(capsys, name, what)
        assert shell.words(told) == ["ingest", "PATH...", "--name", "NAME", "--replace"]


@pytest.mark.parametrize("path", [*PLAIN, *CHANGED], ids=ascii)
def test_a_file_is_one_word_and_no_option(shell, path):
    here = "./" if path.startswith("-") else ""
    expected = "FILE" if path in CHANGED else here + path
    assert shell.words(f"longctx ingest {pasting.file(path)}") == ["ingest", expected]


def test_the_example_of_three_names(shell):
    names = ["book\x1b", "b", "; touch x #"]
    line = f"longctx ingest {pasting.files(names)} --replace"
    told = render.clean(line)
    assert pasting.files([]) == "FILE"
    assert shell.words(told) == ["ingest", "FILE", "b", "; touch x #", "--replace"]
    with pytest.raises(AssertionError):  # what was printed before
        shell.words(render.clean(f"longctx ingest {shlex.join(names)} --replace"))
    for left in shell.stood.iterdir():
        left.unlink()


def told_by(error: pytest.ExceptionInfo, capsys) -> str:
    """The last sentence of an error as it is printed."""
    render.error(f"error: {error.value}")
    told = capsys.readouterr().err.rstrip("\n")
    return told[told.rindex("longctx ingest") :] if "longctx ingest" in told else told


@pytest.mark.parametrize("name", [*PLAIN, *CHANGED], ids=ascii)
def test_a_document_of_another_format(shell, capsys, name):
    sources = [{"path": name}, {"path": "b"}, {"path": None}, {"path": "; touch x #"}]
    text = json.dumps({"format": 99, "sources": sources})
    with pytest.raises(StateMismatch) as error:
        Manifest.from_json(text, name)
    given = ["--name", "NAME"] if name in CHANGED else ["--name", name]
    given = [f"--name={name}"] if name.startswith("-") else given
    here = "./" if name.startswith("-") else ""
    file = "FILE" if name in CHANGED else here + name
    assert shell.words(told_by(error, capsys)) == [
        *("ingest", file, "b", "; touch x #", *given, "--replace"),
    ]


@pytest.mark.parametrize("name", [*PLAIN, *CHANGED], ids=ascii)
def test_a_document_of_another_model(shell, capsys, name):
    own = {"name": name, "config": "1", "tokenizer": "2", "weights": "3"}
    document = SimpleNamespace(manifest=SimpleNamespace(name="book", model=own))
    with pytest.raises(StateMismatch) as error:
        Document.require_model(document, {**own, "name": "tiny", "config": "0"})
    told = told_by(error, capsys)
    asked = told[told.index("Ask with ") :].removeprefix("Ask with ")
    given = ["--model", "NAME"] if name in CHANGED else ["--model", name]
    given = [f"--model={name}"] if name.startswith("-") else given
    line = f"longctx ask who {asked[: asked.rindex(', or ingest')]}"
    assert shell.words(line) == ["ask", "who", *given]
