"""Ctrl-C ends the program, also while one computation keeps the main thread for minutes.

An answer that it ends is kept as far as it came.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict

import pytest
from preloaded import Process

from longctx.cli import interrupt
from longctx.core.ingest.job import Progress

BUSY = """
import hashlib, signal, sys
{first}
from longctx.cli.interrupt import within
try:
    with within(lambda code: print("told", file=sys.stderr, flush=True), grace={grace}):
        print("ready", flush=True)
        {work}
except KeyboardInterrupt:
    print("left by itself", file=sys.stderr)
    sys.exit(130)
"""
STAY = "signal.signal(signal.SIGINT, lambda *_: None)"  # nothing but the hard way ends it
ONE_STEP = "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)"  # a quarter of an hour
SMALL_STEPS = "while True: sum(range(1000))"


NO_SIGNALS = pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")


def ended(code: str, number: int | None = None) -> tuple[int, str]:
    """The exit code of a program, and its standard error; where it does not send itself a signal,
    it gets this one when it is ready."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        if number is not None:
            process.send_signal(number)
        _, err = process.communicate(timeout=120)
    return process.returncode, err


@NO_SIGNALS
@pytest.mark.parametrize(
    ("first", "work", "grace", "said"),
    # A busy computer may take its time to let the program leave by itself.
    [(STAY, ONE_STEP, 0.2, "told\n"), ("", SMALL_STEPS, 60, "left by itself\n")],
)
def test_ctrl_c(first, work, grace, said):
    code = BUSY.format(first=first, work=work, grace=grace)
    assert ended(code, signal.SIGINT) == (130, said)


@NO_SIGNALS
@pytest.mark.parametrize(("grace", "said"), [(0.2, "told\n"), (60, "left by itself\n")])
def test_kill_ends_it_as_ctrl_c_does(grace, said):
    first, work = ("", SMALL_STEPS) if grace == 60 else (STAY.replace("INT", "TERM"), ONE_STEP)
    code = BUSY.format(first=first, work=work, grace=grace).replace("exit(130)", "exit(143)")
    assert ended(code, signal.SIGTERM) == (143, said)


# What Python calls by itself, and an error in which it tells nobody of but standard error.
DROPPED = """
import weakref
class Thing:
    {method}
thing = Thing()
"""
DROPPING = [
    DROPPED.format(method="def __del__(self): signal.raise_signal(signal.SIGINT)"),
    DROPPED.format(method="pass")
    + "watched = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))",
]


@NO_SIGNALS
@pytest.mark.parametrize("first", DROPPING)
@pytest.mark.parametrize(
    ("then", "grace", "said"),
    [(ONE_STEP, 0.2, "told\n"), ("signal.raise_signal(signal.SIGINT)", 60, "left by itself\n")],
)
def test_ctrl_c_that_python_drops_ends_it_too_and_is_not_told_of(first, then, grace, said):
    code = BUSY.format(first=first, work=f"del thing; {then}", grace=grace)
    assert ended(code) == (130, said)


@NO_SIGNALS
def test_other_errors_that_python_drops_are_told():
    first = DROPPED.format(method="def __del__(self): 1 / 0")
    code, err = ended(BUSY.format(first=first, work="del thing", grace=60))
    assert code == 0
    assert "ZeroDivisionError" in err


@NO_SIGNALS
def test_what_is_ignored_from_the_beginning_stays_ignored():
    first = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    work = "signal.raise_signal(signal.SIGINT); signal.raise_signal(signal.SIGTERM)"
    assert ended(BUSY.format(first=first, work=work, grace=60)) == (130, "left by itself\n")


def test_nothing_happens_without_ctrl_c():
    threads = threading.active_count()
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    handlers = [signal.getsignal(number) for number in interrupt.ENDING]
    hook = sys.unraisablehook
    with interrupt.within(lambda code: pytest.fail("told")):
        assert handlers != [signal.getsignal(number) for number in interrupt.ENDING]
    assert signal.set_wakeup_fd(before) == before
    assert handlers == [signal.getsignal(number) for number in interrupt.ENDING]
    assert sys.unraisablehook == hook
    assert threading.active_count() == threads


@NO_SIGNALS
def test_what_asks_for_more_time_gets_it():
    first = """import threading
asked = threading.Event()
def longer():
    print("asked", file=sys.stderr)
    asked.set()
    return 60"""
    ready = 'print("ready", flush=True)'  # said where the signal finds it in the `try`
    work = f"try: {ready}; threading.Event().wait(60)\n        finally: asked.wait(60)"
    code = BUSY.replace("grace={grace}", "grace=0.2, longer=longer").replace(ready, "pass")
    code = code.format(first=first, work=work)
    assert ended(code, signal.SIGINT) == (130, "asked\nleft by itself\n")


@NO_SIGNALS
def test_an_interrupt_of_a_librarys_own_is_that_of_the_signal():
    assert interrupt.code_of(KeyboardInterrupt()) == interrupt.INTERRUPTED
    with interrupt.first_alone(*interrupt.ENDING):
        assert interrupt.code_of(KeyboardInterrupt()) == interrupt.INTERRUPTED
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        assert interrupt.code_of(KeyboardInterrupt()) == interrupt.TERMINATED


def test_in_another_thread_it_does_nothing():
    def work() -> None:
        with interrupt.within(lambda code: pytest.fail("told")):
            done.append(threading.active_count())

    done: list[int] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [threading.active_count() + 1]


PROGRESS = asdict(Progress(total=100, cache=0, processed=10, tokens=5, kept=4, time_ms=1000))
DRAWING = """
import functools, hashlib, signal
from longctx.core.ingest.job import Progress
from longctx.cli import progress, run
from longctx.cli.ingest import stop as ingest_stop
from longctx.cli.ingest.stop import stoppable
run.current().json = {json}
ingest_stop.within = functools.partial(ingest_stop.within, grace=0.5)
{first}
with stoppable({json}) as stop, progress.reading() as show:
    for told in (stop.note, show):
        told(Progress(**{progress}))
    print("ready", flush=True)
    {work}
"""
SHOW_CURSOR, HIDE_CURSOR = b"\x1b[?25h", b"\x1b[?25l"


def from_terminal(code: str) -> tuple[int, bytes]:
    """The exit code of a program that gets Ctrl-C, and what its terminal got after it was ready."""
    terminal, theirs = os.openpty()
    env = {**os.environ, "TERM": "xterm"}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=env) as process:
        os.close(theirs)
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        shown = b""
        with suppress(OSError):  # how Linux says that nobody has the terminal any more
            while data := os.read(terminal, 1 << 16):
                shown += data
    os.close(terminal)
    return process.returncode, shown


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
@pytest.mark.parametrize(
    ("json", "said"),
    [
        (False, b"error: interrupted. 4 tokens are kept; the same command goes on from there.\r\n"),
        (
            True,
            b'{"schema_version": 1, "error": {"code": 130, "message": "interrupted. 4 tokens are '
            b'kept; the same command goes on from there."}}\r\n',
        ),
    ],
)
def test_the_hard_way_leaves_the_terminal_in_order(json, said):
    drawing = DRAWING.format(progress=PROGRESS, json=json, first=STAY, work=ONE_STEP)
    code, shown = from_terminal(drawing)
    assert code == 130
    before, after = shown.rsplit(SHOW_CURSOR, 1)
    assert HIDE_CURSOR in before  # the bar was drawn
    assert HIDE_CURSOR not in after
    assert shown.endswith(said)
    assert after.count(b"\n") == 1


@NO_SIGNALS
def test_it_ends_also_where_nothing_can_be_told():
    code = BUSY.format(first=STAY, work=ONE_STEP, grace=0.2).replace(
        'print("told",', "print(1 / 0,"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130


# Waits after the first piece of an answer, so that Ctrl-C finds it there.
ASKING = """
import sys, time
from longctx.core.decode.decode import Generation
texts = Generation.texts
def waiting(self, tokenizer):
    for piece in texts(self, tokenizer):
        yield piece
        if piece.strip():
            print("ready", file=sys.stderr, flush=True)
            time.sleep(600)
Generation.texts = waiting
"""


@pytest.fixture
def asked(library, model_options):
    """A program that is in the midst of an answer."""
    words = ["ask", "who came home with news?", "--anyway", "--doc", "book", *model_options]
    running = []

    def start(*options: str) -> Process:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running.append(Process([*words, *options], before=ASKING, **pipes))
        assert running[-1].stderr.readline() == b"ready\n"
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


@NO_SIGNALS
def test_an_answer_that_was_interrupted_stays_as_far_as_it_came(asked):
    process = asked()
    ready, _, _ = select.select([process.stdout], [], [], 60)
    assert ready, "the text waits in a buffer instead of coming as it is generated"
    shown = os.read(process.stdout.fileno(), 1 << 16)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert shown.strip()
    assert out == b"\n"
    assert err.startswith(b"interrupted after ")
    assert err.count(b"\n") == 1


@NO_SIGNALS
def test_an_answer_that_was_interrupted_is_one_json_object(asked):
    process = asked("--json")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, b"")
    values = json.loads(out)
    assert values["stop"] == "interrupted"
    assert values["answer"]
    assert values["tokens"]["answer"] > 0


# --- Ctrl-C at any moment of the program ---------------------------------------------------------

# Sends itself many signals where a module is imported, or where something is called.
STORM = """
import contextlib, os, signal, sys
sys.argv = ["longctx", {args}]
def storm(*_):
    for _ in range(50):
        os.kill(os.getpid(), signal.SIGINT)
{first}
from longctx.cli.__main__ import main
main()
"""
AT_IMPORT = """
class Finder:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            with contextlib.suppress(BaseException):  # as native code does that cannot pass it on
                storm()
sys.meta_path.insert(0, Finder)
"""
AT_EXIT = "import atexit; atexit.register(storm)"
# Where the library is opened: in code from a text, and made another error of, as libraries do.
OPENING = "import longctx.core.store.library as module; module.Library.open = {opening}"
FROM_TEXT = OPENING.format(opening="lambda path: exec('storm()', globals())")
CONVERTED = """
def opening(path):
    try:
        storm()
    except BaseException:  # as libraries do that make errors of their own
        raise ImportError("half done")
"""


@pytest.fixture
def stormed(library, tmp_path):
    """A function that gives exit code and output of a program in such a storm."""

    def run(first: str, args: str = '"verify"') -> tuple[int, bytes, bytes]:
        # As a module: Python ends by the signal then where it believes nobody has caught it.
        (tmp_path / "storming.py").write_text(STORM.format(first=first, args=args), "utf-8")
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "storming"]
        env = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, capture_output=True, timeout=120, env=env)
        return done.returncode, done.stdout, done.stderr

    return run


@NO_SIGNALS
@pytest.mark.parametrize(
    "first",
    [
        AT_IMPORT.format(module="typer"),
        AT_IMPORT.format(module="longctx.cli.niah"),
        AT_IMPORT.format(module="longctx.core.store.verify"),
        FROM_TEXT,
        CONVERTED + OPENING.format(opening="opening"),
    ],
    ids=["typer imported", "commands imported", "core imported", "code from a text", "converted"],
)
def test_a_storm_of_ctrl_c_is_one_line_and_one_exit_code(stormed, first):
    if "meta_path" not in first:  # what is imported here must not be what is imported first
        first = "from longctx.cli import at_once; at_once.expect()\n" + first
    assert stormed(first) == (130, b"", b"error: interrupted\n")
    told = b'{"schema_version": 1, "error": {"code": 130, "message": "interrupted"}}\n'
    assert stormed(first, '"verify", "--json"') == (130, b"", told)


@NO_SIGNALS
def test_a_storm_when_all_is_told_changes_nothing(stormed):
    code, out, err = stormed(AT_EXIT)
    assert (code, err) == (0, b"")
    assert out.startswith(b"book: ok")
    code, _, err = stormed(AT_EXIT, '"show", "nothing"')
    assert code == 10
    assert err.startswith(b"error: ")
    assert err.count(b"\n") == 1


@NO_SIGNALS
def test_ctrl_c_from_outside_in_a_row(library):
    for pause in (0.0, 0.05, 0.1, 0.2):
        command = [sys.executable, "-c", STORM.format(first="print(flush=True)", args='"verify"')]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, **pipes) as process:
            assert process.stdout.readline() == b"\n"
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05 + pause)  # what comes before `main` is Python's own affair
            while process.poll() is None:
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.002)
            out, err = process.communicate()
        assert (process.returncode, err) in [(130, b"error: interrupted\n"), (0, b"")]
        assert process.returncode == 130 or out.startswith(b"book: ok")
