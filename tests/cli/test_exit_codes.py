"""The one table of exit codes: in the docs, in the help, and what commands really end with."""

import re
from pathlib import Path

import pytest

from longctx.cli import interrupt, niah
from longctx.cli.exit_codes import EXIT_CODES
from longctx.cli.ingest import results
from longctx.cli.program import Interrupted, Terminated
from longctx.core.common import errors

ROOT = Path(__file__).parents[2]


def subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(subclasses, kind.__subclasses__()))


def table() -> dict[int, str]:
    """The rows of the docs: code -> meaning."""
    text = (ROOT / "docs/exit-codes.md").read_text("utf-8")
    return {int(code): told for code, told in re.findall(r"^\| (\d+) \| (.+?) \|", text, re.M)}


def test_the_table_in_the_docs_is_that_of_the_code():
    assert table() == EXIT_CODES


def test_every_code_that_the_code_has_is_in_the_table():
    ours = {kind for kind in subclasses(errors.LongctxError) if "longctx" in kind.__module__}
    assert {kind.exit_code for kind in ours} <= EXIT_CODES.keys()
    assert {niah.MISSED, results.PARTLY_READ, interrupt.INTERRUPTED, 0} <= EXIT_CODES.keys()
    raised = {kind.exit_code for kind in ours} | {0, 1, Interrupted.exit_code, Terminated.exit_code}
    assert raised == EXIT_CODES.keys()


def test_the_docstring_of_the_errors_agrees():
    told = dict(re.findall(r"(\w+) +(\d+) ", errors.__doc__))
    assert {name: getattr(errors, name).exit_code for name in told} == {
        name: int(code) for name, code in told.items()
    }


def test_help_and_readme_lead_to_it(longctx):
    shown = longctx("--help").stdout
    for code, meaning in EXIT_CODES.items():
        assert f"{code:3}  {meaning}" in shown
    assert "docs/exit-codes.md" in shown
    assert "(docs/exit-codes.md)" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("list",), 0),
        (("verify",), 0),
        (("gc",), 0),
        (("show", "book"), 0),
        (("rename", "book", "other"), 0),
        (("rm", "book", "--yes"), 0),
        (("rm", "book"), 2),
        (("rm", "nothing", "--yes"), 10),
        (("show", "nothing"), 10),
        (("show", "no/name"), 10),
        (("ask", "who?", "--doc", "nothing"), 10),
        (("find", "who?", "--doc", "nothing"), 10),
        (("ask",), 2),
        (("ask", "who?", "--bogus"), 2),
        (("ask", "who?", "--gather-by", "nothing"), 2),
        (("export", "book", "no/folder/book"), 2),
        (("import", "no-file"), 2),
        (("ingest", "no-file"), 2),
        (("ingest", "x", "--checkpoint", "often"), 2),
        (("ask", "who?", "--doc", "book", "--doc", "nothing"), 10),
        (("ask", "who?", "--doc", "book", "--all"), 2),
        (("find", "who?", "--all", "--max-docs", "0"), 2),
        (("calibrate",), 2),
        (("calibrate", "tiny", "--out", "heads.json"), 2),
        (("calibrate", "tiny", "--length", "often"), 2),
        (("profiles",), 0),
        (("eval",), 2),
        (("eval", "qa", "book", "no-file"), 2),
        (("nothing",), 2),
        ((), 2),
    ],
)
def test_what_commands_end_with(longctx, library, args, code):
    result = longctx(*args)
    assert result.exit_code == code, result.stderr


def test_no_library(longctx, tmp_path):
    for name in ("list", "verify", "gc"):
        assert longctx(name, "--library", tmp_path / "none").exit_code == 10


def test_damage(longctx, library):
    (library / "documents/book/manifest.json").write_text("{}")
    for args in (("show", "book"), ("ask", "who?"), ("find", "who?"), ("verify",)):
        expected = 0 if args == ("show", "book") else 13
        assert longctx(*args).exit_code == expected, args


def test_input_that_is_no_text(longctx, model_options, tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(range(256)) * 40)
    result = longctx("ingest", tmp_path / "a.bin", *model_options)
    assert result.exit_code == 3, result.stderr
