"""Standard input, output and error that are closed, full, or read by nobody."""

import os
import subprocess
import sys

import pytest

PROGRAM = [sys.executable, "-m", "longctx.cli"]
FIND = ("find", "boat", "--gather-by", "bm25")

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such redirections")


def shell(redirections: str, *args: str) -> subprocess.CompletedProcess:
    """Runs a command with what a shell makes of these redirections."""
    command = ["sh", "-c", f'exec "$@" {redirections}', "sh", *PROGRAM, *args]
    return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)


@pytest.fixture
def contents(library):
    """A function that gives the bytes of all files of the library."""

    def read() -> dict[str, bytes]:
        files = [path for path in library.rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in files}

    return read


@pytest.mark.parametrize("redirections", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("args", [("list",), ("verify",), FIND], ids=" ".join)
def test_closed_descriptors_are_as_the_null_device(contents, redirections, args):
    before = contents()
    done = shell(redirections, *args)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert b"error" not in done.stderr
    assert bool(done.stdout) == (">&-" not in redirections.replace("2>&-", ""))
    assert contents() == before


@pytest.mark.parametrize(
    ("args", "code"), [(("ingest", "-", "--name", "x"), 3), (("ask",), 2), (("rm", "book"), 2)]
)
def test_a_closed_standard_input_has_nothing_in_it(library, model_options, args, code):
    done = shell("<&-", *args, *(model_options if args[0] == "ingest" else ()))
    assert done.returncode == code, done.stderr
    assert b"internal" not in done.stderr


@pytest.mark.parametrize("args", [("list",), FIND, ("--help",)], ids=" ".join)
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full device")
def test_a_full_standard_output_is_told(library, args):
    done = shell(">/dev/full", *args)
    assert done.returncode == 1
    told = done.stderr.decode().splitlines()
    assert told[-1].startswith("error: cannot write standard output: No space left on device. ")
    assert "Exception ignored" not in done.stderr.decode()


@pytest.mark.parametrize(("args", "code"), [(("list",), 0), (("nothing",), 2), ((), 2), (FIND, 0)])
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full device")
def test_a_full_standard_error_changes_nothing(library, args, code):
    done = shell("2>/dev/full", *args)
    assert done.returncode == code
    assert bool(done.stdout) == (code == 0)


@pytest.mark.parametrize("redirections", ["", "2>&1"])
def test_a_reader_that_left_is_no_more_than_an_exit_code(library, redirections):
    read, write = os.pipe()
    os.close(read)
    command = ["sh", "-c", f'exec "$@" {redirections}', "sh", *PROGRAM, "list"]
    with os.fdopen(write, "wb") as pipe:
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 1
    assert done.stderr == b""


def test_a_command_line_that_is_no_text_is_refused(library):
    for command in ("find", "ask"):
        done = subprocess.run(
            [*map(os.fsencode, PROGRAM), command.encode(), b"who \xff?"],
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith(b"error: cannot take the question 'who \\udcff?': it is not")


@pytest.mark.parametrize(
    "path", ["n" * 300, "loop", "loop/x", "file/x"], ids=["long", "loop", "in loop", "in file"]
)
@pytest.mark.parametrize("args", [("list", "--library"), ("find", "x", "--library"), ("ingest",)])
def test_a_path_that_can_be_none_is_the_users(longctx, tmp_path, monkeypatch, args, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    result = longctx(*args, path)
    assert result.exit_code in (1, 2, 10), result.stderr
    assert "internal" not in result.stderr
    assert "[Errno" not in result.stderr


def test_a_file_that_has_the_number_of_a_closed_stream_is_not_read(tmp_path):
    """It was opened before the gaps were filled."""
    (tmp_path / "file").write_text("secret")
    code = (
        "import sys; file = open('file'); assert file.fileno() == 0 and sys.stdin is None;"
        "from longctx.cli.streams import fill_gaps; fill_gaps();"
        "print([sys.stdin.read(), file.read()])"
    )
    command = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "['', 'secret']\n", done.stderr
