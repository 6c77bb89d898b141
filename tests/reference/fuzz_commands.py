"""Documents that lie, through the real commands in this process; and what must come of it."""

import io
import json
import random
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

import fuzz_changes as changes
from fuzz_library import QUERY, Case, Shelf
from fuzz_manifests import manifest_case
from fuzz_tensors import tensor_case

from longctx.cli.exit_codes import EXIT_CODES
from longctx.cli.main import app
from longctx.cli.run import current
from longctx.cli.text import clean

Made = tuple[Case, list[str]]  # what is put in the place of what, and the command

COMPUTE = ["--device", "cpu", "--dtype", "fp32", "--threads", "1"]
WORDS = [QUERY, "code", '"a map"', "карта", "nothing of the kind"]


def command_case(shelf: Shelf, rng: random.Random, name: str) -> Made:
    """A command, and a document that it is given."""
    case = (tensor_case if rng.random() < 0.6 else manifest_case)(shelf, rng)
    document = next(iter(case)).split("/")[1]
    words = {"ask": _ask, "find": _find, "list": _list, "verify": _verify}[name](rng, document)
    if rng.random() < 0.5:
        words.append("--json")
    return case, [*words, "--library", str(shelf.library)]


def _ask(rng: random.Random, document: str) -> list[str]:
    words = ["ask", "What is the code?", "--max-new-tokens", "2", *COMPUTE, *_given(rng, document)]
    if changes.seldom(rng, 4):
        words += ["--temperature", "0.7", "--top-p", "0.9", "--seed", "1"]
    if document == "kept" and rng.random() < 0.5:
        words += ["--gather-by", rng.choice(["bm25", "method"])]
    return words


def _find(rng: random.Random, document: str) -> list[str]:
    words = ["find", rng.choice(WORDS), "-k", "3", *_given(rng, document)]
    if rng.random() < 0.6:
        words += ["--gather-by", "bm25"]
    else:
        words += COMPUTE
    return words + rng.choice([[], [], ["-C", "2"], ["-l"], ["-e", "a|b"]])


def _given(rng: random.Random, document: str) -> list[str]:
    """Which document, and mostly with which model: a manifest may name any."""
    words = ["--all"] if changes.seldom(rng, 8) else ["--doc", document]
    if changes.seldom(rng, 4):
        words += ["--doc", "kept"] if words[0] == "--doc" else []
    if document == "begun" and rng.random() < 0.9:
        words.append("--partial")
    return words + (["--model", "tiny"] if rng.random() < 0.7 else [])


def _list(rng: random.Random, document: str) -> list[str]:
    return ["show", document] if changes.seldom(rng, 4) else ["list"]


def _verify(rng: random.Random, document: str) -> list[str]:
    return ["verify", document] if rng.random() < 0.7 else ["verify"]


def run_case(shelf: Shelf, made: Made) -> None:
    """Runs a command: a documented exit code, no fault of ours, and nothing that steers a terminal.

    Raises:
        AssertionError: it is otherwise.
    """
    case, words = made
    with shelf.with_case(case):
        code, out, err = run(words)
    assert code in EXIT_CODES, f"exit code {code}"
    assert "fault of longctx" not in err, err
    assert "Traceback" not in err, err
    assert not current().warnings, current().warnings
    for text in (out, err):
        assert clean(text) == text, repr(text)
    if "--json" in words and code == 0:
        for line in out.splitlines():
            assert isinstance(json.loads(line), dict)


def run(words: list[str]) -> tuple[int, str, str]:
    """A command's exit code, what it prints, and what it says beside."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err), mock.patch.object(sys, "stdin", io.StringIO()):
        try:
            app(words)
        except SystemExit as left:
            code = left.code or 0
    return code, out.getvalue(), err.getvalue()
