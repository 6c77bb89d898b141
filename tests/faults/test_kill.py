"""A reading that is killed at any moment leaves a library in order, and is gone on with exactly."""

import json
import os
import signal
from pathlib import Path

import pytest
from sampled import WHOLE

from longctx.core.common.errors import LongctxError
from longctx.core.store.document import Document
from longctx.core.store.library import Library

KILLS = int(os.environ.get("LONGCTX_KILLS", "18" if WHOLE else "9"))
# Spread over the reading; a third of them over its last eighth, where it becomes a document.
MOMENTS = [*(i / KILLS for i in range(0, KILLS, 3)), *(i / KILLS for i in range(1, KILLS, 3))]
MOMENTS += [7 / 8 + i / KILLS / 8 for i in range(2, KILLS, 3)]
TOKENS = 1182
PLACES = {"complete": "documents", "draft": "drafts"}


def test_the_cadence_does_not_change_the_bytes(reader, job, whole, documents, tmp_path):
    for every in (32, 10_000):
        library = str(tmp_path / f"every{every}")
        assert reader(**{**job, "library": library, "every": every})["code"] == 0
        assert documents(library) == whole[0]


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_and_gone_on_with(reader, job, whole, documents, moment):
    expected, events = whole
    fatal = int(moment * events)
    killed = reader(**job, fatal=fatal)
    assert (killed["code"], killed["events"]) == (-signal.SIGKILL, fatal)
    kept = in_order(job["library"])
    again = reader(**job)
    assert again["code"] == 0, again["said"]
    assert documents(job["library"]) == expected
    assert again["reused"] == (kept if again["status"] == "complete" else TOKENS)
    assert list(Path(job["library"]).glob("unfinished/*")) == []


@pytest.fixture(scope="session")
def drafted(reader, sources, settings, documents, tmp_path_factory) -> tuple[dict[str, bytes], int]:
    """As `whole`, where the words are stored before the model reads."""
    library = tmp_path_factory.mktemp("drafted") / "library"
    done = reader(library=str(library), paths=sources, setup=settings, every=96, draft=True)
    assert done["code"] == 0, done["said"]
    assert not list(library.glob("drafts/*"))
    return documents(library), done["events"]


def test_a_draft_does_not_change_the_bytes(whole, drafted):
    assert drafted[0] == whole[0]
    assert drafted[1] > whole[1]


@pytest.mark.parametrize("moment", [i / (2 * KILLS) for i in range(2 * KILLS)])
def test_killed_with_a_draft_and_gone_on_with(reader, job, drafted, documents, moment):
    expected, events = drafted
    fatal = int(moment * events)
    killed = reader(**job, draft=True, fatal=fatal)
    assert (killed["code"], killed["events"]) == (-signal.SIGKILL, fatal)
    in_order(job["library"])
    again = reader(**job, draft=True)
    assert again["code"] == 0, again["said"]
    assert documents(job["library"]) == expected
    left = [*Path(job["library"]).glob("unfinished/*"), *Path(job["library"]).glob("drafts/*")]
    assert not left


def test_killed_again_and_again(reader, job, whole, documents):
    """Every run gets a little further, or at least loses nothing."""
    expected, events = whole
    reused = [0]
    for _ in range(20):
        killed = reader(**job, fatal=events // 2)
        if killed["code"] == 0:
            break
        reused.append(in_order(job["library"]))
        assert reused[-1] >= reused[-2]
    done = reader(**job)
    assert documents(job["library"]) == expected
    assert done["code"] == 0
    assert len(set(reused)) > 2


def in_order(library: str) -> int:
    """Checks that all that can be opened is whole; returns the tokens of an unfinished document."""
    try:
        store = Library.open(Path(library))
    except LongctxError:  # killed before there was one
        return 0
    kept = 0
    for manifest in store.documents():
        place = PLACES.get(manifest.status, "unfinished")
        folder = Path(library) / place / manifest.name
        if not folder.exists():  # complete, but not in its place
            folder = Path(library) / "unfinished" / manifest.name
        if manifest.status == "damaged":  # killed between the folder and its first manifest
            assert list(folder.glob("manifest.json")) == [], json.dumps(manifest.report)
            continue
        document = Document(folder)
        document.verify()
        kept = manifest.tokens if manifest.status == "reading" else 0
    return kept
