"""Files that are sent leave nothing on disk, have one limit, and a full disk is said to be full."""

import gc
import os
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from raw_clients import connected, reset_at_close, until

import longctx
from longctx.cli.serve import guard, listening
from longctx.cli.serve.options import Options
from longctx.cli.serve.spool import PREFIX
from longctx.cli.temporary_folders import OLD, lock_of

HEAD = b"POST /api/ingest?name=%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n"
MIB = 1 << 20
LENGTH = b"Content-Length: %d"
CHUNKED = b"Transfer-Encoding: chunked"
CHUNK = b"%x\r\n%s\r\n" % (MIB, b"x" * MIB)


@pytest.fixture
def temporaries(tmp_path, monkeypatch):
    """The folder that uploads lie in, without a garbage collector that would remove them."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gc.disable()
    yield tmp_path
    gc.enable()


@pytest.fixture
def sent(documents, temporaries, run_server):
    """A server of small limits."""
    with run_server(documents, Options(upload=2 * MIB, uploads=3 * MIB)) as served:
        yield served


def files(folder) -> list[Path]:
    return [*folder.glob(f"{PREFIX}*/file")]


def nothing_left(served, folder) -> bool:
    """Whether nothing is on disk, and nothing is counted, once nothing is done any more."""
    until(lambda: not served.server.server_state.tasks)
    return [*folder.glob(f"{PREFIX}*")] == [] and served.app.state.spool.held == 0


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("framing", [LENGTH % (2 * MIB), CHUNKED])
def test_a_file_that_is_broken_off_is_removed_at_once(sent, temporaries, framing, resets):
    for _ in range(4):
        with connected(sent.port, HEAD % (b"a.txt", framing), CHUNK) as connection:
            until(lambda: any(file.stat().st_size for file in files(temporaries)))
            if resets:
                reset_at_close(connection)
        assert nothing_left(sent, temporaries)
    assert "requests_total{" not in sent.http.get("/metrics").text


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ((CHUNK, CHUNK, CHUNK), 413),
        ((CHUNK, b"no chunk\r\n"), 400),
        ((CHUNK,), 408),
        ((b"5\r\n\0\1\2\3\4\r\n0\r\n\r\n",), 422),
    ],
)
def test_so_is_one_that_is_refused(sent, temporaries, monkeypatch, parts, status):
    if status == 408:
        monkeypatch.setattr(guard, "SLOW", 0.5)
    head = HEAD % (b"a.txt", CHUNKED + b"\r\nConnection: close")
    got = sent.exchanged(head + b"".join(parts))
    assert got.startswith(b"HTTP/1.1 %d " % status)
    assert nothing_left(sent, temporaries)


def test_so_is_one_that_trickles(sent, temporaries, monkeypatch):
    """Each byte comes in time, the file would take days, and others have no room meanwhile."""
    monkeypatch.setattr(guard, "SLOW", 0.5)
    with connected(sent.port, HEAD % (b"a.txt", CHUNKED)) as connection:
        connection.settimeout(0.05)
        got = b""
        while not got:
            connection.sendall(b"1\r\nx\r\n")
            with suppress(TimeoutError):
                got = connection.recv(65536)
    assert got.startswith(b"HTTP/1.1 408 ")
    assert nothing_left(sent, temporaries)


def test_so_is_one_for_which_the_queue_has_no_room(sent, temporaries):
    reading, end = sent.app.state.reading, threading.Event()
    reading._thread.submit(end.wait, 60)
    reading.most = 0
    try:
        waiting = connected(sent.port, HEAD % (b"a.txt", LENGTH % 4), b"text")
        with waiting:
            until(lambda: reading.waiting == 1)
            assert len(files(temporaries)) == 1
            answer = sent.http.post("/api/ingest?name=b.txt", content=b"text")
            assert (answer.status_code, len(files(temporaries))) == (429, 1)
        until(lambda: nothing_left(sent, temporaries))  # its client has left the queue
    finally:
        end.set()


def test_the_end_of_the_server_removes_all_and_is_no_failure(
    documents, temporaries, run_server, monkeypatch, caplog
):
    """Also what is still being sent, or read."""
    monkeypatch.setattr(listening, "ENDING_S", 0.2)
    text = b"A line of a long log that nobody waits for.\n" * 50_000
    with (
        longctx.Library(temporaries / "library", documents.model) as library,
        run_server(library, Options()) as served,
    ):
        sending = connected(served.port, HEAD % (b"a.txt", LENGTH % 100), b"x")
        reading = connected(served.port, HEAD % (b"b.txt", LENGTH % len(text)), text)
        while b"progress" not in reading.recv(65536):
            pass
        assert len(files(temporaries)) == 2
    assert nothing_left(served, temporaries)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    for connection in (sending, reading):
        connection.close()


def test_what_a_killed_server_left_is_removed_by_the_next(temporaries, serve):
    long_ago, kept = time.time() - 2 * OLD, []
    for name in ("killed", "held", "young"):
        folder = temporaries / f"{PREFIX}{name}"
        folder.mkdir()
        (folder / "file").write_bytes(b"x")
        kept += [folder] if name != "killed" else []
    with lock_of(temporaries / f"{PREFIX}held"):
        for name in ("killed", "held"):
            os.utime(temporaries / f"{PREFIX}{name}", (long_ago, long_ago))
        serve()
        assert {*temporaries.glob(f"{PREFIX}*")} == {*kept}


def test_all_files_together_have_a_limit(sent, temporaries):
    with connected(sent.port, HEAD % (b"a.txt", LENGTH % (2 * MIB)), b"x" * (2 * MIB - 1)):
        until(lambda: sent.app.state.spool.held == 2 * MIB - 1)
        for framing in (LENGTH % (2 * MIB), CHUNKED):
            got = sent.exchanged(HEAD % (b"b.txt", framing), CHUNK, CHUNK)
            assert got.startswith(b"HTTP/1.1 503 ")
            assert b"\r\nretry-after: 10\r\n" in got
            assert b"too_many_uploads" in got
            assert len(files(temporaries)) == 1
    until(lambda: nothing_left(sent, temporaries))
    answer = sent.http.post("/api/ingest?name=b.txt", content=b"\0" * (2 * MIB))
    assert answer.status_code == 422


@pytest.fixture
def small_disk(temporaries):
    """A disk of 1 MiB for temporary files, where this user may mount one."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(temporaries)], capture_output=True
    )
    if done.returncode:
        pytest.skip("cannot mount a small disk here")
    yield temporaries
    subprocess.run(["umount", "-l", str(temporaries)], check=True)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may mount")
def test_a_full_disk_is_named_and_has_room_again(small_disk, sent):
    for content in (b"x" * (2 * MIB), b"x" * (MIB + 1)):  # early, and with the last byte
        answer = sent.http.post("/api/ingest?name=a.txt", content=content)
        told = answer.json()["error"]
        assert (answer.status_code, told["code"]) == (507, "no_space")
        assert f"the temporary folder '{small_disk}' of the server is full" in told["message"]
        assert "TMPDIR" in told["message"]
        assert nothing_left(sent, small_disk)
    assert sent.http.post("/api/ingest?name=a.txt", content=b"\0" * 1000).status_code == 422


def test_a_folder_that_cannot_be_written_is_named(sent, temporaries, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(temporaries / "gone"))
    answer = sent.http.post("/api/ingest?name=a.txt", content=b"text")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "unwritable")
    assert str(temporaries / "gone") in answer.json()["error"]["message"]
    assert nothing_left(sent, temporaries)


@pytest.mark.parametrize("name", ["é" * 128, "x" * 256, "😀" * 64 + ".txt"])
def test_a_name_is_measured_in_bytes(sent, name):
    answer = sent.http.post("/api/ingest", params={"name": name}, content=b"\0")
    told = answer.json()["error"]
    assert (answer.status_code, told["param"]) == (400, "name")
    assert f"it has {len(name.encode())} bytes" in told["message"]
    shorter = name.removesuffix(".txt")[: 255 // len(name[0].encode())]
    answer = sent.http.post("/api/ingest", params={"name": shorter}, content=b"\0")
    assert answer.status_code == 422
