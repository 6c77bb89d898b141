"""The size of a word index is judged within a tenth before the text is read."""

from pathlib import Path

import pytest
from small_documents import HEADER, SNAPSHOT, add_source

from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job
from longctx.core.ingest.plan import plan
from longctx.core.retrieve.word_sizes import SAMPLE, word_bytes
from longctx.core.retrieve.word_tables import word_tables
from longctx.core.store.library import Library
from longctx.core.store.word_files import files_in

ROOT = Path(__file__).parents[3]
TEXTS = {
    "book": (ROOT / "samples/harbour-book.md").read_bytes(),
    "letters": (ROOT / "samples/letters.md").read_bytes(),
    "code": b"\n".join(path.read_bytes() for path in sorted((ROOT / "core/store").glob("*.py"))),
    "log": b"".join(b"%08d GET /item/%x 200 %d ms\n" % (i, i * i, i % 97) for i in range(9000)),
    "no words": b". " * 5000,
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_index_of_a_text_is_judged_within_a_tenth(tmp_path, monkeypatch, name):
    monkeypatch.setattr("os.fsync", lambda handle: None)
    data = TEXTS[name]
    library = Library.open(tmp_path / "library", create=True)
    with library.writer("text", HEADER) as writer:
        add_source(writer, "text", data, step=1 << 16)  # a token is two bytes
        manifest = writer.complete(SNAPSHOT, words=word_tables)
    size = sum(shard.size for shard in files_in(manifest))
    expected = word_bytes(data[:SAMPLE], len(data), manifest.tokens)
    assert expected == pytest.approx(size, rel=0.1, abs=200)


def test_of_nothing_there_are_no_words():
    assert word_bytes(b"", 0, 0) == 0


def test_a_plan_knows_what_a_short_document_leaves_out(tmp_path, setup_random, models_loaded_once):
    """Its snapshot; and what it has: its words."""
    source = tmp_path / "short.txt"
    source.write_text("the keeper wrote of rain")
    made = plan(Job(tmp_path / "library", [str(source)], setup_random))
    done = ingest(tmp_path / "library", [str(source)], setup_random)
    document = Library.open(tmp_path / "library").document("short")
    assert not document.has_snapshot
    assert made.disk_bytes == pytest.approx(done.state_bytes, abs=2000)
