"""Searches without torch find what those with it find, and leave to it what they do not cover."""

import dataclasses
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from longctx import samples
from longctx.core.ask.session import Session
from longctx.core.common import accelerators
from longctx.core.common.errors import StateMismatch
from longctx.core.engine.choice import Setup
from longctx.core.ingest.ingest import ingest
from longctx.core.light import covered, session
from longctx.core.light.llama import attended, attention
from longctx.core.light.maxima import Maxima, maxima
from longctx.core.light.reading import Rows, quantized
from longctx.core.model.attention import causal_attention
from longctx.core.passages.matching import Query
from longctx.core.retrieve import late_interaction
from longctx.core.retrieve.finding import find_hits
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.store.library import Library
from longctx.kernels.quantize import quantize

SETUP = Setup(model="tiny", device="cpu", dtype="fp32", threads=1)
ASKED = Setup(device="cpu")
BOOK = Path(samples.__file__).parent / "harbour-book.md"
QUERIES = ("who kept the lamp at night", "what is the code of the oil-store padlock", "a storm")
LENGTHS = {"short": 300, "chunks": 9_000, "long": 21_000}  # characters
FOLDERS = {"few": 3_300, "files": 6_000}  # characters of each of three files
pytestmark = pytest.mark.usefixtures("models_loaded_once")


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    """Documents that are read again (of one chunk, and of several), stored, and two by files."""
    place = tmp_path_factory.mktemp("light")
    text = BOOK.read_text("utf-8")
    for name, length in LENGTHS.items():
        (place / f"{name}.txt").write_text(text[:length], "utf-8")
        ingest(place / "library", [str(place / f"{name}.txt")], SETUP, name)
    for name, size in FOLDERS.items():
        (place / name).mkdir()
        for number in range(3):
            part = text[number * size :][:size]
            (place / name / f"{number}.txt").write_text(part, "utf-8")
        ingest(place / "library", [str(place / name)], SETUP, name)
    return place / "library"


def manifest_of(library: Path, name: str):
    return Library.open(library).document(name).manifest


def looked(library: Path, name: str, query: str, gather_by: str | None = None):
    found = session.opened(library, manifest_of(library, name), query, gather_by, ASKED)
    assert found is not None
    return found


def hits_of(looked, query: str) -> list[tuple[int, int, int]]:
    words = Query(query, looked.index.word_weights(query), None)
    hits = find_hits(looked.documents, looked.ranked, words, 10, looked.index, False)
    return [(hit.source, hit.start, hit.end) for hit in hits]


def test_the_documents_are_of_every_kind(library):
    chunk = 1024
    names = (*LENGTHS, *FOLDERS)
    short, chunks, long, few, files = (manifest_of(library, name) for name in names)
    assert short.is_bare
    assert short.tokens < chunk
    assert chunks.is_bare
    assert 2 * chunk < chunks.tokens
    assert not long.is_bare
    assert "memory" in {shard.group for shard in long.shards}
    assert few.units == files.units == "source"
    assert few.is_bare
    assert few.size < 400_000  # of 10 kB of text
    assert not files.is_bare


@pytest.mark.parametrize(
    ("name", "gather_by"),
    [*product((*LENGTHS, *FOLDERS), [None]), ("short", "maxsim"), ("long", "maxsim")],
)
def test_the_same_is_found_in_the_same_order(library, name, gather_by):
    with Session(library, name, SETUP) as asking:
        again = name in ("chunks", "few")  # read for each question, by both
        for query in QUERIES[2:] if gather_by else QUERIES[: 1 if again else 2]:
            theirs = asking.look(query, gather_by)
            with looked(library, name, query, gather_by) as light:
                ours = light.look(query, gather_by)
                np.testing.assert_allclose(ours.ranked.scores, theirs.ranked.scores, atol=0.02)
                np.testing.assert_array_equal(
                    ours.ranked.passages.tokens, theirs.ranked.passages.tokens
                )
                assert hits_of(ours, query) == hits_of(theirs, query)
                told, wanted = ours.found.as_dict(), theirs.found.as_dict()
            assert told.keys() == wanted.keys()
            for part in ("found", "evidence", "documents", "question", "schema_version"):
                assert told[part] == wanted[part]
            assert told["tokens"] == {**wanted["tokens"], "gathered": 0}
            assert told["state"] == {
                **wanted["state"],
                "checked_bytes": told["state"]["checked_bytes"],
            }


@pytest.mark.parametrize(
    "other",
    [
        {"method": "reform"},
        {"profile": "tiny"},
        {"model": "small"},
        {"dtype": "bf16"},
        {"device": "cuda"},
    ],
    ids=str,
)
def test_other_choices_are_left_to_torch(library, other):
    setup = dataclasses.replace(ASKED, **other)
    assert session.opened(library, manifest_of(library, "short"), "a", None, setup) is None


def test_other_gather_sources_are_left_to_torch(library):
    for name in ("bm25", "method"):
        assert session.opened(library, manifest_of(library, "short"), "a", name, ASKED) is None


def test_kernels_that_the_user_chooses_are_left_to_torch(library, monkeypatch):
    monkeypatch.setenv("LONGCTX_KERNELS", "reference")
    assert session.opened(library, manifest_of(library, "short"), "a", None, ASKED) is None


def test_a_gpu_is_left_to_torch(library, monkeypatch):
    setup = dataclasses.replace(ASKED, device="auto")
    monkeypatch.setattr(accelerators, "has_none", lambda: False)
    assert session.opened(library, manifest_of(library, "short"), "a", None, setup) is None


def test_a_long_question_is_left_to_torch(library):
    words = "a very long question " * 400
    assert session.opened(library, manifest_of(library, "short"), words, None, ASKED) is None


def test_another_model_of_that_name_is_left_to_torch(library, monkeypatch):
    def other(self, fingerprint) -> None:
        raise StateMismatch("another")

    monkeypatch.setattr("longctx.core.store.document.Document.require_model", other)
    assert session.opened(library, manifest_of(library, "short"), "a", None, ASKED) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"accumulate": True},
        {"unknown": 1},
        {"chunk": "1024"},
        {"queries": 2000},
        {"heads": [[2, "v", 9]]},
        {"heads": [[2, "o", 0]]},
    ],
    ids=str,
)
def test_unknown_options_are_not_covered(library, changed):
    manifest = manifest_of(library, "short")
    files = covered.open_model_files("tiny")
    assert covered._options(manifest.options).depth == 4
    with pytest.raises(covered.NotCovered):
        covered._model(files, covered._options({**manifest.options, **changed}))


def test_a_document_that_is_searched_cannot_be_removed(library):
    from longctx.core.common.errors import Locked

    with looked(library, "short", "a"), pytest.raises(Locked):
        Library.open(library).remove("short")


# --- the parts, beside those of torch ---


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


@pytest.mark.parametrize(("T", "S"), [(1, 9), (5, 5), (300, 700)])
def test_attention(T, S):
    q, k, v = numbers(4, T, 8), numbers(2, S, 8), numbers(2, S, 8)[:, ::-1].copy()
    theirs = causal_attention(*map(torch.from_numpy, (q, k, v)), 0.3)
    np.testing.assert_allclose(attention(q, k, v, 0.3), theirs.numpy(), atol=1e-5)
    np.testing.assert_allclose(attended(q, k, 0.3).sum(-1), 1, atol=1e-5)


def test_quantized_vectors_are_the_same():
    states = numbers(50, 3, 16)
    states[7, 1] = 0
    theirs = quantize(torch.nn.functional.normalize(torch.from_numpy(states), dim=-1))
    ours = quantized(states)
    np.testing.assert_array_equal(ours.scales, theirs[1].numpy())
    assert np.abs(ours.vectors.astype(int) - theirs[0].numpy().astype(int)).max() <= 1
    assert (ours.vectors == theirs[0].numpy()).mean() > 0.999


@pytest.mark.parametrize("piece", [40, 64, 3000])
def test_maxima_are_the_same_numbers(library, piece):
    passages = PassageIndex(Library.open(library).document("long")).passages
    count = int(passages.first_tokens[-1])
    rows, question = quantized(numbers(count, 2, 8)), quantized(numbers(6, 2, 8)[::-1])
    pieces = (Rows(*(x[i : i + piece] for x in rows)) for i in range(0, count, piece))
    ours = maxima(question, pieces, passages)
    asked = tuple(map(torch.from_numpy, (question.vectors.copy(), question.scales.copy())))
    block = {name: torch.from_numpy(x) for name, x in rows._asdict().items()}
    own = torch.ones(6, dtype=torch.bool)
    theirs, _ = late_interaction.maxima(asked, own, [(0, block)], passages)
    np.testing.assert_array_equal(ours.best, theirs.numpy())
    for ranges in (passages.alone(), passages.around(4)):
        wanted = late_interaction.Maxima(theirs).scores(ranges)
        np.testing.assert_allclose(Maxima(ours.best).scores(ranges), wanted, atol=1e-9)
