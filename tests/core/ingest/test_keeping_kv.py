"""Documents whose keys and values are kept: what is stored, asked and refused."""

import dataclasses
from pathlib import Path

import pytest
import torch
from sampled import sampled

from longctx.core.ask.answer import Answer, Found
from longctx.core.ask.session import Session
from longctx.core.common.errors import LongctxError, StateMismatch, UsageError
from longctx.core.engine import disk
from longctx.core.engine.setup import Engine, prepare
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job
from longctx.core.ingest.plan import plan
from longctx.core.methods import reattention
from longctx.core.profile.sampling import Sampling
from longctx.core.retrieve.gather_by import METHOD
from longctx.core.store.library import Library

LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(20)]
QUESTION = "which boat came home on line 7?"
WAYS = {
    "reattention": {"method": "reattention"},
    "int8": {"method": "reattention", "kv_dtype": "int8"},
    "infllm": {"method": "infllm"},
    "infllm, int8": {"method": "infllm", "kv_dtype": "int8"},
    "ltri": {"method": "ltri"},
    "ltri, int8": {"method": "ltri", "kv_dtype": "int8"},
    "both": {"keep_kv": True},
    "both, bf16": {"keep_kv": True, "kv_dtype": "bf16"},
}
pytestmark = pytest.mark.usefixtures("models_loaded_once")


class Stopped(BaseException):
    """As Ctrl-C, at a place of our choice."""


@pytest.fixture
def library(tmp_path) -> Path:
    return tmp_path / "library"


@pytest.fixture
def book(tmp_path) -> str:
    path = tmp_path / "book.txt"
    path.write_text("\n".join(LINES))
    return str(path)


def stop_at(place: int, library, book, setup) -> None:
    """Reads until there are so many tokens, with a checkpoint after every chunk."""

    def stop(progress):
        if progress.tokens >= place:
            raise Stopped

    every = Cadence.given(1, None)
    with pytest.raises(Stopped):
        ingest(library, [book], setup, cadence=every, on_progress=stop)


def ask(library, setup, name=None, **choices):
    with Session(library, name, dataclasses.replace(setup, **choices)) as session:
        return session.ask(QUESTION, sampling=Sampling(max_new_tokens=6))


@pytest.mark.parametrize("way", sampled(WAYS, 5))
def test_a_reading_goes_on_in_another_dtype(library, book, setup_random, way):
    setup = dataclasses.replace(setup_random, **WAYS[way])
    stop_at(200, library, book, setup)
    kept = Library.open(library).reading("book", partial=True)
    with kept as document:
        [(_, before), *_] = document.rows("kv")
    report = ingest(library, [book], dataclasses.replace(setup, dtype="bf16"))
    assert report.reused_tokens >= 200
    [(_, rows)] = Library.open(library).document("book").rows("kv")
    assert {name: x.dtype for name, x in rows.items()} == {n: x.dtype for n, x in before.items()}
    assert all(x[: len(before[name])].equal(before[name]) for name, x in rows.items())
    assert ask(library, setup_random).tokens["document"] == report.tokens


@pytest.mark.parametrize("way", list(WAYS))
def test_every_token_has_its_keys_and_values(library, book, setup_random, way):
    setup = dataclasses.replace(setup_random, **WAYS[way])
    report = ingest(library, [book], setup)
    document = Library.open(library).document("book")
    [rows] = [rows for _, rows in document.rows("kv")]
    assert {len(x) for x in rows.values()} == {report.tokens}
    dtypes = {"auto": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}
    stored = dtypes[WAYS[way].get("kv_dtype", "auto")]
    assert {x.dtype for name, x in rows.items() if not name.endswith("scales")} == {stored}
    layers = range(3)
    assert {"keys.0", "values.2"} < rows.keys() >= {f"keys.{layer}" for layer in layers}
    kept = [group for group in ("embeddings", "kv") if list(_group(document, group))]
    assert kept == (["embeddings", "kv"] if WAYS[way].get("keep_kv") else ["kv"])


def _group(document, group):
    return [s for s in document.manifest.shards if s.group == group]


def test_passages_are_the_sources_own_bytes_and_find_gives_what_the_question_attends_to(
    library, book, setup_random
):
    ingest(library, [book], dataclasses.replace(setup_random, method="reattention"))
    text = Path(book).read_bytes()
    Path(book).unlink()
    with Session(library, None, setup_random) as session:
        answer = session.ask(QUESTION, sampling=Sampling(max_new_tokens=6))
        found = session.find(QUESTION)
        few = session.find(QUESTION, gather=9)
    of_answers = {field.name for field in dataclasses.fields(Answer)} - {
        field.name for field in dataclasses.fields(Found)
    }
    assert found.as_dict().keys() == answer.as_dict().keys() - of_answers
    for passage in (*answer.passages, *found.passages):
        assert text[passage.start : passage.end].decode() == passage.text
    assert answer.tokens["gathered"] == found.tokens["gathered"] == 64
    assert few.tokens["gathered"] == 9
    scores = [passage.score for passage in found.passages]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0
    assert answer.found  # no threshold is known for votes


def test_a_short_document_is_all_in_view(library, tmp_path, setup_random):
    short = tmp_path / "short.txt"
    short.write_text("the keeper wrote in his book")
    ingest(library, [str(short)], dataclasses.replace(setup_random, method="reattention"))
    answer = ask(library, setup_random)
    assert [passage.text for passage in answer.passages] == ["the keeper wrote in his book"]


def test_both_is_asked_in_either_way(tmp_path, book, setup_random):
    ingest(tmp_path / "both", [book], dataclasses.replace(setup_random, keep_kv=True))
    reattention = dataclasses.replace(setup_random, method="reattention")
    ingest(tmp_path / "kv", [book], reattention)
    usual = ask(tmp_path / "both", setup_random)
    named = ask(tmp_path / "both", setup_random, method="reform")
    kept = ask(tmp_path / "both", setup_random, method="reattention")
    alone = ask(tmp_path / "kv", setup_random)
    assert (usual.answer, usual.passages) == (named.answer, named.passages)
    assert (kept.answer, kept.passages) == (alone.answer, alone.passages)
    assert usual.passages != kept.passages
    assert [a.state["method"] for a in (usual, named, kept)] == ["reform", "reform", "reattention"]
    assert usual.tokens["gathered"] == 63  # 64 with the prefix's one


@pytest.mark.parametrize("way", ["reform", "reattention"])
def test_a_question_longer_than_the_window_s_local_part_is_read_in_chunks(
    library, book, setup_random, way, monkeypatch
):
    ingest(library, [book], dataclasses.replace(setup_random, keep_kv=True))
    sizes = []
    with Session(library, None, dataclasses.replace(setup_random, method=way)) as session:
        read = session.engine.decoder.read

        def noted(ids, *others):
            sizes.append(len(ids))
            return read(ids, *others)

        monkeypatch.setattr(session.engine.decoder, "read", noted)
        by = "maxsim" if way == "reform" else None
        found = session.find(" ".join([QUESTION] * 4), gather_by=by)
    options = session.engine.options.reattention
    assert sum(sizes) == found.tokens["question"] > options.local
    assert max(sizes) == options.chunk


def test_a_question_read_in_chunks_has_the_scores_of_one_read_at_once(library, book, setup_random):
    ingest(library, [book], setup_random)
    with Session(library, None, setup_random) as session:
        method = session._way("", METHOD)._method
        question = " ".join([QUESTION] * 4)
        method.options = dataclasses.replace(method.options, chunk=7)
        parts = session.score(question, METHOD)
        method.options = dataclasses.replace(method.options, chunk=1000)
        whole = session.score(question, METHOD)
    assert (parts.raw - whole.raw).abs().max() < 0.02  # two steps of int8


def test_inside_the_window_both_embeds_as_reform_does(tmp_path, setup_random, monkeypatch):
    """A document within ReAttention's local part and REFORM's budget is read by full attention."""
    monkeypatch.setattr(Engine, "can_leave_out", lambda self, method, tokens: False)
    short = tmp_path / "short.txt"
    short.write_text("the keeper wrote boat book")
    embeddings = []
    for name, choice in (("a", {"keep_kv": True}), ("b", {"method": "reform"})):
        ingest(tmp_path / name, [str(short)], dataclasses.replace(setup_random, **choice))
        [(_, rows)] = Library.open(tmp_path / name).document("short").rows("embeddings")
        embeddings.append(rows["vectors"].float() * rows["scales"].float()[..., None])
    assert 3 < len(embeddings[0]) < 24
    assert (embeddings[0] - embeddings[1]).abs().max() < 0.01


def test_an_answer_from_the_state_is_that_of_another_dtype_nearly(library, book, setup_random):
    """A state in bf16, asked in float32: other rounding, the same passages for the most part."""
    setup = dataclasses.replace(setup_random, method="reattention")
    ingest(library, [book], setup)
    ingest(library, [book], dataclasses.replace(setup, kv_dtype="bf16"), name="half")
    passages = []
    for name in ("book", "half"):
        with Session(library, name, setup_random) as session:
            scores = session.score(QUESTION, METHOD)
            passages.append({int(n) for n in (scores.pooled > 0).nonzero()})
    shared = len(passages[0] & passages[1]) / len(passages[0] | passages[1])
    assert shared > 0.8


def test_a_prompt_may_have_no_prefix(tmp_path, library, book, setup_random, model_folder):
    text = (model_folder / "profile.yaml").read_text("utf-8")
    profile = tmp_path / "bare.yaml"
    profile.write_text(text.replace('prefix: "<s>", ', ""))
    setup = dataclasses.replace(setup_random, profile=str(profile), method="reattention")
    ingest(library, [book], setup)
    assert ask(library, setup).tokens["gathered"] == 64


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"method": "full", "keep_kv": True}, "--keep-kv is not for the method 'full'"),
        ({"method": "reattention", "keep_kv": True}, "--keep-kv is not for the method"),
        ({"kv_dtype": "int8"}, "--kv-dtype is not for the method 'reform'"),
        ({"method": "reattention", "kv_dtype": "int4"}, "kv_dtype: expected one of auto"),
    ],
)
def test_choices_that_make_no_sense_are_refused(setup_random, choices, said):
    with pytest.raises(UsageError, match=said):
        prepare(dataclasses.replace(setup_random, **choices))


def test_a_document_without_keys_and_values_cannot_be_asked_for_them(library, book, setup_random):
    ingest(library, [book], setup_random)
    with pytest.raises(LongctxError, match="it was read with 'reform'"):
        ask(library, setup_random, method="reattention")


def test_fewer_keys_are_selected_in_a_small_window_and_that_is_told(
    tmp_path, library, book, setup_random, model_folder
):
    text = (model_folder / "profile.yaml").read_text("utf-8")
    profile = tmp_path / "small.yaml"
    profile.write_text(f"{text}window: 40\n".replace("voted: 5", "voted: 9"))
    setup = dataclasses.replace(setup_random, profile=str(profile), method="reattention")
    report = ingest(library, [book], setup)
    assert report.notes == ["voted is 3, not 9: the model's window is 40 tokens"]
    assert Library.open(library).document("book").manifest.options["voted"] == 3
    assert report.as_dict()["notes"] == report.notes


def test_a_flipped_byte_among_the_values_is_found_when_it_is_read(library, book, setup_random):
    ingest(library, [book], dataclasses.replace(setup_random, method="reattention"))
    [path] = (library / "documents").rglob("kv-00000*")
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1  # the last tensors are values
    path.write_bytes(bytes(data))
    with pytest.raises(StateMismatch, match="kv-00000"):
        ask(library, setup_random)


def test_more_than_the_memory_is_refused_before_anything_is_read(
    library, book, setup_random, monkeypatch
):
    setup = dataclasses.replace(setup_random, method="reattention")
    monkeypatch.setattr(disk, "free_memory", lambda device: 100_000)
    assert not plan(Job(library, [book], setup)).fits
    with pytest.raises(LongctxError, match=r"no room in memory.*are free.*int8"):
        ingest(library, [book], setup)
    assert not list((library / "documents").glob("*"))


def test_a_plan_does_not_count_what_its_timing_fills(library, book, setup_random, monkeypatch):
    filled = []
    fill = reattention.Method.fill
    monkeypatch.setattr(
        reattention.Method, "fill", lambda self, n: (filled.append(n), fill(self, n))
    )
    monkeypatch.setattr(
        "longctx.core.ingest.plan.peak_memory", lambda device: 10**12 if filled else 1000
    )
    wanted = plan(Job(library, [book], dataclasses.replace(setup_random, method="reattention")))
    assert filled
    assert wanted.peak_memory_bytes < 10**12
