"""Nothing of a document, a name, a model or an error steers the terminal, whatever the command."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from longctx.core.decode.decode import Generation

EVIL = "ev\x1b[31m\x1b]0;title\x07\x9b1mil\u202e\u2066\r\x08\x7f\u2028\nerror: forged"
NAME = "ev\x1b[31mil\u202e\x9b1m\nerror: forged.txt"
STEERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
FORGED = re.compile("^error: forged", re.M)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such file names")


@pytest.fixture
def evil(longctx, model_options, models_loaded_once, tmp_path):
    """A folder with a library whose document has such a name of its source, and such text."""
    source = tmp_path / NAME
    source.write_text(f"the keeper wrote {EVIL} that a boat came home\n" * 8)
    for name in ("evil", "evil-too"):
        result = longctx("ingest", source, "--name", name, *model_options)
        assert result.exit_code == 0, result.stderr
        require_harmless(result)
    source.write_text("changed since it was read\n")
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": EVIL}) + "\n")
    profile = EVIL.replace("/", "") + ".yaml"
    (tmp_path / profile).write_text(f"name: {json.dumps(EVIL)}\n{EVIL}: 1\n")
    return tmp_path


def require_harmless(result) -> None:
    for text in (result.stdout, result.stderr):
        found = STEERS.search(text)
        assert not found, f"{found[0]!r} in {text!r}"
    assert not FORGED.search(result.stderr)


COMMANDS = [
    ("list",),
    ("show", "evil"),
    ("verify",),
    ("gc",),
    ("profiles",),
    ("find", "boat"),
    ("find", EVIL),
    ("ask", "boat"),
    ("ask", EVIL),
    ("find", EVIL, "--all"),
    ("ask", EVIL, "--doc", "evil", "--doc", "evil-too"),
    ("ask", "boat", "--doc", "evil", "--doc", EVIL),
    ("ask", "boat", "--all", "--max-docs", "1"),
    ("ask", "boat", "--all", "--max-docs", EVIL),
    ("ask", "--questions", "{}/q.jsonl"),
    ("ask", "boat", "--model", EVIL),
    ("ask", "boat", "--profile", EVIL),
    ("ask", "boat", "--profile", "{}/" + EVIL + ".yaml"),
    ("ask", "boat", "--doc", EVIL),
    ("ask", "boat", "--decode", EVIL),
    ("ask", "boat", "--device", EVIL),
    ("ask", "boat", "--gather", EVIL),
    ("ask", "boat", "--stop", EVIL),
    ("ingest", "{}/" + NAME, "--name", "evil", "--method", "full"),
    ("ingest", EVIL),
    ("ingest", "{}/" + NAME, "--name", EVIL),
    ("ingest", "{}/" + NAME, "--checkpoint", EVIL),
    ("show", EVIL),
    ("rm", EVIL, "--yes"),
    ("rename", "evil", EVIL),
    ("export", "evil", "{}/" + EVIL),
    ("export", "evil", "{}/" + EVIL + "/x"),
    ("import", EVIL),
    ("import", "{}/" + NAME, "--name", "x"),
    ("verify", EVIL),
    ("list", "--library", EVIL),
    ("list", f"--{EVIL}"),
    (EVIL,),
    ("eval", "qa", "evil", "{}/q.jsonl"),
    ("eval", "qa", "evil", "{}/" + EVIL),
    ("eval", "ruler", "--tasks", EVIL),
    ("eval", "compare", "--methods", EVIL),
    ("niah", "--variant", EVIL),
    ("niah", "--haystack", EVIL),
    ("calibrate", EVIL),
    ("calibrate", "tiny", "--out", EVIL),
    ("calibrate", "tiny", "--out", "{}/" + EVIL + "/x.yaml"),
    ("calibrate", "tiny", "--out", "{}/" + EVIL + ".yaml"),
    ("calibrate", "tiny", "--length", EVIL),
    ("calibrate", "tiny", "--profile", EVIL),
    ("bench", EVIL),
    ("bench", "ingest", "--tokens", EVIL),
    ("list", "--log-file", EVIL + "/x"),
    ("list", "--report", EVIL + "/x"),
    ("list", "--progress", EVIL),
]


@pytest.mark.parametrize("more", [(), ("--json",), ("-vv", "--debug")], ids=" ".join)
def test_no_command_lets_anything_through(longctx, evil, more, monkeypatch):
    monkeypatch.chdir(evil)
    shutil.copytree(evil / "library", evil / "kept")
    for command in COMMANDS:
        args = [arg.replace("{}", str(evil)) for arg in command]
        json_too = more == ("--json",) and command[0] not in ("rm", "rename", "export")
        require_harmless(longctx(*args, *(more if json_too or more != ("--json",) else ())))
    shutil.rmtree(evil / "library")
    shutil.copytree(evil / "kept", evil / "library")


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_what_a_model_says(longctx, evil, more, monkeypatch):
    pieces = [EVIL, "\x1b", "[31m", "\x9b", "2J", "\u202e", "x"]
    monkeypatch.setattr(Generation, "texts", lambda self, tokenizer: iter(pieces))
    result = longctx("ask", "boat", *more)
    assert result.exit_code == 0
    require_harmless(result)
    if more:
        assert json.loads(result.stdout)["answer"] == "".join(pieces).strip()


def test_a_log_and_a_report_are_harmless_too(longctx, evil):
    log, report = evil / "run.log", evil / "run.json"
    options = ("--log-file", log, "--report", report)
    longctx("ask", EVIL, *options)
    longctx("show", EVIL, *options)
    for text in (log.read_text("utf-8"), report.read_text("utf-8")):
        assert not STEERS.search(text)


def from_terminal(args: list[str], **env: str) -> str:
    """What a terminal gets of a command."""
    terminal, theirs = os.openpty()
    command = [sys.executable, "-m", "longctx.cli", *args]
    environment = {**os.environ, "TERM": "xterm-256color", **env}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(terminal, 1 << 16):
                shown += data
        except OSError:  # how Linux says that nobody has the terminal any more
            pass
    os.close(terminal)
    assert process.returncode == 0
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("command", [["show", "evil"], ["list"], ["list", "--json"]])
def test_a_terminal_gets_colours_alone_and_without_them_nothing(evil, command):
    coloured = from_terminal(command)
    assert not STEERS.search(re.sub(r"\x1b\[[\d;]*m", "", coloured))
    assert ("\x1b[" in coloured) == ("--json" not in command)
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert not STEERS.search(from_terminal(command, **env)), env
