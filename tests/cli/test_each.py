"""`ingest --each`: what failed is always told, and what was finished when Ctrl-C came."""

import json
import re
import signal
from types import SimpleNamespace

import pytest
from in_chunks import fail, in_chunk

from longctx.cli import render, run
from longctx.cli.ingest import observe
from longctx.cli.ingest.results import left_out, missing
from longctx.cli.ingest.stop import Stop
from longctx.cli.interrupt import ENDING
from longctx.cli.program import Interrupted
from longctx.cli.run import Run
from longctx.core.common.errors import LongctxError
from longctx.core.ingest.ingested import Ingested
from longctx.core.ingest.job import Job, Observer, Progress
from longctx.core.ingest.many import Each, read_each

LINE = b"the keeper wrote in his book that a boat came home at dawn\n"
DAMAGED = b"%PDF"
pytestmark = pytest.mark.usefixtures("models_loaded_once")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two files of text, of about 60 and 200 tokens, and a picture."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    path = tmp_path / "top"
    path.mkdir()
    (path / "a.md").write_bytes(LINE * 4)
    (path / "b.md").write_bytes(LINE * 16)
    (path / "0.png").write_bytes(b"\x89PNG\0")
    return path


@pytest.fixture
def each(longctx, model_options, folder):
    return lambda *options: longctx("ingest", "top", "--each", *model_options, *options)


def last(done) -> dict:
    """The last object that was printed, which is of all files; those before are of one each."""
    *each, of_all = map(json.loads, done.stdout.splitlines())
    told = [*of_all["documents"], *of_all["failed"]]
    assert sorted(map(str, told)) == sorted(str(strip(one)) for one in each)
    return of_all


def strip(one: dict) -> dict:
    del one["schema_version"]
    return one


# --- what failed ---


def test_quiet_hides_no_failure(each, folder, tmp_path):
    (folder / "c.pdf").write_bytes(DAMAGED)
    report = tmp_path / "report.json"
    quiet = each("-q", "--report", report)
    assert quiet.exit_code == 3
    assert re.fullmatch(r"failed: cannot read 'top/c\.pdf'.*\n", quiet.stderr)
    notes = json.loads(report.read_text())["notes"]
    assert [note for note in notes if note.startswith("failed: ")] == [quiet.stderr.rstrip("\n")]


def test_quiet_hides_nothing_that_is_missing_in_one_document(
    longctx, model_options, folder, tmp_path
):
    (folder / "c.pdf").write_bytes(DAMAGED)
    report = tmp_path / "report.json"
    quiet = longctx("ingest", "top", *model_options, "-q", "--report", report)
    assert quiet.exit_code == 3
    assert re.fullmatch(r"skipped: cannot read 'top/c\.pdf'.*\n", quiet.stderr)
    assert quiet.stderr.rstrip("\n") in json.loads(report.read_text())["notes"]
    planned = longctx("ingest", "top", *model_options, "-q", "--dry-run")
    assert (planned.exit_code, planned.stderr) == (3, quiet.stderr)


def test_quiet_hides_nothing_that_is_lost(capsys):
    current = run.start(Run(quiet=True))
    missing([], ["the end of 'a.gz'\x1b[31m"])
    left_out(["a picture"])
    assert capsys.readouterr().err == "lost: the end of 'a.gz'\n"
    assert current.notes == ["lost: the end of 'a.gz'", "left out: a picture"]


# --- Ctrl-C ---


def interrupt(monkeypatch, number: int) -> None:
    """Ctrl-C comes in this chunk."""
    in_chunk(monkeypatch, number, lambda: fail(KeyboardInterrupt()))


def test_ctrl_c_tells_what_was_finished(each, tmp_path):
    report = tmp_path / "report.json"
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, 5)
        stopped = each("--json", "--checkpoint", "1", "--report", report)
    assert stopped.exit_code == 130
    told = last(stopped)
    assert told["interrupted"] is True
    assert [(d["name"], d["status"]) for d in told["documents"]] == [("top-a.md", "complete")]
    assert (told["failed"], len(told["left_out"])) == ([], 1)
    error = json.loads(stopped.stderr.splitlines()[-1])["error"]
    assert error["code"] == 130
    assert re.search(r"\d+ tokens of top-b.md are kept; the same command goes", error["message"])
    reported = json.loads(report.read_text())
    assert (reported["result"], reported["exit_code"]) == (told, 130)
    done = last(each("--json"))
    assert done["interrupted"] is False
    assert [d["status"] for d in done["documents"]] == ["unchanged", "complete"]
    assert done["documents"][1]["reused_tokens"] > 0


def test_ctrl_c_tells_it_as_text_too(each, tmp_path, monkeypatch):
    interrupt(monkeypatch, 5)
    report = tmp_path / "report.json"
    stopped = each("--report", report)
    assert stopped.exit_code == 130
    assert stopped.stdout.startswith("top-a.md: complete, ")
    *_, told, error = stopped.stderr.splitlines()
    assert told.startswith("1 document, ")
    assert error == "error: interrupted. The same command starts top-b.md again."
    assert json.loads(report.read_text())["result"]["interrupted"] is True


def test_between_two_documents_nothing_is_said_of_the_one_before(each, monkeypatch):
    def before_the_second(*given):
        if given[-1] == "top-b.md":
            raise KeyboardInterrupt
        return real(*given)

    from longctx.core.ingest.many import read_sources as real

    monkeypatch.setattr("longctx.core.ingest.many.read_sources", before_the_second)
    error = each().stderr.splitlines()[-1]
    assert error == "error: interrupted. The same command goes on with it."


@pytest.mark.parametrize(
    ("how", "others", "cluster"),
    [
        ({}, False, False),
        ({"workers": 2}, True, False),
        ({"retry": 1}, True, False),
        ({"ray": "auto"}, True, True),
    ],
)
def test_what_other_processes_keep_is_not_guessed(capsys, how, others, cluster):
    """They save after this one has heard of them last; a cluster's get the time for it."""

    def ingest_each(*paths, on_progress, **given):
        on_progress(Progress(total=100, cache=0, processed=10, tokens=5, kept=0, time_ms=1), "a")
        raise KeyboardInterrupt

    stop, told = Stop(json=False), {"workers": None, "retry": 0, "ray": None, **how}
    assert stop.longer() == 0
    with pytest.raises(KeyboardInterrupt):
        observe.read_each(SimpleNamespace(ingest_each=ingest_each), ["a"], stop, False, **told)
    with pytest.raises(Interrupted) as left:
        stop.leave(130)
    said = "goes on from what is kept." if others else "starts a again."
    assert str(left.value) == f"interrupted. The same command {said}"
    capsys.readouterr()
    assert (stop.longer() > 60) is cluster
    assert ("the cluster saves what it has read" in capsys.readouterr().err) is cluster


def test_ctrl_c_that_a_long_computation_holds_up_tells_the_same(capsys, tmp_path):
    current = run.start(Run(json=True, report=tmp_path / "report.json"))
    stop = Stop(json=True)
    stop.many = Each(documents=[Ingested("a", "complete", 1, 2, 3)])
    code = stop.end(130)
    told = capsys.readouterr()
    assert (code, current.error["code"]) == (130, 130)
    values = json.loads(told.out)
    assert (values["interrupted"], values["documents"][0]["name"]) == (True, "a")
    assert json.loads((tmp_path / "report.json").read_text())["result"] == values


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_further_signals_do_not_cut_what_is_told(each, tmp_path, monkeypatch, number, code):
    def print_json(values: dict, *args: object) -> None:
        if "interrupted" in values:
            for again in ENDING:
                signal.raise_signal(again)
        real(values, *args)

    in_chunk(monkeypatch, 5, lambda: signal.raise_signal(number))
    real = render.print_json
    monkeypatch.setattr(render, "print_json", print_json)
    stopped = each("--json", "--report", tmp_path / "report.json")
    assert stopped.exit_code == code
    assert last(stopped)["interrupted"] is True
    assert json.loads(stopped.stderr.splitlines()[-1])["error"]["code"] == code
    reported = json.loads((tmp_path / "report.json").read_text())
    assert (reported["exit_code"], len(reported["result"]["documents"])) == (code, 1)


# --- what ends the run ---

DISK_FULL = [LongctxError("no room", "the disk is full", "Make room."), OSError(28, "No space")]


@pytest.mark.parametrize("error", DISK_FULL)
def test_an_error_that_ends_the_run_tells_what_was_finished(each, tmp_path, monkeypatch, error):
    in_chunk(monkeypatch, 5, lambda: fail(error))
    report = tmp_path / "report.json"
    ended = each("--json", "--report", report)
    assert ended.exit_code == 1
    told = last(ended)
    assert [document["name"] for document in told["documents"]] == ["top-a.md"]
    assert (told["interrupted"], len(told["left_out"])) == (False, 1)
    assert json.loads(ended.stderr.splitlines()[-1])["error"]["code"] == 1
    reported = json.loads(report.read_text())
    assert (reported["result"], reported["exit_code"]) == (told, 1)


def test_an_error_before_anything_was_done_is_all_that_is_told(each, tmp_path):
    ended = each("--json", "--max-size", "12", "--report", tmp_path / "report.json")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert json.loads((tmp_path / "report.json").read_text())["result"] is None


def test_what_is_done_is_known_while_others_are_read(folder, setup_random, tmp_path):
    result, seen = Each(), []

    def on_progress(progress, document: str) -> None:
        seen.append((document, len(result.documents)))

    library = tmp_path / "library"
    returned = read_each(
        Job(library, ["top"], setup_random), Observer(progress=on_progress), result=result
    )
    assert returned is result
    assert set(seen) == {("top-a.md", 0), ("top-b.md", 1)}


# --- several processes ---


@pytest.mark.slow
def test_workers_read_what_one_process_reads(each, folder):
    done = each("--workers", "2", "--threads", "1", "--json")
    assert done.exit_code == 0
    told = last(done)
    assert {document["name"] for document in told["documents"]} == {"top-a.md", "top-b.md"}
    assert last(each("--json"))["documents"][0]["status"] == "unchanged"


@pytest.mark.parametrize("options", [("--shard", "3/2"), ("--shard", "a"), ("--shard", "0/1")])
def test_a_shard_that_is_none(each, options):
    done = each(*options)
    assert done.exit_code == 2
    assert "cannot use the shard" in done.stderr


@pytest.mark.parametrize("option", ["--shard", "--retry", "--workers", "--ray"])
def test_what_is_about_many_documents(longctx, folder, option):
    done = longctx("ingest", "top", option, "2/2" if option == "--shard" else "2")
    assert done.exit_code == 2
    assert f"{option} needs --each" in done.stderr


@pytest.mark.parametrize(
    ("option", "value"), [("--devices", "all"), ("--max-memory", "40GB"), ("--device", "cuda:1")]
)
def test_devices_that_ray_chooses(longctx, folder, option, value):
    done = longctx("ingest", "top", "--each", "--ray", "auto", option, value)
    assert done.exit_code == 2
    assert re.search(rf"{option}( {value})? cannot be given with --ray", done.stderr)
