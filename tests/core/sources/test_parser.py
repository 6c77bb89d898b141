"""The program that parses: when it runs, what it may take, how it ends, and what is believed."""

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from array import array
from pathlib import Path
from xml.parsers.expat import ExpatError

import pytest
from sample_files import pdf, put, read, tarred, zipped

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources import limits, parser
from longctx.core.sources.find import open_sources
from longctx.core.sources.packed import damage_told
from longctx.core.sources.parser import GivenUp, Parser
from longctx.core.sources.rules import Rules

TEXT = b"one\ntwo\n"
UNIX = pytest.mark.skipif(os.name == "nt", reason="it needs signals and /proc")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")


@pytest.fixture
def program(monkeypatch):
    """A program that was not begun yet, and ends with the test."""
    own = Parser()
    monkeypatch.setattr(parser, "_answers", own)
    yield own
    own.end()


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pid: int) -> bool:
    """Gives a process that is ending a minute."""
    for _ in range(1200):
        if not is_there(pid):
            return True
        time.sleep(0.05)
    return False


def test_one_program_for_all_that_is_no_plain_text_and_none_without(program, tmp_path):
    put(tmp_path / "plain", {"a.txt": TEXT, "sub/b.py": TEXT})
    for source in open_sources([str(tmp_path / "plain")]):
        read(source)
    assert (program.begun, program.pid) == (0, None)
    files = {"a.html": b"<p>a", "b.zip": zipped({"c.pdf": pdf("x")}), "d.gz": gzip.compress(TEXT)}
    put(tmp_path / "other", {**files, ".gitignore": b"*.log\n", "e.log": TEXT})
    sources = open_sources([str(tmp_path / "other")])
    pid = program.pid
    assert [read(source)[0] for source in sources] == ["a\n", "x\n\n", TEXT.decode()]
    assert (program.begun, program.pid) == (1, pid)
    parser.end()
    assert program.pid is None
    assert not is_there(pid)
    assert read(sources[1])[0] == "x\n\n"  # begun again, which knows nothing of the archive
    assert program.begun == 2


@UNIX
def test_a_program_that_somebody_ended_is_begun_again(program, tmp_path):
    text = b"".join(b"line %d\n" % (n * 7919) for n in range(300_000))
    put(tmp_path, {"a.gz": gzip.compress(text), "b.html": b"<p>b"})
    first, second = open_sources([str(tmp_path)])
    seen: list[bytes] = []
    blocks = first.blocks(seen.append)
    next(blocks)
    os.kill(program.pid, signal.SIGKILL)
    assert list(blocks)
    assert text.startswith(b"".join(seen))
    assert len(first.lost) == 1
    assert "what follows" in first.lost[0]
    assert read(second)[0] == "b\n"
    assert program.begun == 2


CRASH = """
import sys
from longctx.core.sources import parser
parser.BEGIN = "import os; os.kill(os.getpid(), 11)"
from longctx.core.sources.find import open_sources
(source,) = open_sources([sys.argv[1]])
try:
    list(source.blocks())
except parser.GivenUp as error:
    print(error)
"""


@UNIX
def test_a_crash_is_told(tmp_path):
    path = put(tmp_path, {"a.html": b"<p>a"}) / "a.html"
    done = subprocess.run([sys.executable, "-c", CRASH, path], capture_output=True, text=True)
    assert done.stdout.endswith("the program that parses it crashed (signal 11)\n"), done.stderr


def test_the_program_imports_nothing_large():
    code = "import sys, longctx.core.sources.program; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    large = {"torch", "transformers", "numpy", "tokenizers", "charset_normalizer", "pypdfium2"}
    assert not large & set(done.stdout.split())


ELSEWHERE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from longctx.core.sources.find import open_sources
(source,) = open_sources([sys.argv[2]])
print("".join(block.text for block in source.blocks()))
"""


def test_it_is_found_where_the_command_was_found(tmp_path):
    """Whatever folder it is in, and though no variable says where."""
    put(tmp_path, {"a.html": b"<p>the keeper", "json.py": b"1 / 0", "longctx/core.py": b"1 / 0"})
    given = [json.dumps(sys.path), str(tmp_path / "a.html")]
    without = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [sys.executable, "-P", "-c", ELSEWHERE, *given]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=without)
    assert done.stdout == "the keeper\n\n", done.stderr


@LINUX
def test_what_it_may_take(program, opened):
    read(opened("a.html", b"<p>a", memory=700_000_000, seconds=50))
    lines = Path(f"/proc/{program.pid}/limits").read_text().splitlines()
    most = {line[:26].strip(): line[26:].split()[0] for line in lines}
    assert most["Max data size"] == "700000000"
    assert most["Max open files"] == str(limits.OPEN_FILES)
    assert most["Max core file size"] == "0"
    assert 50 <= int(most["Max cpu time"]) <= 60
    assert os.getsid(program.pid) == program.pid


@LINUX
def test_files_that_cannot_be_read_do_not_use_up_the_open_files(program, tmp_path):
    damaged = {f"{n:03}.pdf": b"%PDF" for n in range(limits.OPEN_FILES)}
    put(tmp_path, damaged | {f"{n:03}.jsonl": b"\0" for n in range(limits.OPEN_FILES)})
    put(tmp_path, {"z.html": b"<p>The keeper"})
    *others, last = open_sources([str(tmp_path)])
    for source in others:
        with pytest.raises(UnreadableInput, match=r"binary|damaged"):
            read(source)
    assert read(last)[0] == "The keeper\n"
    assert program.begun == 1


def test_archives_in_archives_do_not_use_up_the_open_files(program, opened_all):
    many = limits.OPEN_FILES + 20
    inner = {f"{number:03}.tgz": tarred({"a": TEXT, "b": TEXT}, "w:gz") for number in range(many)}
    sources = opened_all("x.zip", zipped(inner))
    for source in sources[::2]:
        assert read(source)[0] == TEXT.decode()
    assert len(sources) == 2 * many


BUSY = """
import sys
from longctx.core.sources import parser
from longctx.core.sources.find import open_sources
sources = open_sources(sys.argv[1:])
list(sources[0].blocks())
try:
    print(parser._answers.pid, flush=True)
    list(sources[1].blocks())
except KeyboardInterrupt:
    parser.end()
    sys.exit(130)
"""


@UNIX
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_ends_with_the_command(tmp_path, number):
    slow = b"From x\nContent-Type: text/plain" + b';"' * 2_000_000 + b"\n\nhello\n"
    put(tmp_path, {"a.html": b"<p>a", "b.mbox": slow})
    command = [sys.executable, "-c", BUSY, tmp_path / "a.html", tmp_path / "b.mbox"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        pid = int(process.stdout.readline())
        time.sleep(0.5)  # it is at the mail then, for minutes
        os.killpg(process.pid, number)
        _, told = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert told == ""
    assert wait_until_gone(pid)


def by_another_name() -> list[Exception]:
    """What libraries raise where memory runs out."""
    expat = ExpatError("out of memory")
    expat.code = 1
    return [OSError(errno.ENOMEM, "Cannot allocate memory"), expat]


@pytest.mark.parametrize("error", by_another_name())
def test_memory_that_runs_out_is_no_damage(error):
    with pytest.raises(MemoryError), damage_told("a"):
        raise error


# --- what is believed ---


class Lying:
    """Answers of a program that is not what it was."""

    known = 0

    def __init__(self, told: dict, data: bytes = b""):
        self.answer = told, data

    def ask(self, *_):
        return self.answer

    def end(self):
        pass


def marks(*pairs: tuple[int, int]) -> bytes:
    return array("q", [number for pair in pairs for number in pair]).tobytes()


NONSENSE = [
    ({"bytes": 9}, b"abc"),
    ({"bytes": -1}, b"abc"),
    ({"bytes": "1"}, b"abc"),
    ({"bytes": 3}, b"abc" + b"1234567"),
    ({"bytes": 3}, b"abc" + marks((1, 1), (0, 2))),
    ({"bytes": 3}, b"abc" + marks((0, 0))),
    ({"bytes": 3}, b"abc" + marks((-5, 1))),
    ({"bytes": 3, "lost": 7}, b"abc"),
    ({"bytes": 3, "undecodable": "x"}, b"abc"),
]


@pytest.mark.parametrize("answer", NONSENSE)
def test_answers_that_make_no_sense_are_refused(monkeypatch, opened, answer):
    source = opened("a.html", b"<p>a")
    monkeypatch.setattr(parser, "_answers", Lying(*answer))
    with pytest.raises(GivenUp, match="makes no sense"):
        read(source)


MEMBER = {"in": 0, "number": 0, "name": "a", "size": 1, "how": [], "format": ""}
WRONG = [
    *({"in": 7}, {"number": -1}, {"number": True}, {"name": 3}, {"name": "x" * 4097}),
    *({"size": "1"}, {"size": 1 << 70}, {"how": 3}, {"format": "os"}, {"format": "../x"}),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_members_that_make_no_sense_are_refused(monkeypatch, opened_all, wrong):
    for more in ({}, wrong):
        answer = {"found": [MEMBER | more], "more": False}
        monkeypatch.setattr(parser, "_answers", Lying(answer))
        (source,) = opened_all("x.zip", b"")
        assert bool(source.refused) == bool(more)


def test_errors_are_of_the_kinds_that_there_are(monkeypatch, opened_all):
    error = {"kind": "SystemExit", "what": "w", "why": "y", "remedy": "r"}
    monkeypatch.setattr(parser, "_answers", Lying({"error": error}))
    (source,) = opened_all("x.zip", b"")
    assert type(source.refused) is UnreadableInput
    assert str(source.refused) == "w: y. r"


def test_time_is_given_for_the_file_and_what_comes_of_it():
    allowed = parser.Allowed.by(Rules(seconds=10), "a", 3 * limits.PER_SECOND)
    assert allowed.left == 13
    allowed.worked = limits.PER_SECOND
    assert allowed.left == 14
    allowed.worked = 10**18  # whatever the program says
    assert allowed.left == 13 + limits.UNPACKED / limits.PER_SECOND
    allowed.spent = 20.0
    assert allowed.left < limits.UNPACKED
