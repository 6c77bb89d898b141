"""Claims: who writes a document where locks do not reach, who takes over, and who is kept out."""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_documents import FIRST, HEADER, add_source, lock_files, write

from longctx.core.common.errors import Locked, LongctxError
from longctx.core.store import claims, locks
from longctx.core.store.claims import Claims
from longctx.core.store.confined import Confined
from longctx.core.store.library import Library
from longctx.core.store.upkeep import sweep
from longctx.core.store.verify import verify

pytestmark = pytest.mark.usefixtures("no_sync")
FAR = {"pid": 4711, "host": "far", "mark": "00"}


def place(library: Library) -> Path:
    return library.path / "locks" / "unfinished" / "book"


def claim(library: Library, number: int = 1, age: float = 0.0, **said) -> Path:
    """A claim of another host, or of whom it says, touched so many seconds ago."""
    file = place(library) / f"{number}.claim"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**FAR, **said}))
    then = time.time() - age
    os.utime(file, (then, then))
    return file


def claimed(library: Library) -> list[str]:
    return sorted(file.name for file in place(library).glob("*.claim"))


@pytest.fixture
def unseen(monkeypatch):
    """A file system whose locks nobody else sees."""
    monkeypatch.setattr(locks, "_taken", lambda handle: True)


# ---- who writes


def test_a_writer_says_who_it_is_and_leaves_nothing(library):
    with library.writer("book", HEADER) as writer:
        said = json.loads((place(library) / "1.claim").read_text())
        assert (said["pid"], said["host"]) == (os.getpid(), socket.gethostname())
        add_source(writer, "one.txt", FIRST)
        writer.complete({})
    assert lock_files(library.path) == []


def test_it_shows_signs_of_life(library, monkeypatch):
    monkeypatch.setattr(claims, "BEAT", 0.01)
    with library.writer("book", HEADER):
        file = place(library) / "1.claim"
        os.utime(file, (1000, 1000))
        until = time.monotonic() + 60
        while file.stat().st_mtime == 1000 and time.monotonic() < until:
            time.sleep(0.01)
        assert file.stat().st_mtime > 1000


def test_it_shows_no_sign_of_life_for_another_claim_of_its_number(library):
    ticks = iter([False, False, True])
    file = Confined(library.path) / "locks" / "unfinished" / "book" / "1.claim"
    with library.writer("book", HEADER):
        ours = claims.Claimant(**json.loads((place(library) / "1.claim").read_text()))
        theirs = claim(library, 1, age=1000.0)
        then = theirs.stat().st_mtime
        claims._beat(file, ours, SimpleNamespace(wait=lambda seconds: next(ticks)))
        assert theirs.stat().st_mtime == then
    assert claimed(library) == ["1.claim"]  # nor is it deleted by the one that was late


def test_where_no_thread_can_show_signs_of_life_nothing_is_written(library, monkeypatch):
    def refused(function, args):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(claims, "start_new_thread", refused)
    with pytest.raises(LongctxError, match=r"cannot keep the claim .*can't start new thread"):
        _entered(library.writer("book", HEADER))
    assert lock_files(library.path) == []
    assert list((library.path / "unfinished").iterdir()) == []


@pytest.mark.parametrize("what", ["writer", "longer", "remove", "receiving", "sweep"])
def test_what_another_host_writes_is_left_alone(library, what):
    write(library)
    claim(library)
    (library.path / "unfinished" / "book").mkdir(exist_ok=True)
    if what == "sweep":
        [kept] = sweep(library).kept
        assert "process 4711 on far" in kept.why
    else:
        given = {"writer": ({},), "receiving": (True,)}.get(what, ())
        with pytest.raises(Locked, match="'book' is being written by process 4711 on far"):
            _entered(getattr(library, what)("book", *given))
    assert claimed(library) == ["1.claim"]
    assert (library.path / "unfinished" / "book").is_dir()


def _entered(context) -> None:
    with context:
        pass


# ---- who takes over


def test_a_claim_without_a_sign_of_life_is_taken_over_by_the_next_number(library):
    claim(library, 3, age=claims.STALE + 5)
    claim(library, 2)
    with library.writer("book", HEADER):
        assert claimed(library) == ["4.claim"]
    assert claimed(library) == []


def test_a_dead_process_of_this_host_is_not_waited_for(library):
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        pass
    claim(library, pid=dead.pid, host=socket.gethostname())
    with library.writer("book", HEADER):
        assert claimed(library) == ["2.claim"]


def test_a_claim_that_says_nothing_was_left_by_a_power_cut(library, monkeypatch):
    monkeypatch.setattr(claims, "WRITTEN", 0.05)
    claim(library).write_bytes(b"")
    with library.writer("book", HEADER):
        assert claimed(library) == ["2.claim"]


def test_a_claim_that_is_being_written_is_waited_for(library, monkeypatch):
    monkeypatch.setattr(claims, "WRITTEN", 20.0)
    file = claim(library)
    said = file.read_bytes()
    file.write_bytes(said[:20])
    writing = threading.Timer(0.2, file.write_bytes, (said,))
    writing.start()
    with pytest.raises(Locked, match="4711 on far"), library.writer("book", HEADER):
        pass
    writing.join()


def test_of_two_that_see_the_same_stale_claim_one_gets_it(library, monkeypatch):
    claim(library, age=claims.STALE + 5)
    both, got, refused = threading.Barrier(2), [], []

    def mark(size):
        both.wait(60)  # both have judged the old claim
        return f"{threading.get_ident():x}"

    def take():
        with ExitStack() as held:
            try:
                held.enter_context(Claims(library.path).taken("book"))
                got.append(claimed(library))
            except Locked:
                refused.append(1)
            both.wait(60)  # none leaves before the other has tried

    monkeypatch.setattr(claims.secrets, "token_hex", mark)
    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (got, refused) == ([["2.claim"]], [1])


def test_a_number_that_was_used_again_meanwhile_is_not_taken_over(library, monkeypatch):
    claim(library, age=claims.STALE + 5)

    def mark(size):  # others took over, ended, and the third began with 1
        claim(library, mark="01")
        return "00"

    monkeypatch.setattr(claims.secrets, "token_hex", mark)
    with pytest.raises(Locked, match="process 4711 on far"), Claims(library.path).taken("book"):
        pass
    assert json.loads((place(library) / "1.claim").read_text())["mark"] == "01"
    assert claimed(library) == ["1.claim"]


def test_gc_deletes_stale_claims_alone(library):
    claim(library, 1, age=claims.STALE + 5)
    other = library.path / "locks" / "unfinished" / "other"
    other.mkdir()
    (other / "7.claim").write_text(json.dumps(FAR))
    assert "locks/unfinished/book/1.claim" in {each.path for each in sweep(library).removed}
    assert lock_files(library.path) == ["7.claim"]


def test_gc_leaves_the_claim_of_a_process_that_was_stopped_and_goes_on(library):
    with library.writer("book", HEADER) as writer:
        add_source(writer, "one.txt", FIRST)
        os.utime(place(library) / "1.claim", (1000, 1000))  # as after Ctrl-Z for longer than STALE
        sweep(library)
        assert claimed(library) == ["1.claim"]
        writer.checkpoint({})
        assert (place(library) / "1.claim").stat().st_mtime > 1000  # before its next sign of life
        writer.complete({})
    assert [each.status for each in library.documents()] == ["complete"]


# ---- who is kept out


def test_one_that_said_nothing_for_too_long_does_not_begin(library, monkeypatch):
    """Before it writes, it may empty the folder in which the other one writes by now."""
    monkeypatch.setattr(claims, "WRITTEN", 0.02)
    place(library).mkdir(parents=True)
    usual, both = json.dumps, ExitStack()

    def dumps(said):  # its file is made, and says nothing yet
        monkeypatch.setattr(claims.json, "dumps", usual)
        both.enter_context(Claims(library.path).taken("book"))
        return usual(said)

    monkeypatch.setattr(claims.json, "dumps", dumps)
    with both:
        with pytest.raises(Locked, match="being written by process"):
            _entered(Claims(library.path).taken("book"))
        assert claimed(library) == ["2.claim"]
    assert claimed(library) == []


def test_a_claim_of_its_number_stays_when_its_own_could_not_be_written(library, monkeypatch):
    place(library).mkdir(parents=True)
    usual = json.dumps

    def dumps(said):  # others took over, ended, and the third began with 1
        monkeypatch.setattr(claims.json, "dumps", usual)
        claim(library)
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(claims.json, "dumps", dumps)
    with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
        _entered(Claims(library.path).taken("book"))
    assert json.loads((place(library) / "1.claim").read_text())["host"] == "far"


@pytest.mark.usefixtures("unseen")
def test_a_slow_writer_neither_saves_nor_publishes_what_another_one_has_taken_over(
    library, monkeypatch
):
    with library.writer("book", HEADER) as slow:
        add_source(slow, "one.txt", FIRST)
        slow.checkpoint({})
        os.utime(place(library) / "1.claim", (1000, 1000))  # it sleeps, and so does its host
        monkeypatch.setattr(socket, "gethostname", lambda: "near")
        with library.writer("book", HEADER) as taker:
            assert taker.begun.manifest.tokens
            before = _files(library)
            for late in (slow.checkpoint, slow.complete):
                with pytest.raises(Locked, match="taken it over") as caught:
                    late({})
                assert f"process {os.getpid()} on near" in str(caught.value)
            with pytest.raises(Locked):
                slow.discard()
            assert _files(library) == before
            taker.complete({})
        with pytest.raises(Locked):
            slow.complete({})
        shutil.rmtree(place(library))  # as `gc` of a host that sees nobody's locks
        with pytest.raises(Locked):
            slow.complete({})
    assert lock_files(library.path) == []
    assert [each.status for each in library.documents()] == ["complete"]
    assert [each.status for each in verify(library)] == ["ok"]


def test_a_claim_that_cannot_be_read_is_not_taken_for_lost(library):
    with library.writer("book", HEADER) as writer:
        add_source(writer, "one.txt", FIRST)
        file = place(library) / "1.claim"
        ours = file.rename(place(library) / "kept")
        file.mkdir()
        with pytest.raises(LongctxError, match=r"cannot write '.*1\.claim'") as caught:
            writer.checkpoint({})
        assert not isinstance(caught.value, Locked)
        file.rmdir()
        ours.rename(file)
        writer.checkpoint({})


def _files(library: Library) -> dict[str, bytes]:
    found = (library.path / "unfinished").rglob("*")
    return {str(path): path.read_bytes() for path in found if path.is_file()}
