"""A state of converted sources: the same however often its reading was stopped, and checked."""

import gzip
import json
from pathlib import Path

import pytest
from sample_files import pdf, put, zipped
from sampled import sampled
from small_documents import files_of

from longctx.core.common.errors import UsageError
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.ingest import ingest
from longctx.core.store.library import Library

WORDS = "the keeper wrote in his book that a boat came home at dawn"
pytestmark = pytest.mark.usefixtures("models_loaded_once")


class Stopped(BaseException):
    """As Ctrl-C."""


@pytest.fixture
def top(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr("os.fsync", lambda handle: None)
    pages = "".join(f"<p>{WORDS}</p>\n" for _ in range(4))
    files = {"a.html": pages.encode(), "b.zip": zipped({"c.pdf": pdf(*[WORDS] * 3), "d": b""})}
    files |= {"e.txt.gz": gzip.compress(f"{WORDS}\n".encode() * 3), "f.txt": WORDS.encode()}
    return put(tmp_path / "top", files)


def state(library: Path) -> dict[str, bytes]:
    files = files_of(library / "documents" / "top")
    manifest = json.loads(files.pop("manifest.json"))
    return {**files, "sources": json.dumps(manifest["sources"]).encode()}


@pytest.mark.parametrize("after", sampled(range(1, 9), 5))
def test_stopped_and_gone_on_with(top, tmp_path, setup_random, after):
    ingest(tmp_path / "straight", [str(top)], setup_random)
    library, told = tmp_path / "stopped", []

    def stop(progress) -> None:
        told.append(progress)
        if len(told) == after + 1:
            raise Stopped

    every_chunk = Cadence.given(1, None)
    with pytest.raises(Stopped):
        ingest(library, [str(top)], setup_random, cadence=every_chunk, on_progress=stop)
    done = ingest(library, [str(top)], setup_random, cadence=every_chunk)
    assert done.reused_tokens
    assert len(done.left_out) == 1
    assert state(library) == state(tmp_path / "straight")
    document = Library.open(library).document("top")
    document.verify()
    sources = document.manifest.sources
    assert [source.origin and source.origin.marks for source in sources] == [
        *["line", "page", None, None]
    ]
    for number, kind in [(0, ""), (1, "p. ")]:
        text = document.text(number, 0, sources[number].size)
        places = [text.index(b"keeper")]
        while (at := text.find(b"keeper", places[-1] + 1)) > 0:
            places.append(at)
        cited = [document.place(number, at) for at in places]
        assert cited == [f"{kind}{n}" for n in range(1, len(places) + 1)]


def test_an_archive_that_changed_is_not_gone_on_with(top, tmp_path, setup_random):
    def stop(progress) -> None:
        if progress.tokens > 150:
            raise Stopped

    every_chunk = Cadence.given(1, None)
    with pytest.raises(Stopped):
        ingest(tmp_path / "l", [str(top)], setup_random, cadence=every_chunk, on_progress=stop)
    put(top, {"b.zip": zipped({"c.pdf": pdf(*[WORDS] * 4), "d": b""})})
    with pytest.raises(UsageError, match="changed since"):
        ingest(tmp_path / "l", [str(top)], setup_random)
