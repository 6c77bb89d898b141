"""A library that several use at once: who is refused, who is named, and what waits for whom."""

import os

import pytest
from other_process import holding
from small_documents import (
    FIRST,
    HEADER,
    add_source,
    begin,
    files_of,
    lock_files,
    stopped_writer,
    write,
)

from longctx.core.common.errors import Locked, NotFound, UsageError
from longctx.core.store.places import PATIENCE

pytestmark = pytest.mark.usefixtures("no_sync")


def replace_book(library) -> None:
    with library.writer("book", HEADER, replace=True) as writer:
        add_source(writer, "new.txt", b"new")
        writer.complete({})


# ---- writers


def test_the_second_writer_is_refused(library):
    with library.writer("book", HEADER):
        with pytest.raises(Locked, match="'book' is being written"), library.writer("book", HEADER):
            pass
        with pytest.raises(Locked, match="'book' is being written"):
            library.remove("book")
        write(library, "other")
    write(library)


def test_a_writer_in_another_process_is_named_to_all(library):
    write(library, "other")
    begin(library)
    with holding(library.path, "exclusive", "unfinished/book") as process:
        refused = (
            lambda: library.writer("book", HEADER).__enter__(),
            lambda: library.writer("book", HEADER, replace=True).__enter__(),
            lambda: library.remove("book"),
            lambda: library.rename("other", "book"),
            lambda: library.document("book"),
            lambda: library.document("book", partial=True),
            lambda: library.reading("book", partial=True).__enter__(),
        )
        for use in refused:
            with pytest.raises(Locked, match=f"'book' is being written by process {process.pid} "):
                use()
        library.document("other")
        assert [manifest.name for manifest in library.documents()] == ["other", "book"]
    assert library.document("book", partial=True).manifest.tokens == 3


def test_a_document_that_is_being_replaced_is_read_meanwhile(library):
    write(library)
    with holding(library.path, "exclusive", "unfinished/book") as process:
        with library.reading("book") as document:
            document.verify()
        for use in (lambda: library.remove("book"), lambda: library.rename("book", "novel")):
            with pytest.raises(Locked, match=f"being written by process {process.pid} "):
                use()


def test_a_writer_that_was_killed_locks_nothing(library):
    begin(library)
    with holding(library.path, "exclusive", "unfinished/book") as process:
        process.kill()
        process.wait()
        assert len(lock_files(library.path)) == 2
        assert library.document("book", partial=True).manifest.tokens == 3
        with library.writer("book", HEADER, shard_rows=4) as writer:
            assert writer.begun.manifest.tokens == 3
    assert lock_files(library.path) == []


def test_who_is_done_leaves_nothing(library):
    write(library)
    with library.reading("book"):
        assert len(lock_files(library.path)) == 2
    library.rename("book", "novel")
    library.remove("novel")
    with pytest.raises(ZeroDivisionError), library.writer("book", HEADER):
        raise ZeroDivisionError
    assert lock_files(library.path) == []


# ---- readers


def test_what_is_read_is_neither_removed_nor_renamed(library):
    write(library)
    with holding(library.path, "shared", "documents/book") as process:
        who = f"'book' is being read by process {process.pid} on "
        with pytest.raises(Locked, match=who) as caught:
            library.remove("book")
        assert caught.value.exit_code == 11
        with pytest.raises(Locked, match=who):
            library.rename("book", "novel")
        with library.reading("book") as document:  # beside the other
            document.verify()
    assert not (library.path / "documents" / "novel").exists()
    library.remove("book")


def test_reading_holds_the_document_until_it_ends(library):
    write(library)
    with library.reading("book") as document:
        for use in (lambda: library.remove("book"), lambda: library.rename("book", "novel")):
            with pytest.raises(Locked, match=f"being read by process {os.getpid()} "):
                use()
        document.verify()
    library.remove("book")
    with pytest.raises(NotFound), library.reading("book"):
        pass


def test_a_checkpoint_that_is_read_is_not_gone_on_with(library):
    before = files_of(begin(library))
    with library.reading("book", partial=True) as document:
        refused = (
            lambda: library.writer("book", HEADER).__enter__(),
            lambda: library.writer("book", HEADER, replace=True).__enter__(),
            lambda: library.remove("book"),
        )
        for use in refused:
            with pytest.raises(Locked, match="'book' is being read"):
                use()
        document.verify()
        with library.reading("book", partial=True):  # beside the other
            pass
        with pytest.raises(NotFound, match="--partial"):
            library.document("book")  # says what is the matter, not who else asks
    assert files_of(library.path / "unfinished" / "book") == before


def test_a_document_that_goes_before_it_is_locked_is_not_found(library, monkeypatch):
    write(library)
    shared = library._places._locks.shared

    def remove_first(key):
        library.remove("book")
        return shared(key)

    monkeypatch.setattr(library._places._locks, "shared", remove_first)
    with pytest.raises(NotFound, match="no document 'book'"), library.reading("book"):
        pass
    assert lock_files(library.path) == []


# ---- publication


def test_a_new_document_waits_for_the_readers_of_the_old(library, clock):
    write(library)
    reading = library.reading("book")
    old = reading.__enter__()
    started = clock.now

    def read_on():
        old.verify()
        if clock.now > started + PATIENCE / 2:
            reading.__exit__(None, None, None)

    clock.at_sleep = read_on
    replace_book(library)
    assert PATIENCE / 2 < clock.now - started < PATIENCE / 2 + 1
    assert library.document("book").text(0, 0, 3) == b"new"
    assert not list((library.path / "unfinished").iterdir())


def test_a_reader_that_stays_keeps_the_old_and_the_next_writer_puts_the_new_in_place(
    library, clock
):
    write(library)
    with holding(library.path, "shared", "documents/book") as process:
        started = clock.now
        with pytest.raises(Locked, match="complete but not in its place") as caught:
            replace_book(library)
        assert PATIENCE <= clock.now - started < PATIENCE + 1
        assert f"read by process {process.pid} on" in caught.value.why
        assert library.document("book").text(0, 0, 3) == FIRST[:3]
        with pytest.raises(Locked, match="complete but not in its place"):
            write(library)  # waits in vain too
    assert library.document("book").text(0, 0, 3) == FIRST[:3]
    with pytest.raises(UsageError, match="exists"):
        write(library)
    assert library.document("book").text(0, 0, 3) == b"new"
    assert not list((library.path / "unfinished").iterdir())


def test_a_document_that_is_complete_is_given_its_place_when_that_is_free(library, clock):
    write(library)
    assert not library.settle("book")
    with library.reading("book") as old:
        with pytest.raises(Locked):
            replace_book(library)
        with pytest.raises(Locked, match="complete but not in its place"):
            library.settle("book")
        old.verify()
    with holding(library.path, "exclusive", "unfinished/book"), pytest.raises(Locked):
        library.settle("book")
    assert library.settle("book")
    assert library.document("book").text(0, 0, 3) == b"new"
    begin(library, "begun")
    assert not library.settle("begun")


def test_nobody_waits_for_readers_of_other_documents(library, clock):
    write(library)
    write(library, "other")
    before = clock.now
    with library.reading("other"):
        replace_book(library)
    assert clock.now == before


def test_a_stopped_replacement_leaves_the_old_readable_with_partial_too(library):
    write(library)
    with stopped_writer(library, replace=True) as writer:
        add_source(writer, "new.txt", b"new")
        writer.checkpoint({})
    with library.reading("book", partial=True) as document:
        assert document.text(0, 0, 3) == FIRST[:3]
