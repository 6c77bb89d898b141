"""`ingest`: its result, its notes and its progress."""

import io
import json
import re
import sys
from types import SimpleNamespace

import pytest

from longctx.cli import progress
from longctx.core.ingest.job import Progress
from longctx.core.ingest.plan import Estimate

TEXT = "the keeper wrote in his book that a boat came home at dawn\n" * 20
pytestmark = pytest.mark.usefixtures("models_loaded_once")


@pytest.fixture
def reading(longctx, model_options, tmp_path):
    """Writes files and runs `ingest` on them with the random model."""

    def run(files: dict[str, bytes], *args: object, **more: object):
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)
        return longctx(
            "ingest", *(tmp_path / name for name in files), *model_options, *args, **more
        )

    return run


def names(longctx) -> list[str]:
    return [d["name"] for d in json.loads(longctx("list", "--json").stdout)["documents"]]


def test_the_result_is_one_line(reading, longctx):
    result = reading({"book.txt": TEXT.encode()})
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.fullmatch(r"book: complete, \d+ tokens, state .*tokens/s\)\n", result.stdout)
    assert names(longctx) == ["book"]


def test_json(reading):
    result = reading({"book.txt": TEXT.encode()}, "--name", "novel", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    values = json.loads(result.stdout)
    assert (values["schema_version"], values["name"]) == (1, "novel")
    assert (values["status"], values["bytes"]) == ("complete", len(TEXT))


def test_stdin(longctx, model_options):
    result = longctx("ingest", "-", *model_options, input=TEXT)
    assert result.stdout.startswith("stdin: complete, ")


def test_the_same_again_is_unchanged_and_other_text_is_refused(reading, longctx):
    reading({"book.txt": TEXT.encode()})
    again = reading({"book.txt": TEXT.encode()})
    assert again.exit_code == 0
    assert re.fullmatch(r"book: unchanged, \d+ tokens, state [^,]*\n", again.stdout)
    other = reading({"book.txt": TEXT.encode() * 2})
    assert (other.exit_code, other.stdout) == (2, "")
    assert "--replace" in other.stderr
    assert reading({"book.txt": TEXT.encode() * 2}, "--replace").exit_code == 0


def test_what_cannot_be_read_is_named_and_is_3(reading, longctx):
    files = {"book.txt": TEXT.encode(), "photo.png": b"\x89PNG\0\0", "empty.txt": b""}
    result = reading(files)
    assert result.exit_code == 3
    assert result.stdout.startswith("book: complete, ")
    assert re.findall(r"^skipped: .*(photo\.png|empty\.txt)", result.stderr, re.MULTILINE)
    assert names(longctx) == ["book"]


def test_undecodable_text_is_counted(reading):
    result = reading({"book.txt": TEXT.encode() * 3 + b"\xff\xfe caf\xe9\n"})
    assert result.exit_code == 0
    assert re.search(r"^\d undecodable places are read as U\+FFFD", result.stderr)


@pytest.mark.parametrize(
    ("files", "args", "code", "said"),
    [
        ({}, ["none.txt"], 2, "none.txt"),
        ({"empty.txt": b""}, [], 3, "empty"),
        ({"photo.png": b"\x89PNG\0\0"}, [], 3, "binary"),
        ({"a.txt": b"text\n"}, ["--method", "magic"], 2, "magic"),
        ({"a.txt": b"text\n"}, ["--name", "a/b"], 2, "a/b"),
        ({"a.txt": b"text\n"}, ["--profile", "none.yaml"], 2, "none.yaml"),
        ({"a.txt": b"text\n"}, ["--model", "none"], 2, "'none'"),
    ],
)
def test_mistakes_leave_no_document(reading, longctx, tmp_path, files, args, code, said):
    result = reading(files, *args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert not list(tmp_path.glob("library/documents/*"))


def test_a_library_that_cannot_be_written(reading, tmp_path):
    result = reading({"a.txt": TEXT.encode()}, "--library", tmp_path / "a.txt")
    assert result.exit_code in (1, 2)
    assert "a.txt" in result.stderr


@pytest.mark.parametrize("fits", [True, False])
def test_dry_run(reading, monkeypatch, tmp_path, fits):
    room = {"free_disk_bytes": 7_000_000, "free_memory_bytes": None, "fits": fits}
    room |= {"host_bytes": 9_000_000_000 * fits, "free_host_bytes": 10_000_000_000}
    planned = Estimate(
        **{"name": "a", "tokens": 1234, "bytes": 5000, "disk_bytes": 6_000_000, "seconds": 7.5},
        **{"peak_memory_bytes": 8_000_000_000, "tokens_per_s": 164.5, "method": "reform"},
        **{"device": "cpu", "dtype": "fp32", **room},
    )
    monkeypatch.setattr("longctx.core.ingest.plan.plan", lambda *args: planned)
    result = reading({"a.txt": TEXT.encode()}, "--dry-run")
    assert (result.exit_code, result.stderr) == (0 if fits else 1, "")
    shown = dict(re.split(r"  +", line, maxsplit=1) for line in result.stdout.splitlines())
    assert shown["disk"] == "6.0 MB, 7.0 MB free"
    assert shown["peak memory"] == "8.0 GB, unknown free"
    assert shown.get("host memory") == ("9.0 GB, 10.0 GB free" if fits else None)
    assert shown["time"].startswith("7.5 s")
    assert shown["fits"] == ("yes" if fits else "no")
    told = reading({"a.txt": TEXT.encode()}, "--dry-run", "--json")
    assert json.loads(told.stdout) == planned.as_dict()
    assert not (tmp_path / "library").exists()


# --- progress ---


class Terminal(io.StringIO):
    """A standard error that somebody looks at."""

    def isatty(self) -> bool:
        return True


def states(total: int | None, step_ms: int) -> list[Progress]:
    return [Progress(total, 0, 250 * i, 100 * i, 0, step_ms * i) for i in range(1, 5)]


def test_elsewhere_than_at_a_terminal_there_is_a_line_every_30_seconds(capsys):
    with progress.reading() as tell:
        for state in states(1000, 20_000):
            tell(state)
    assert capsys.readouterr().err.splitlines() == [
        "200 tokens, 5 tokens/s, 40.0 s left",
        "400 tokens, 5 tokens/s, 0.0 s left",
    ]


@pytest.mark.parametrize("total", [1000, None])
def test_a_bar_at_a_terminal(monkeypatch, total):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    with progress.reading() as tell:
        for state in states(total, 1000):
            tell(state)
    shown = sys.stderr.getvalue()
    assert "400 tokens, 100 tokens/s" in shown
    assert ("0.0 s left" in shown) == (total is not None)
    assert not re.search(r"\x1b\[[\d;]*m", shown), "colour in spite of NO_COLOR"


# --- append and follow ---


def test_appending(reading, longctx, tmp_path, model_options):
    reading({"app.log": TEXT.encode()})
    (tmp_path / "app.log").write_text(TEXT + "and the rain came\n")
    (tmp_path / "more.txt").write_text("salt and news\n" * 9)
    files = tmp_path / "app.log", tmp_path / "more.txt"
    result = longctx("ingest", "--append", "app", *files, *model_options[:2])
    assert (result.exit_code, result.stderr) == (0, "")
    told = r"app: complete, \d+ tokens from 2 files, .*of them from an earlier run"
    assert re.match(told, result.stdout)
    told = json.loads(longctx("ingest", "--append", "app", files[1], "--json").stdout)
    assert (told["status"], told["bytes"]) == ("unchanged", len(TEXT) + 18 + 14 * 9)
    shown = json.loads(longctx("show", "app", "--json").stdout)
    assert [source["size"] for source in shown["sources"]] == [len(TEXT) + 18, 14 * 9]


def test_what_cannot_be_appended(reading, longctx, tmp_path, model_options):
    reading({"app.log": TEXT.encode()})
    (tmp_path / "app.log").write_text("rotated\n")
    result = longctx("ingest", "--append", "app", tmp_path / "app.log")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--name app --replace" in result.stderr
    assert longctx("ingest", "--append", "none", tmp_path / "app.log").exit_code == 10


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--append", "app", "--replace"], "--replace cannot be given with --append"),
        (["--append", "app", "--method", "full"], "--method cannot be given with --append"),
        (["--append", "app", "--name", "b"], "--name cannot be given with --append"),
        (["--follow", "--dry-run"], "--dry-run cannot be given with --follow"),
        (["--follow", "-"], "cannot follow standard input"),
        (["--append", "app", "--each"], "--each cannot be given with --append"),
        (["--follow", "--each"], "--each cannot be given with --follow"),
        (["--follow", "."], "cannot follow '.': it is a folder"),
    ],
)
def test_options_that_contradict(longctx, tmp_path, args, said):
    (tmp_path / "app.log").write_text(TEXT)
    result = longctx("ingest", tmp_path / "app.log", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert not (tmp_path / "library").exists()


def test_settings_of_the_environment_do_not_hinder_appending(reading, longctx, tmp_path):
    reading({"app.log": TEXT.encode()})
    (tmp_path / "app.log").write_text(TEXT * 2)
    result = longctx(
        "ingest", "--append", "app", tmp_path / "app.log", env={"LONGCTX_METHOD": "full"}
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(longctx("show", "app", "--json").stdout)["method"] == "reform"


@pytest.mark.parametrize("as_json", [True, False])
def test_following_ends_with_ctrl_c_and_0(reading, monkeypatch, tmp_path, as_json):
    def wait(seconds: float) -> None:
        size = (tmp_path / "app.log").stat().st_size
        if size > len(TEXT):
            raise KeyboardInterrupt
        (tmp_path / "app.log").write_text(TEXT * 2)

    monkeypatch.setattr("longctx.core.ingest.follow.time", SimpleNamespace(sleep=wait))
    result = reading({"app.log": TEXT.encode()}, "--follow", *(["--json"] if as_json else []))
    assert result.exit_code == 0
    assert len(re.findall("^app: complete, ", result.stderr, re.MULTILINE)) == 2
    if as_json:
        assert json.loads(result.stdout)["bytes"] == 2 * len(TEXT)
    else:
        assert re.fullmatch(r"app: complete, \d+ tokens, .*\n", result.stdout)


def test_ctrl_c_before_anything_is_whole_is_an_error(reading, monkeypatch):
    def interrupt(*args, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr("longctx.core.ingest.follow.read", interrupt)
    result = reading({"app.log": TEXT.encode()}, "--follow")
    assert result.exit_code == 130
    assert "interrupted" in result.stderr


def test_to_follow_for_a_document_there_must_be_one(longctx, tmp_path):
    log = tmp_path / "a.log"
    log.write_text("a line\n")
    result = longctx("ingest", "--append", "nosuch", log, "--follow")
    assert result.exit_code == 10
    assert "error: no " in result.stderr
