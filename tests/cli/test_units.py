"""A folder that changes, as a person keeps it up to date; `ingest --units` and `--no-units`."""

import json
import re
from pathlib import Path

import pytest

LINE = "the keeper wrote in his book that a boat came home at dawn\n"
pytestmark = pytest.mark.usefixtures("models_loaded_once")


@pytest.fixture
def code(tmp_path, monkeypatch) -> Path:
    """A folder of three files in the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / "code" / name).write_text(LINE * 5, "utf-8")
    return tmp_path / "code"


@pytest.fixture
def keep(longctx, model_options):
    """Runs `ingest code --name code` with more options."""

    def run(*more: object):
        return longctx("ingest", "code", "--name", "code", *model_options, *more)

    return run


def test_what_was_taken_over_and_what_is_gone_is_said(keep, longctx, code):
    assert keep().exit_code == 0
    (code / "a.py").write_text(LINE * 5 + "zebra oil\n", "utf-8")
    (code / "b.py").unlink()
    result = keep()
    assert result.exit_code == 0
    assert re.match(r"code: complete, .* 1 of 2 files as they were, ", result.stdout)
    assert result.stderr == "gone: code/b.py\n"
    found = longctx("find", "zebra oil", "--gather-by", "bm25")
    assert "code/a.py:6" in found.stdout
    assert json.loads(longctx("show", "code", "--json").stdout)["units"] == "source"


def test_json(keep, code):
    keep()
    (code / "d.py").write_text(LINE, "utf-8")
    (code / "c.py").unlink()
    told = json.loads(keep("--json").stdout)
    assert (told["sources"], told["reused_sources"], told["gone"]) == (3, 2, ["code/c.py"])
    assert 0 < told["reused_tokens"] < told["tokens"]


def test_a_changed_folder_that_is_one_text_says_that_there_is_another_way(keep, code):
    keep("--no-units")
    (code / "a.py").write_text(LINE, "utf-8")
    result = keep()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "code/a.py changed since" in result.stderr
    assert "--replace --units" in result.stderr


@pytest.mark.usefixtures("code")
@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("code", "--each"), "--units cannot be given with --each"),
        (("code/a.py", "--follow"), "--units cannot be given with --follow"),
        (("code/a.py", "--append", "code"), "--units cannot be given with --append"),
        (("code", "--method", "h2o"), "--units is not for the method 'h2o'"),
        (("code", "--keep-kv"), "--units is not for the method 'both'"),
    ],
)
def test_what_it_does_not_go_with(longctx, args, why):
    result = longctx("ingest", *args, "--units")
    assert (result.exit_code, result.stdout) == (2, "")
    assert why in result.stderr


def test_a_further_file_is_a_further_unit(keep, longctx, code, model_options):
    keep()
    (code.parent / "more.py").write_text("zebra oil\n", "utf-8")
    more = ("ingest", "--append", "code", "more.py", *model_options[:2])
    result = longctx(*more)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "more.py:1" in longctx("find", "zebra oil", "--gather-by", "bm25").stdout
    (code / "a.py").write_text("quagga\n", "utf-8")
    result = longctx("ingest", "--append", "code", "code/a.py", *model_options[:2])
    assert result.exit_code == 2
    assert "--no-units" in result.stderr


def test_files_and_an_option_say_one_text(longctx, code, model_options):
    for name, *how in (("files", "code/a.py", "code/b.py"), ("folder", "code", "--no-units")):
        assert longctx("ingest", *how, "--name", name, *model_options).exit_code == 0
        assert json.loads(longctx("show", name, "--json").stdout)["units"] == "document"


def test_a_plan(keep, code):
    told = json.loads(keep("--dry-run", "--json").stdout)
    done = json.loads(keep("--json").stdout)
    assert told["tokens"] == done["tokens"]
    assert told["sources"] == 3
