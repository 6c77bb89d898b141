"""What a short document leaves out is made again by reading: questions are scored as with it."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_documents import forge

from longctx.core.ask.answering import Question
from longctx.core.ask.candidates import of_names
from longctx.core.ask.joint_session import JointSession
from longctx.core.ask.session import Session
from longctx.core.common.errors import StateMismatch, UsageError
from longctx.core.contracts.method import can_be_made_again
from longctx.core.engine.choice import Setup, recorded
from longctx.core.engine.opening import memory_of, saved_snapshot
from longctx.core.engine.setup import Engine, prepare
from longctx.core.ingest.append import append
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job
from longctx.core.store.archive import export, receive
from longctx.core.store.boundary import Boundary
from longctx.core.store.library import Library

pytestmark = pytest.mark.usefixtures("models_loaded_once")
SHORT = "the keeper wrote of rain"
CHUNKS = "a boat came home at dawn with salt and news of rain\n" * 3  # evicted from, and short
LONG = "a boat came home at dawn with salt and news of rain\n" * 40


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """No power fails here."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


def read(folder: Path, setup, text: str, name: str = "book", keep: bool = False) -> Library:
    """A library with a document; with `keep` nothing is left out."""
    source = folder / f"{name}.txt"
    source.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        if keep:
            patch.setattr(Engine, "can_leave_out", lambda self, method, tokens: False)
        ingest(folder / "library", [str(source)], setup, name)
    return Library.open(folder / "library")


def groups(library: Library, name: str = "book") -> set[str]:
    return {shard.group for shard in library.document(name).manifest.shards}


def scores(library: Library, setup, name: str = "book") -> torch.Tensor:
    with Session(library.path, name, setup) as session:
        words = "who wrote of rain?"
        prompt, decoding = session.engine.prompt, session.engine.decoding
        question = Question(*prompt.question(words), 8, None, decoding, words)
        return session._way("", "method").score(question).raw


@pytest.mark.parametrize("text", [SHORT, CHUNKS], ids=["a part of a chunk", "chunks"])
def test_a_short_document_keeps_nothing_but_its_text(tmp_path, setup_random, text):
    library = read(tmp_path, setup_random, text)
    assert groups(library) == {"text", "lines", "tokens", "words"}
    document = library.document("book")
    assert document.manifest.is_bare
    assert document.boundary() == Boundary(0, {}, 0)
    document.verify()


def test_a_long_document_keeps_what_was_made_of_it(tmp_path, setup_random):
    library = read(tmp_path, setup_random, LONG)
    assert {"memory", "boundary", "embeddings"} <= groups(library)
    assert not library.document("book").manifest.is_bare


def test_ten_kilobytes_of_text_take_less_than_400(tmp_path):
    """With the bundled model, in the number format of the reading; what it keeps is known."""
    text = (Path(__file__).parents[3] / "samples" / "minutes.md").read_bytes()[:10_000]
    library = read(tmp_path, Setup(model="tiny", device="cpu"), text.decode())
    document = library.document("book")
    tokens = document.manifest.tokens
    assert document.manifest.is_bare
    assert document.size() < 400_000
    assert document.manifest.parts["tokens"] == pytest.approx(6 * tokens, abs=200)
    assert document.manifest.parts["words"] < 6 * tokens


@pytest.mark.parametrize("method", ["reattention", "h2o", "streaming", "infllm", "ltri", "full"])
def test_methods_that_answer_from_what_they_kept_keep_it(tmp_path, setup_random, method):
    library = read(tmp_path, replace(setup_random, method=method), SHORT)
    assert "memory" in groups(library)


@pytest.mark.parametrize("text", [SHORT, CHUNKS], ids=["a part of a chunk", "chunks"])
def test_a_question_is_scored_and_answered_as_with_it(tmp_path, setup_random, text):
    left_out = read(tmp_path, setup_random, text)
    kept = read(tmp_path, setup_random, text, "kept", keep=True)
    assert {"memory", "embeddings"} <= groups(kept, "kept")
    assert torch.equal(scores(left_out, setup_random), scores(kept, setup_random, "kept"))
    document = left_out.document("book")
    engine = prepare(setup_random, recorded(document.manifest))
    again = memory_of(engine, document, saved_snapshot(document)).snapshot()
    saved = kept.document("kept").snapshot()
    assert again.keys() == saved.keys()
    assert all(torch.equal(again[name], saved[name]) for name in saved)
    [(_, rows)], [(_, stored)] = (d.rows("embeddings") for d in (document, kept.document("kept")))
    assert all(torch.equal(rows[name], stored[name]) for name in stored)
    some = torch.tensor([0, 2])
    taken = document.take("embeddings", some, ("scales",))
    assert torch.equal(taken["scales"], stored["scales"][some])
    asked = []
    for name in ("book", "kept"):
        with Session(left_out.path, name, setup_random) as session:
            told, found = session.ask("who wrote of rain?"), session.find("rain")
            asked.append((told.answer, [(p.score, p.text) for p in found.passages]))
    assert asked[0] == asked[1]


def test_another_number_format_changes_scores_by_less_than_two_steps_of_int8(
    tmp_path, setup_random
):
    """Read in bfloat16 and asked in float32, with what was kept and without."""
    coarse = replace(setup_random, dtype="bf16")
    read(tmp_path, coarse, SHORT)
    kept = read(tmp_path, coarse, SHORT, "kept", keep=True)
    apart = scores(kept, setup_random) - scores(kept, setup_random, "kept")
    assert apart.abs().max() < 2 / 127


def test_the_prefix_is_that_of_the_reading(tmp_path, setup_random, model_folder):
    """Also where the user asks with a profile that has another."""
    library = read(tmp_path, setup_random, SHORT)
    other = tmp_path / "other.yaml"
    profile = (model_folder / "profile.yaml").read_text()
    other.write_text(profile.replace('prefix: "<s>"', 'prefix: "<s>rain rain rain"'))
    asked = replace(setup_random, profile=str(other))
    kept = read(tmp_path, setup_random, SHORT, "kept", keep=True)
    assert torch.equal(scores(library, asked), scores(kept, asked, "kept"))


def test_several_documents_are_asked_without_theirs(tmp_path, setup_random):
    found = []
    for keep in (False, True):
        folder = tmp_path / str(keep)
        folder.mkdir()
        for name, text in (("a", SHORT), ("b", SHORT.upper())):
            library = read(folder, setup_random, text, name, keep)
        with JointSession(of_names(library, ["a", "b"]), setup_random) as session:
            found.append([(p.document, p.score) for p in session.find("rain").passages])
    assert found[0] == found[1]


@pytest.mark.parametrize("more", ["\n" + SHORT, LONG], ids=["still short", "long"])
def test_what_is_added_is_read_as_if_all_had_been_there(tmp_path, setup_random, more):
    library = read(tmp_path, setup_random, SHORT)
    (tmp_path / "book.txt").write_text(SHORT + more)
    append(Job(library.path, [str(tmp_path / "book.txt")], setup_random, "book"))
    whole = read(tmp_path, setup_random, SHORT + more, "whole")
    book, other = (whole.document(name).manifest.shards for name in ("book", "whole"))
    assert book == other
    assert ("memory" in groups(library)) == (more == LONG)


def test_an_archive_carries_it_elsewhere(tmp_path, setup_random):
    library = read(tmp_path, setup_random, CHUNKS)
    packed = io.BytesIO()
    with library.reading("book") as document:
        export(document, packed)
    packed.seek(0)
    receive(library.path, packed, "book.longctx", "other")
    assert groups(library, "other") == groups(library)
    assert torch.equal(scores(library, setup_random), scores(library, setup_random, "other"))


def test_a_state_that_left_out_the_snapshot_alone_is_read(tmp_path, setup_random):
    """As versions before wrote it of less than a chunk: with its embeddings."""
    library = read(tmp_path, setup_random, SHORT, keep=True)
    expected = scores(library, setup_random)

    def change(data: dict) -> None:
        data["shards"] = [s for s in data["shards"] if s["group"] != "memory"]

    forge(library.path / "documents" / "book", change)
    assert not library.document("book").manifest.is_bare
    assert torch.equal(scores(library, setup_random), expected)


def test_tokens_that_the_model_does_not_have_are_damage(tmp_path, setup_random):
    library = read(tmp_path, setup_random, SHORT)
    document = library.document("book")
    engine = prepare(setup_random, recorded(document.manifest))
    document.rows_between = lambda *which: [{"ids": torch.tensor([1, 10**6]).int()}]
    with pytest.raises(StateMismatch, match="damaged"):
        memory_of(engine, document, None)


def test_it_is_left_out_only_where_to_read_is_less_than_an_answer(setup_random):
    method = prepare(setup_random).new_method()
    most = 2 * (method.gather or 0)  # half the layers are read
    layers = 2 * method.depth
    assert can_be_made_again(method, most, most, layers)
    assert not can_be_made_again(method, most + 1, most + 1, layers)
    assert not can_be_made_again(method, most, most - 1, layers)  # longer than the window


# --- sources that were read each by itself ---


def by_source(library: Library, name: str) -> None:
    """Makes of a document one whose only source was read by itself: of one, that is the same."""

    def change(data: dict) -> None:
        data["units"] = "source"
        snapshots = ("memory", "boundary")
        data["shards"] = [s for s in data["shards"] if s["group"] not in snapshots]
        del data["report"]["boundary"]

    forge(library.path / "documents" / name, change)


def test_a_question_about_sources_is_read_behind_the_prefix_alone(tmp_path, setup_random):
    library = read(tmp_path, setup_random, LONG)
    behind = scores(library, setup_random)
    by_source(library, "book")
    document = library.document("book")
    document.verify()
    engine = prepare(setup_random, recorded(document.manifest))
    method = memory_of(engine, document, saved_snapshot(document))
    assert int(method.snapshot()["seen"]) == len(engine.prompt.prefix())
    alone = scores(library, setup_random)
    assert len(alone) == document.manifest.tokens
    assert not torch.equal(alone, behind)
    with Session(library.path, "book", setup_random) as session:
        assert session.find("rain").passages
        assert session.ask("rain?").answer is not None


def test_such_a_document_is_not_made_longer(tmp_path, setup_random):
    library = read(tmp_path, setup_random, LONG)
    by_source(library, "book")
    (tmp_path / "book.txt").write_text(LONG + SHORT)
    with pytest.raises(UsageError, match="read whole"):
        append(Job(library.path, [str(tmp_path / "book.txt")], setup_random, "book"))
