"""What the store's tests share: an empty library, small files, and no waiting for disk or clock."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from longctx.core.store import shards
from longctx.core.store.library import Library
from longctx.core.store.locks import Locks


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test cuts the power, and waiting for the disk is most of the time."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library.open(tmp_path / "library", create=True)


@pytest.fixture
def locks(tmp_path: Path) -> Locks:
    return Locks(tmp_path)


@pytest.fixture
def unfinished(library: Library) -> Path:
    """Where the document "book" is while it is written."""
    return library.path / "unfinished" / "book"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, members and files so small that a short document has many."""
    monkeypatch.setattr(shards, "BLOCK", 64)
    monkeypatch.setattr(shards, "MEMBER", 8)
    monkeypatch.setattr("longctx.core.store.writer.MEMBER", 8)
    monkeypatch.setattr(shards, "MEMBERS", 3)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """For locks, time passes only while somebody waits for one; `at_sleep` is called then."""
    clock = SimpleNamespace(now=100.0, at_sleep=lambda: None)

    def sleep(seconds: float) -> None:
        clock.now += seconds
        clock.at_sleep()

    fake = SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep)
    monkeypatch.setattr("longctx.core.store.locks.time", fake)
    return clock
