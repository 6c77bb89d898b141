"""A snapshot that was left out is made again by reading, and questions are scored as with it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_documents import forge

from longctx.core.ask.answering import Question
from longctx.core.ask.candidates import of_names
from longctx.core.ask.joint_session import JointSession
from longctx.core.ask.session import Session
from longctx.core.common.errors import StateMismatch
from longctx.core.contracts.method import can_be_made_again
from longctx.core.engine.choice import recorded
from longctx.core.engine.setup import prepare, saved_snapshot
from longctx.core.ingest import ingest as ingesting
from longctx.core.ingest.append import append
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job
from longctx.core.store.library import Library

pytestmark = pytest.mark.usefixtures("models_loaded_once")
SHORT = "the keeper wrote of rain"
LONG = "a boat came home at dawn with salt and news of rain\n" * 40


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """No power fails here."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


def read(folder: Path, setup, text: str, name: str = "book", keep: bool = False) -> Library:
    """A library with a document; with `keep` a snapshot is never left out."""
    source = folder / f"{name}.txt"
    source.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        if keep:
            patch.setattr(ingesting, "can_be_made_again", lambda method, tokens: False)
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


def test_a_document_of_less_than_a_chunk_has_none(tmp_path, setup_random):
    assert "memory" not in groups(read(tmp_path, setup_random, SHORT))
    library = read(tmp_path, setup_random, LONG, "long")
    assert {"memory", "boundary"} <= groups(library, "long")
    library.document("book").verify()


@pytest.mark.parametrize("method", ["reattention", "h2o", "streaming", "infllm", "ltri", "full"])
def test_methods_that_answer_from_what_they_kept_keep_it(tmp_path, setup_random, method):
    library = read(tmp_path, replace(setup_random, method=method), SHORT)
    assert "memory" in groups(library)


def test_a_question_is_scored_as_with_it(tmp_path, setup_random):
    left_out = read(tmp_path, setup_random, SHORT)
    kept = read(tmp_path, setup_random, SHORT, "kept", keep=True)
    assert "memory" in groups(kept, "kept")
    assert torch.equal(scores(left_out, setup_random), scores(kept, setup_random, "kept"))
    document = left_out.document("book")
    engine = prepare(setup_random, recorded(document.manifest))
    again = engine.method_of(document, saved_snapshot(document)).snapshot()
    saved = kept.document("kept").snapshot()
    assert again.keys() == saved.keys()
    assert all(torch.equal(again[name], saved[name]) for name in saved)


def test_another_number_format_changes_scores_by_less_than_a_step_of_int8(tmp_path, setup_random):
    """Read in bfloat16 and asked in float32, with the snapshot and without."""
    coarse = replace(setup_random, dtype="bf16")
    read(tmp_path, coarse, SHORT)
    kept = read(tmp_path, coarse, SHORT, "kept", keep=True)
    apart = scores(kept, setup_random) - scores(kept, setup_random, "kept")
    assert apart.abs().max() < 1 / 127


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


def test_what_is_added_is_read_as_if_all_had_been_there(tmp_path, setup_random):
    library = read(tmp_path, setup_random, SHORT)
    (tmp_path / "book.txt").write_text(SHORT + LONG)
    append(Job(library.path, [str(tmp_path / "book.txt")], setup_random, "book"))
    whole = read(tmp_path, setup_random, SHORT + LONG, "whole")
    book, other = (whole.document(name).manifest.shards for name in ("book", "whole"))
    assert book == other
    assert "memory" in groups(library)


def test_tokens_that_the_model_does_not_have_are_damage(tmp_path, setup_random):
    library = read(tmp_path, setup_random, SHORT)
    document = library.document("book")
    engine = prepare(setup_random, recorded(document.manifest))
    document.rows = lambda group, names: [(0, {"ids": torch.tensor([1, 10**6]).int()})]
    with pytest.raises(StateMismatch, match="damaged"):
        engine.method_of(document, None)


def test_it_is_left_out_only_where_to_read_is_less_than_an_answer(setup_random):
    method = prepare(setup_random).new_method()
    assert method.chunk < method.gather
    assert can_be_made_again(method, method.chunk - 1)
    assert not can_be_made_again(method, method.chunk)
    method.gather = 10
    assert not can_be_made_again(method, 10)


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
    method = engine.method_of(document, saved_snapshot(document))
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
    with pytest.raises(StateMismatch, match="read by itself"):
        append(Job(library.path, [str(tmp_path / "book.txt")], setup_random, "book"))
