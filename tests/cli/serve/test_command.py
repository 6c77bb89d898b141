"""The command: what it refuses, what it says, and how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from types import SimpleNamespace

import pytest
from preloaded import PIPE, Process
from small_documents import write

import longctx.cli.serve as command
from longctx.core.common import distribution
from longctx.core.common.errors import UsageError
from longctx.core.store.library import Library

TOKEN = "0123456789abcdef"


def test_without_the_extra_it_says_what_installs_it(longctx, monkeypatch):
    monkeypatch.setattr(command, "NEEDED", ("starlette", "no_such_library"))
    result = longctx("serve")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "needs no_such_library" in result.stderr
    assert "Run: pip install no_such_library." in result.stderr


def test_the_extra_and_what_is_needed_agree():
    assert tuple(distribution.extras()["serve"]) == command.NEEDED


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "box.example", "192.168.1.2"])
def test_other_machines_need_a_token(longctx, host):
    result = longctx("serve", "--host", host)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"cannot serve at '{host}'" in result.stderr
    assert "LONGCTX_SERVE_TOKEN" in result.stderr


@pytest.mark.parametrize("token", ["short", f"{TOKEN} x", f"{TOKEN}\u00e9"])
def test_tokens_that_are_refused(longctx, token):
    result = longctx("serve", "--token", token)
    assert result.exit_code == 2
    assert "cannot use this token" in result.stderr
    assert token not in result.stderr


def test_the_token_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv(command.TOKEN, TOKEN)
    assert command._token("0.0.0.0", None) == TOKEN
    assert command._token("127.0.0.1", None) == TOKEN
    assert command._token("127.0.0.1", "") == ""
    with pytest.raises(UsageError):
        command._token("0.0.0.0", "")


def test_a_port_that_is_taken(longctx):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = longctx("serve", "--port", port)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"cannot serve at 127.0.0.1:{port}" in result.stderr
    assert "--port" in result.stderr


def test_an_address_that_is_not_ours(longctx):
    result = longctx("serve", "--host", "no.such.host.invalid", "--token", TOKEN)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cannot serve at 'no.such.host.invalid'" in result.stderr


SCREEN = {"DISPLAY": ":0"}


@pytest.mark.parametrize(
    ("host", "terminal", "environment", "opens"),
    [
        ("127.0.0.1", True, SCREEN, True),
        ("localhost", True, {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("127.0.0.1", True, {"BROWSER": "lynx"}, False),
        ("127.0.0.1", True, {}, False),
        ("127.0.0.1", None, SCREEN, False),
        ("127.0.0.1", False, SCREEN, False),
        ("0.0.0.0", True, SCREEN, False),
        ("127.0.0.1", True, {**SCREEN, "SSH_CONNECTION": "there 1 here 22"}, False),
    ],
)
def test_it_opens_the_page_by_itself_for_a_person_at_a_screen(
    monkeypatch, host, terminal, environment, opens
):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", "linux")
    stdin = None if terminal is None else SimpleNamespace(isatty=lambda: terminal)
    monkeypatch.setattr("sys.stdin", stdin)
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: True))
    assert command._at_a_screen(host) is opens


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM")
def test_it_opens_the_page_if_asked_to(tmp_path):
    opened, script = tmp_path / "opened", tmp_path / "browser.py"
    script.write_text("import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])")
    environment = {**os.environ, "LONGCTX_LIBRARY": str(tmp_path / "library")}
    environment["BROWSER"] = f"{sys.executable} {script} {opened} %s"
    words = ["serve", "--port", "0", "--open"]
    with subprocess.Popen(
        [sys.executable, "-m", "longctx", *words],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        address = process.stderr.readline().split()[3]
        until = time.monotonic() + 60
        while not (opened.exists() and opened.read_text()) and time.monotonic() < until:
            time.sleep(0.05)
        with urllib.request.urlopen(opened.read_text(), timeout=60) as response:
            assert b"<title>longctx</title>" in response.read()
        process.terminate()
        process.communicate(timeout=60)
    assert opened.read_text() == address


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send to one process")
@pytest.mark.parametrize(
    ("sent", "there"), [(signal.SIGINT, "0 documents"), (signal.SIGTERM, "1 document")]
)
def test_it_serves_until_it_is_ended(tmp_path, sent, there):
    library = Library.open(tmp_path / "library", create=True)
    if there.startswith("1"):
        write(library)
    report = tmp_path / "report.json"
    words = ["serve", "--port", "0", "--token", TOKEN, "--report", str(report)]
    environment = {**os.environ, "LONGCTX_LIBRARY": str(library.path)}
    with Process(words, stdout=PIPE, stderr=PIPE, text=True, env=environment) as process:
        told = process.stderr.readline()
        assert told.startswith(f"{there} at http://127.0.0.1:")
        with urllib.request.urlopen(f"{told.split()[3]}/health", timeout=60) as response:
            assert json.load(response) == {"status": "ok"}
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")
    written = report.read_text("utf-8")
    assert TOKEN not in written
    assert json.loads(written)["exit_code"] == 0


def test_a_library_that_is_not_there_is_named(tmp_path):
    place = tmp_path / "mistyped"
    words = ["serve", "--port", "0", "--token", TOKEN, "--library", str(place)]
    with Process(words, stdout=PIPE, stderr=PIPE, text=True) as process:
        there, named = (process.stderr.readline() for _ in range(2))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert there.startswith("0 documents at http://127.0.0.1:")
    assert named == f"there is no library at '{place}' yet: the first file sent makes it\n"
    assert not place.exists()


def test_help_imports_nothing_that_serves():
    code = (
        "import sys, contextlib, io\n"
        "from longctx.cli.main import app\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "    app(['--help'])\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "    app(['serve', '--help'])\n"
        "print(sorted({'starlette', 'uvicorn', 'anyio', 'h11', 'asyncio'} & {*sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
