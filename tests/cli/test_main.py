"""The program around the commands: help, version, errors and exit codes, the console."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib import metadata

import pytest
from typer.main import get_command

from longctx.cli.elsewhere import MEANT
from longctx.cli.main import COMMANDS, app
from longctx.core.common.errors import Locked, NotFound, StateMismatch, UnreadableInput
from longctx.core.store.library import Library

PROGRAM = [sys.executable, "-m", "longctx.cli"]


def all_commands(commands, parents=()):
    """Every command with its names, also those that others have."""
    for name, module in commands.items():
        yield (*parents, name), module
        yield from all_commands(getattr(module, "COMMANDS", {}), (*parents, name))


ALL = dict(all_commands(COMMANDS))


def parameters():
    found, whole = [], get_command(app)  # which takes 30 ms to make
    for names in ALL:
        command = whole
        for name in names:
            command = command.commands[name]
        found += [(" ".join(names), parameter) for parameter in command.params]
    return found


@pytest.mark.parametrize("names", ALL)
def test_every_command_has_help_with_examples(longctx, names):
    result = longctx(*names, "--help")
    assert result.exit_code == 0
    assert f"Usage: longctx {' '.join(names)}" in result.stdout.replace("root ", "longctx ")
    examples = result.stdout.split("Examples:")[1]
    assert f"longctx {' '.join(names)}" in examples
    first = ALL[names].run.__doc__.splitlines()[0]
    assert first in result.stdout
    assert first in longctx(*names[:-1], "--help").stdout


def test_every_option_and_argument_has_a_help_text():
    seen = parameters()
    assert len(seen) > 400
    without = [(command, one.name) for command, one in seen if not (one.help or "").endswith(".")]
    assert not without


def test_environment_variables_are_named_after_the_flag():
    for command, parameter in parameters():
        if parameter.envvar:
            expected = "LONGCTX_" + parameter.opts[0][2:].upper().replace("-", "_")
            assert parameter.envvar == expected, command


def test_a_command_that_has_others_shows_them(longctx):
    result = longctx("eval")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "ruler" in result.stderr


@pytest.mark.parametrize("words", [[], ["find"], ["eval", "qa"]], ids=str)
def test_help_is_a_command_too(longctx, words):
    shown = longctx("help", *words)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout == longctx(*words, "--help").stdout
    assert "Usage: " in shown.stdout
    assert longctx("help", "nosuch").exit_code == 2


def test_version(longctx):
    result = longctx("--version")
    assert result.stdout == f"longctx {metadata.version('longctx-reader')}\n"


def test_without_a_command_there_is_help_on_stderr(longctx):
    result = longctx()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Commands:" in result.stderr


# --- errors ---


@pytest.mark.parametrize("args", [("lst",), ("list", "--bogus"), ("show",), ("ask", "--gather=x")])
def test_wrong_usage_is_2(longctx, args):
    result = longctx(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert "--help'" in result.stderr


def test_a_mistyped_command_is_guessed(longctx):
    assert "Did you mean 'list'" in longctx("lst").stderr


@pytest.mark.parametrize(
    ("given", "meant"), [("search", "find"), ("delete", "rm"), ("Grep", "find"), ("ls", "list")]
)
def test_a_command_of_other_programs_is_answered_with_ours(longctx, given, meant):
    result = longctx(given, "x")
    assert result.exit_code == 2
    assert f"no command '{given}'. Did you mean '{meant}'?" in result.stderr


def test_what_is_offered_for_other_programs_commands_is_there():
    assert {*MEANT.values()} <= COMMANDS.keys()
    assert not COMMANDS.keys() & MEANT.keys()


def failing(monkeypatch, error: BaseException) -> None:
    """Makes every command that opens a library fail."""

    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(Library, "open", fail)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UnreadableInput("a", "b"), 3, "error: a: b"),
        (NotFound("a", "b", "C."), 10, "error: a: b. C."),
        (Locked("a"), 11, "error: a"),
        (StateMismatch("a \x1b[31mb\x9b\u202e"), 13, "error: a b"),
        (PermissionError(13, "no", "file"), 1, "error: cannot use 'file': no. Check the path"),
        (OSError(errno.ELOOP, "loop", "file"), 2, "error: cannot use 'file': loop. Name another"),
        (OSError(errno.EIO, "no"), 1, "error: [Errno 5] no"),
        (MemoryError(), 1, "error: out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9"), 1, "error: out of memory"),
        (ImportError("x.so: failed to map segment from shared object"), 1, "error: out of memory"),
        (ValueError("odd"), 1, "internal error: ValueError: odd"),
        (KeyboardInterrupt(), 130, "error: interrupted"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(longctx, monkeypatch, error, code, said):
    failing(monkeypatch, error)
    result = longctx("list")
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith(said)
    assert result.stderr.count("\n") == 1
    told = longctx("list", "--json")
    assert (told.exit_code, told.stdout) == (code, "")
    last = json.loads(told.stderr.splitlines()[-1])
    assert (last["schema_version"], last["error"]["code"]) == (1, code)
    assert last["error"]["message"] == result.stderr.removeprefix("error: ").removesuffix("\n")


def test_memory_of_a_gpu(longctx, monkeypatch):
    import torch

    failing(monkeypatch, torch.OutOfMemoryError("CUDA out of memory"))
    assert longctx("list").stderr.startswith("error: out of memory")


def test_the_traceback_is_for_debug_alone(longctx, monkeypatch):
    failing(monkeypatch, ValueError("odd"))
    assert "Traceback" not in longctx("list").stderr
    assert "Traceback" in longctx("--debug", "list").stderr
    monkeypatch.setenv("LONGCTX_DEBUG", "1")
    assert "Traceback" in longctx("list").stderr


def test_usage_errors_are_json_too(longctx):
    result = longctx("list", "--json", "--bogus")
    assert json.loads(result.stderr.splitlines()[-1])["error"]["code"] == 2


def test_an_interrupted_ingest_says_how_to_start_again(longctx, monkeypatch, tmp_path):
    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("longctx.core.sources.find.check", stop)
    result = longctx("ingest", "x.txt")
    assert result.exit_code == 130
    assert "The same command goes on with it." in result.stderr


# --- real processes ---


def test_help_imports_no_heavy_library():
    code = (
        "import sys, contextlib, io\n"
        "from longctx.cli.main import COMMANDS, app\n"
        "inner = [[name, sub] for name, module in COMMANDS.items()"
        " for sub in getattr(module, 'COMMANDS', {})]\n"
        "for args in ([], *([name] for name in COMMANDS), *inner):\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "        app([*args, '--help'])\n"
        "heavy = {'torch', 'transformers', 'numpy', 'rich', 'pydantic', 'yaml'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_reader_that_leaves_early_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*PROGRAM, "profiles"], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send to one process")
def test_ctrl_c_leaves_no_document(tmp_path):
    book = tmp_path / "book.txt"
    book.write_text("The keeper wrote that the boat came home at dawn with salt.\n" * 1000)
    env = {**os.environ, "LONGCTX_LIBRARY": str(tmp_path / "library")}
    process = subprocess.Popen(
        [*PROGRAM, "ingest", book], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while process.poll() is None and not (tmp_path / "library/unfinished/book").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, b""), err
    told = rb"error: interrupted. The same command (starts it again|goes on with it)\.\n"
    assert re.fullmatch(told, err)
    assert not (tmp_path / "library/documents/book").exists()
    with pytest.raises(NotFound):
        Library.open(tmp_path / "library").latest()
