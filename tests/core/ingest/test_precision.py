"""A document read in fp8 says so, is read on only so, and is asked as any other."""

from dataclasses import replace

import pytest
import torch

from longctx.core.ask.session import Session
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.engine.opening import make_again
from longctx.core.engine.setup import Engine, prepare
from longctx.core.ingest import units
from longctx.core.ingest.append import append
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job
from longctx.core.ingest.many import read_each
from longctx.core.model import narrow
from longctx.core.store.library import Library

pytestmark = pytest.mark.usefixtures("models_loaded_once")
LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(40)]
TEXT = "\n".join(LINES)


class Stopped(BaseException):
    """As Ctrl-C, at a place of our choice."""


@pytest.fixture
def library(tmp_path):
    return tmp_path / "library"


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(TEXT, "utf-8")
    return path


@pytest.fixture
def setup(setup_random, monkeypatch):
    """Reading in fp8, which this computer is allowed: PyTorch multiplies such numbers anywhere."""
    monkeypatch.setattr(narrow, "refusal", lambda *_: None)
    return replace(setup_random, dtype="bf16", precision="fp8")


def stop(progress):
    if progress.tokens >= 200:
        raise Stopped


def vectors(library, name):
    with Library.open(library).reading(name) as document:
        return torch.cat([rows["vectors"] for _, rows in document.rows("embeddings")]).float()


def test_it_is_recorded_and_changes_what_is_kept_a_little(library, book, setup):
    ingest(library, [str(book)], setup)
    ingest(library, [str(book)], replace(setup, precision="full"), name="full")
    recorded = Library.open(library).document("book").manifest.recorded
    assert recorded["precision"] == "fp8"
    assert recorded["kernels"].endswith("fp8-1")
    assert "precision" not in Library.open(library).document("full").manifest.recorded
    ours, own = vectors(library, "book"), vectors(library, "full")
    assert not torch.equal(ours, own)
    assert torch.nn.functional.cosine_similarity(ours, own, dim=-1).mean() > 0.9
    assert ingest(library, [str(book)], setup).status == "unchanged"


def test_it_is_asked_in_the_number_format_of_the_model_anywhere(library, book, setup, monkeypatch):
    ingest(library, [str(book)], setup)
    monkeypatch.undo()
    with Session(library, "book", replace(setup, precision=None)) as session:
        assert session.engine.precision is None
        assert session.score("the boat", "method").pooled.isfinite().all()


@pytest.mark.parametrize(("first", "then"), [("full", "fp8"), ("fp8", None)])
def test_a_checkpoint_does_not_go_on_in_another_precision(library, book, setup, first, then):
    with pytest.raises(Stopped):
        ingest(
            library, [str(book)], replace(setup, precision=first),
            on_progress=stop, cadence=Cadence.given(1, None),
        )  # fmt: skip
    with pytest.raises(LongctxError, match=f"in another precision, {first}"):
        ingest(library, [str(book)], replace(setup, precision=then))
    assert ingest(library, [str(book)], replace(setup, precision=first)).reused_tokens >= 200


def test_what_is_appended_is_read_in_the_documents_own(library, book, setup, monkeypatch):
    ingest(library, [str(book)], setup)
    book.write_text(TEXT + TEXT, "utf-8")
    with pytest.raises(UsageError, match="one precision"):
        append(Job(library, [str(book)], replace(setup, precision="full"), name="book"))
    append(Job(library, [str(book)], replace(setup, precision=None), name="book"))
    assert Library.open(library).document("book").manifest.recorded["precision"] == "fp8"
    book.write_text(TEXT * 3, "utf-8")
    monkeypatch.undo()
    with pytest.raises(UsageError, match="cannot read with --precision fp8"):
        append(Job(library, [str(book)], replace(setup, precision=None), name="book"))


def test_room_is_what_the_rounded_weights_leave(setup, monkeypatch):
    engine, made = prepare(setup), []
    monkeypatch.setattr(Engine, "_room", lambda self: made.append(self._reader is not None))
    engine.new_method()
    engine.new_method(reading=True)
    assert made == [False, True]


def test_a_model_that_cannot_be_read_so_ends_reading_file_by_file(
    library, book, setup, monkeypatch
):
    monkeypatch.setattr(narrow, "SIZE", 1 << 20)
    with pytest.raises(LongctxError, match="in --precision fp8"):
        read_each(Job(library, [str(book)], setup))
    assert not Library.open(library).documents()


def test_what_a_short_folder_kept_no_rows_of_is_read_again_in_its_precision(
    library, tmp_path, setup, monkeypatch
):
    folder = tmp_path / "code"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.txt").write_text("\n".join(LINES[:6]) + name, "utf-8")
    monkeypatch.setattr(Engine, "can_leave_out", lambda self, method, tokens: tokens <= 1000)
    ingest(library, [str(folder)], setup, name="bare")
    with monkeypatch.context() as patch:
        patch.setattr(units, "LEAST", 1 << 30)
        ingest(library, [str(folder)], setup, name="kept")
    with Library.open(library).reading("bare") as document:
        assert document.manifest.is_bare
        make_again(prepare(setup), document)
        again = torch.cat([rows["vectors"] for _, rows in document.rows("embeddings")]).float()
    assert torch.equal(again, vectors(library, "kept"))
