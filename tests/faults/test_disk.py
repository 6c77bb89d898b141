"""A disk that is full, or that cannot be written, costs no document and no checkpoint."""

from pathlib import Path

import pytest

from longctx.core.store.document import Document
from longctx.core.store.library import Library

FAILED = 70  # the exit code of `reader.py` after an error of ours


@pytest.mark.parametrize("size", [10, 900, 3000, 6000, 9000, 14_000])
def test_a_full_disk(reader, job, whole, documents, size):
    """RLIMIT_FSIZE stands for it: every file that grows over `size` fails to be written."""
    failed = reader(**job, file_size=size)
    assert (failed["code"], failed.get("error_code")) == (FAILED, 1), failed["said"]
    assert "cannot write" in failed["error"]
    assert "bytes free" in failed["error"]
    assert list(Path(job["library"]).rglob(".tmp-*")) == []
    kept = 0
    for manifest in Library.open(Path(job["library"])).documents() if size > 20 else ():
        kept = manifest.tokens
        if kept:
            Document(Path(job["library"]) / "unfinished" / manifest.name).verify()
    again = reader(**job)
    assert (again["code"], again["reused"]) == (0, kept), again["said"]
    assert documents(job["library"]) == whole[0]


def test_a_disk_that_fills_up_after_some_checkpoints(reader, job):
    """What was kept before stays, however often the writing fails."""
    kept = [reader(**job, file_size=14_000) for _ in range(3)]
    assert {failed["code"] for failed in kept} == {FAILED}
    begun = Library.open(Path(job["library"])).document("part0", partial=True)
    begun.verify()
    assert begun.manifest.tokens > 100


def test_a_library_that_cannot_be_written(reader, job, whole, documents):
    """It is asked as ever, and says so when it should be written."""
    assert reader(**job)["code"] == 0
    for more in ({"replace": True}, {"paths": job["paths"][1:]}):
        failed = reader(**{**job, **more}, read_only=True)
        assert (failed["code"], failed["error_code"]) == (FAILED, 1), failed["said"]
        assert "cannot write" in failed["error"]
    assert reader(**job, read_only=True, ask="boat?")["code"] == 0
    assert documents(job["library"]) == whole[0]
