"""`ask --text`: a text that is read, asked and not kept; and standard input that nobody names."""

import json
import os
import signal
import subprocess
import tempfile
import time

import pytest
from filelock import FileLock
from preloaded import Process, run

from longctx.cli import given_text, temporary_folders

QUESTION = "who wrote of the boat?"
NOTES = "a boat came home at dawn\nthe keeper wrote in his book of the boat\nsalt and rain\n"
NO_PIPES = pytest.mark.skipif(os.name == "nt", reason="Windows does not say what a pipe holds")


@pytest.fixture(autouse=True)
def passing(tmp_path, monkeypatch):
    """The system's folder for temporary files."""
    folder = tmp_path / "passing"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def asking(longctx, model_options, models_loaded_once):
    """Runs `ask` with the random model."""
    return lambda *args, **more: longctx("ask", *args, *model_options, **more)


@pytest.mark.parametrize("json_too", [False, True])
def test_what_comes_in_is_read_and_asked_and_not_kept(asking, passing, tmp_path, json_too):
    options = ["--json"] if json_too else []
    result = asking(QUESTION, "--text", "-", *options, input=NOTES)
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("stdin: complete, ")
    if json_too:
        told = json.loads(result.stdout)
        assert told["documents"] == ["stdin"]
        assert told["passages"][0]["text"] in NOTES
    else:
        assert 'stdin:2: "the keeper wrote in his book of the boat"' in result.stdout
    assert not [*passing.iterdir()]
    assert not (tmp_path / "library").exists()
    assert not (tmp_path / "state").exists()


def test_it_is_read_as_a_document_is(asking, longctx, model_options, tmp_path):
    (tmp_path / "notes.txt").write_text(NOTES, "utf-8")
    (tmp_path / "more.txt").write_text("news of rain\n" * 9, "utf-8")
    files = [tmp_path / "notes.txt", tmp_path / "more.txt"]
    longctx("ingest", *files, "--name", "both", *model_options)
    texts = [word for file in files for word in ("--text", file)]
    told = [
        json.loads(asking(QUESTION, "--json", *which).stdout)
        for which in (["--doc", "both"], texts)
    ]
    for value in told:
        del value["timings"], value["tokens_per_s"], value["documents"]
        for place in (value["sentence"], *value["passages"]):
            del place["document"]
    assert told[0] == told[1]


def test_many_questions_are_asked_of_one_text(asking, tmp_path):
    (tmp_path / "notes.txt").write_text(NOTES, "utf-8")
    result = asking("-", "--text", tmp_path / "notes.txt", input="who wrote?\nwhat news?\n")
    told = [json.loads(line)["question"] for line in result.stdout.splitlines()]
    assert told == ["who wrote?", "what news?"]


def test_kept_it_is_a_document_like_others(asking, longctx, tmp_path, passing):
    first = asking(QUESTION, "--text", "-", "--keep", "My notes", input=NOTES)
    assert first.exit_code == 0, first.output
    (told,) = json.loads(longctx("list", "--json").stdout)["documents"]
    assert (told["name"], told["title"], told["status"]) == ("My notes", "My notes", "complete")
    assert asking(QUESTION, "--doc", "My notes").stdout == first.stdout
    again = asking(QUESTION, "--text", "-", "--keep", "My notes", input="other text\n")
    assert (again.exit_code, again.stdout) == (2, "")
    assert "the document 'My notes' exists. Give --keep another name" in again.stderr
    assert not [*passing.iterdir()]


def test_what_cannot_be_read_of_it_is_told_and_the_rest_is_asked(asking, tmp_path, passing):
    (tmp_path / "notes.txt").write_text(NOTES, "utf-8")
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\0\0")
    result = asking(QUESTION, "--text", tmp_path / "notes.txt", "--text", tmp_path / "photo.png")
    assert result.exit_code == 3
    assert "skipped: " in result.stderr
    assert "notes.txt:2:" in result.stdout
    nothing = asking(QUESTION, "--text", "-", input="")
    assert (nothing.exit_code, nothing.stdout) == (3, "")
    assert not [*passing.iterdir()]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([QUESTION, "--keep", "notes"], "--keep has nothing to keep"),
        ([QUESTION, "--text", "-", "--doc", "book"], "both --text and --doc"),
        ([QUESTION, "--text", "-", "--all"], "both --text and --all"),
        ([QUESTION, "--text", "-", "--method", "reform"], "both --text and --method"),
        (["-", "--text", "-"], "cannot be both the text and the questions"),
        (["--text", "-"], "no question"),
        ([QUESTION, "--text", "none.txt"], "none.txt"),
        ([QUESTION, "--text", "-", "--keep", "../x"], "'../x'"),
    ],
)
def test_mistakes(longctx, model_options, args, said):
    result = longctx("ask", *args, *model_options, input=NOTES)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert said in result.stderr
    assert "Traceback" not in result.output


# --- how it ends ---

# Waits in the reading, or after the first piece of an answer, for a signal.
WAITING = """
import sys, time
def wait():
    print("ready", file=sys.stderr, flush=True)
    time.sleep(600)
if {reading}:
    from longctx.core.ingest.document_reading import DocumentReading
    DocumentReading.read = lambda self: wait()
else:
    from longctx.core.decode.decode import Generation
    texts = Generation.texts
    def waiting(self, tokenizer):
        for piece in texts(self, tokenizer):
            yield piece
            wait()
    Generation.texts = waiting
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")
@pytest.mark.parametrize("reading", [True, False])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_nothing_is_left_of_it_after_ctrl_c_or_kill(
    tmp_path, passing, model_options, reading, number, code
):
    (tmp_path / "notes.txt").write_text(NOTES, "utf-8")
    program = WAITING.format(reading=reading)
    words = ["ask", QUESTION, "-q", *model_options, "--text", tmp_path / "notes.txt"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    with Process(words, before=program, **pipes) as process:
        assert process.stderr.readline() == b"ready\n"
        assert len([*passing.iterdir()]) == 1
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
    assert process.returncode == code
    assert err.count(b"\n") <= 1
    assert not [*passing.iterdir()]


def test_what_a_killed_run_left_the_next_one_deletes(asking, passing):
    long_ago = time.time() - 2 * temporary_folders.OLD
    folders = [passing / f"{given_text.PREFIX}{name}" for name in ("left", "held", "new")]
    for folder in folders:
        (folder / "library").mkdir(parents=True)
        os.utime(folder, (long_ago, long_ago))
    (passing / "other").mkdir()
    with FileLock(folders[1] / temporary_folders.HELD):
        os.utime(folders[1], (long_ago, long_ago))
        os.utime(folders[2])
        assert asking(QUESTION, "--text", "-", input=NOTES).exit_code == 0
    assert sorted(passing.iterdir()) == sorted([*folders[1:], passing / "other"])


# --- standard input that nobody names ---


@NO_PIPES
@pytest.mark.parametrize("kind", ["pipe", "empty pipe", "file", "quiet", "text"])
def test_what_waits_on_standard_input_is_not_read_and_a_line_says_so(
    library, model_options, tmp_path, kind
):
    (tmp_path / "notes.txt").write_text(NOTES, "utf-8")
    ours, theirs = os.pipe()
    if kind == "file":
        os.close(ours)
        ours = os.open(tmp_path / "notes.txt", os.O_RDONLY)
    elif kind != "empty pipe":
        os.write(theirs, NOTES.encode())
    os.close(theirs)
    options = {"quiet": ["-q"], "text": ["--text", str(tmp_path / "notes.txt")]}.get(kind, [])
    done = run(["ask", QUESTION, *options, *model_options], stdin=ours, timeout=200)
    assert done.returncode == 0, done.stderr
    assert os.read(ours, 1 << 16).decode() == ("" if kind == "empty pipe" else NOTES)
    os.close(ours)
    said = "a text waits on standard input and is not read; --text - asks about it\n"
    assert (said in done.stderr) == (kind in ("pipe", "text"))
