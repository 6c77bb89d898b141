"""`longctx mcp` as a process, through the SDK's client over a pipe; and what it refuses."""

import json
import os
import signal
import sys

import anyio
import pytest
from mcp import Client, StdioServerParameters
from preloaded import PIPE, Process

import longctx
from longctx.cli import mcp as command
from longctx.cli.mcp import wire

PROGRAM = [sys.executable, "-m", "longctx.cli", "mcp"]


@pytest.fixture
def run(longctx):
    """A command line, as `longctx` of other tests, which is the package here."""
    return longctx


@pytest.fixture
def arguments(library, model_folder):
    """Its options: a copy of the shelf, and the random model."""
    return ["--library", str(library), "--model", str(model_folder), "--device", "cpu"]


def environment() -> dict[str, str]:
    """All of ours: the process imports what this one does, and keeps caches where it does."""
    return {**os.environ, "PYTHONSAFEPATH": "1"}


def test_a_client_over_a_pipe(arguments, tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "log.txt").write_text("the keeper wrote that a boat came home\n" * 60)
    server = StdioServerParameters(
        command=PROGRAM[0],
        args=[*PROGRAM[1:], *arguments, "--allow", "docs"],
        env=environment(),
        cwd=tmp_path,
    )
    told = []

    async def heard(done, total, message):
        told.append(done)

    async def main():
        async with Client(server) as client:
            found = await client.call_tool("find", {"query": "a boat came home"})
            assert found.structured_content["documents"] == ["book"]
            read = await client.call_tool(
                "ingest", {"paths": ["docs/log.txt"]}, progress_callback=heard
            )
            assert not read.is_error
            assert read.structured_content["document"]["name"] == "log"
            answer = await client.call_tool("ask", {"question": "who?", "documents": ["log"]})
            assert answer.structured_content["documents"] == ["log"]
            refused = await client.call_tool("ingest", {"paths": ["config.toml"]})
            assert refused.is_error

    anyio.run(main)
    assert told == sorted({*told})


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    },
}


@pytest.fixture
def started(arguments):
    """f(*options): the process, with pipes; it is ended at the end."""
    processes = []

    def begin(*options):
        pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
        words = ["mcp", *arguments, *options]
        process = Process(words, env=environment(), text=True, **pipes)
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr, process.stdin):
            pipe.close()


def lines(*messages) -> str:
    return "".join(json.dumps(message) + "\n" for message in messages)


def test_only_the_protocol_is_written_to_standard_output(started):
    call = {"name": "find", "arguments": {"query": "a boat"}}
    told = lines(
        HELLO,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    )
    process = started("-v")
    process.stdin.write(told)
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert [answer["id"] for answer in answers] == [1, 2]
    out, err = process.communicate(timeout=60)  # its end of the pipe is closed: the client leaves
    assert process.returncode == 0
    assert out == ""
    assert "info: longctx" in err


@pytest.mark.parametrize("line", ["{", '"%s"' % ("a" * wire.LONGEST), "x" * (5 << 20)])
def test_a_line_that_is_no_message_is_answered_and_the_session_goes_on(started, line):
    """Not one byte more of it than of the longest message is kept; `tests/faults/attacks`."""
    process = started()
    answers = []
    for sent in (lines(HELLO), f"{line}\n\n", lines({**HELLO, "id": 3, "method": "ping"})):
        process.stdin.write(sent)
        process.stdin.flush()
        answers.append(json.loads(process.stdout.readline()))
    assert [answer["id"] for answer in answers] == [1, None, 3]
    assert answers[1]["error"] == {"code": -32700, "message": wire.REFUSED}
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(started, number):
    process = started()
    process.stdin.write(lines(HELLO))
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert "interrupted" in process.stderr.read() or number == signal.SIGTERM


@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGTERM])
def test_a_reading_is_kept_when_the_server_ends(started, library, tmp_path, number):
    (tmp_path / "log.txt").write_text("the keeper wrote that a boat came home\n" * 8000)
    arguments = {"paths": ["log.txt"], "name": "log"}
    call = {"name": "ingest", "arguments": arguments, "_meta": {"progressToken": 7}}
    process = started("--allow", str(tmp_path))
    process.stdin.write(
        lines(
            HELLO,
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
        )
    )
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1
    done = 0
    while not done:
        done = json.loads(process.stdout.readline())["params"]["progress"]
    if number is None:
        process.stdin.close()  # the client leaves
        assert process.wait(60) == 0
    else:
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    begun = longctx.Library(library)["log"]
    assert begun.status == "draft"
    assert begun.tokens > 0


def test_a_folder_that_is_none_is_refused_at_once(run, tmp_path):
    result = run("mcp", "--allow", tmp_path / "nowhere")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no such folder" in result.stderr


@pytest.mark.parametrize("option", ["--log-file", "--report"])
def test_nothing_else_may_claim_standard_output(run, option):
    result = run("mcp", option, "-")
    assert result.exit_code == 2
    assert "both want standard output" in result.stderr


def test_without_the_extra_the_command_that_installs_it_is_told(run, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    result = run("mcp")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the package mcp is not installed" in result.stderr
    assert "Run: pip install mcp." in result.stderr
