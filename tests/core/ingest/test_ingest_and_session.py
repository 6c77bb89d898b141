"""The main job from end to end on a small random model: what is kept, cited, refused and reused."""

import dataclasses
import io
import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from longctx.core.ask.session import Session
from longctx.core.common.errors import (
    LongctxError,
    NotFound,
    StateMismatch,
    UnreadableInput,
    UsageError,
)
from longctx.core.decode.decode import Sampling
from longctx.core.engine.choice import Setup
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job
from longctx.core.ingest.plan import plan
from longctx.core.store.library import Library
from longctx.core.store.naming import called_after

LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(60)]
QUESTIONS = [f"which boat came home on line {i}?" for i in range(20)]
TEXTS = {
    "utf-8": "\n".join(f"{line} — café, naïve, 漢字 🙂" for line in LINES).encode(),
    "crlf": "\r\n".join(LINES).encode() + b"\r\n",
    "undecodable": "\n".join(f"{line} café" for line in LINES)
    .encode()
    .replace(b"line 7:", b"line\xff\xe2\x82 7:"),
}
pytestmark = pytest.mark.usefixtures("models_loaded_once")


@pytest.fixture
def library(tmp_path) -> Path:
    return tmp_path / "library"


@pytest.fixture
def book(tmp_path) -> Path:
    path = tmp_path / "book.txt"
    path.write_bytes(TEXTS["utf-8"])
    return path


# --- what is cited ---


@pytest.mark.parametrize("kind", list(TEXTS))
def test_passages_are_the_sources_own_bytes_also_when_it_is_gone(
    tmp_path, library, setup_random, kind
):
    source = tmp_path / "a.txt"
    source.write_bytes(TEXTS[kind])
    report = ingest(library, [str(source)], setup_random)
    assert (report.undecodable > 0) == (kind == "undecodable")
    source.unlink()
    session = Session(library, None, setup_random)
    seen = 0
    for question in QUESTIONS:
        asked = session.ask(question, sampling=Sampling(max_new_tokens=2), gather_by="method")
        for passage in asked.passages:
            raw = TEXTS[kind][passage.start : passage.end]
            assert raw.decode("utf-8", "replace") == passage.text
            assert passage.line == TEXTS[kind][: passage.start].count(b"\n") + 1
            assert passage.best_text in passage.text
            seen += 1
    assert seen >= 40


def test_passages_are_every_run_of_gathered_tokens_best_first(library, book, setup_random):
    ingest(library, [str(book)], setup_random)
    answer = Session(library, None, setup_random).ask(QUESTIONS[0], gather_by="method")
    scores = [passage.score for passage in answer.passages]
    assert scores == sorted(scores, reverse=True)
    spans = sorted((p.start, p.end) for p in answer.passages)
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(spans))
    assert answer.tokens["gathered"] == 63  # 64 with the prefix's one
    assert answer.tokens["document"] > 1000


def test_several_sources_are_one_document_and_no_passage_crosses_them(
    tmp_path, library, setup_random
):
    paths = []
    for number in range(3):
        path = tmp_path / f"part{number}.txt"
        path.write_text("".join(f"{line}\n" for line in LINES[number * 4 : number * 4 + 4]))
        paths.append(str(path))
    ingest(library, paths, setup_random, name="parts")
    found = Session(library, "parts", setup_random).find("boat", gather=10_000)
    assert [p.source for p in found.passages if p.line == 1 and p.start == 0] == sorted(
        paths, key=[p.source for p in found.passages].index
    )
    assert {p.source: p.text for p in found.passages} == {p: Path(p).read_text() for p in paths}


# --- what is answered ---


def test_a_document_inside_gather_is_answered_as_by_the_model_itself(
    tmp_path, library, setup_random, model_folder
):
    source = tmp_path / "short.txt"
    source.write_text("the keeper wrote in his book")
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    answers = {}
    for method in ("reform", "full"):
        setup = dataclasses.replace(setup_random, method=method)
        ingest(library, [str(source)], setup, name=method)
        session = Session(library, method, setup_random)
        answers[method] = session.ask("who wrote?", sampling=Sampling(max_new_tokens=6))
        prompt = torch.cat(
            [
                session.engine.prompt.prefix(),
                session.document.take("tokens", torch.arange(answers[method].tokens["document"]))[
                    "ids"
                ].long(),
                session.engine.prompt.question("who wrote?")[0],
            ]
        )
    own = model.generate(prompt[None], max_new_tokens=6, do_sample=False, eos_token_id=1)
    expected = session.engine.files.tokenizer.decode(
        own[0, len(prompt) :], skip_special_tokens=True
    )
    assert answers["full"].answer == answers["reform"].answer == expected.strip()


def test_the_same_question_gives_the_same_answer_and_a_seed_repeats_a_draw(
    library, book, setup_random
):
    ingest(library, [str(book)], setup_random)
    session = Session(library, None, setup_random)
    again = Session(library, None, setup_random)
    assert session.ask("boat?").answer == again.ask("boat?").answer
    drawn = [
        session.ask("boat?", sampling=Sampling(temperature=2.0, top_p=0.9, seed=seed)).answer
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_text_streams_as_the_answer_says(library, book, setup_random):
    ingest(library, [str(book)], setup_random)
    pieces: list[str] = []
    answer = Session(library, None, setup_random).ask("boat?", on_text=pieces.append)
    assert "".join(pieces).strip() == answer.answer
    assert answer.tokens["answer"] == 8
    assert set(answer.timings) == {"load_s", "gather_s", "first_token_s", "total_s"}


def test_gather_is_cut_to_the_window_and_said_never_the_question(library, book, setup_random):
    ingest(library, [str(book)], setup_random)
    session = Session(library, None, setup_random)
    answer = session.ask("boat?", gather=10_000, gather_by="method")
    room = answer.tokens["gathered"]
    assert room + answer.tokens["question"] + 1 + 8 == 256  # prefix, answer; the window
    assert answer.tokens["dropped"] == answer.tokens["document"] - room
    passages = session.ask("boat?", gather=10_000)
    assert passages.tokens["dropped"] == answer.tokens["dropped"]
    assert room - 128 < passages.tokens["gathered"] <= room
    with pytest.raises(UsageError, match=r"question of \d+ tokens.*window is 256"):
        session.ask("boat " * 300)
    with pytest.raises(UsageError, match="question is empty"):
        session.ask("  ")


def test_found_says_whether_the_words_are_there(library, book, setup_random):
    ingest(library, [str(book)], setup_random)
    session = Session(library, None, setup_random)
    assert (session.ask("boat?").found, session.ask("boat?").evidence) == ("yes", 1.0)
    answer = session.ask("Which zebras lived in Vienna?")
    assert (answer.found, answer.evidence) == ("no", 0.0)
    assert answer.passages


def test_the_json_object_has_the_documented_keys(library, book, setup_random):
    ingest(library, [str(book)], setup_random)
    values = json.loads(json.dumps(Session(library, None, setup_random).ask("boat?").as_dict()))
    assert set(values) == {
        *("schema_version", "question", "answer", "found", "evidence", "documents", "passages"),
        *("tokens", "timings", "state", "stop", "policy", "attended_per_step", "refreshes"),
        *("held", "reassigned", "narrowed", "tokens_per_s", "sentence", "quote"),
        *("continues", "sent", "likely", "also_possible"),
    }
    assert set(values["passages"][0]) == {
        *("document", "source", "line", "place", "start", "end", "score", "text")
    }
    assert set(values["tokens"]) == {"document", "gathered", "question", "answer", "dropped"}


def test_the_line_that_is_told_is_right_behind_bytes_that_are_no_text(
    tmp_path, library, setup_random
):
    source = tmp_path / "odd.txt"
    lines = [b"\xef\xbb\xbfintro", *[b"raw " + b"\xff" * 8 + b" bytes."] * 6]
    lines += [b"A dragon sleeps under the tower.", *[b"one."] * 8]
    source.write_bytes(b"\n".join(lines))
    ingest(library, [str(source)], setup_random)
    session = Session(library, None, setup_random)
    answer = session.ask("Where does the dragon sleep?", 180)
    (told,) = (p for p in answer.passages if "dragon" in p.text)
    assert (told.best_place, told.best_text) == ("8", "A dragon sleeps under the tower.")


# --- what is kept and reused ---


def test_unchanged_sources_are_not_read_again(library, book, setup_random):
    first = ingest(library, [str(book)], setup_random)
    again = ingest(library, [str(book)], setup_random)
    assert (first.status, again.status) == ("complete", "unchanged")
    assert again.reused_tokens == first.tokens
    book.touch()  # another time, the same bytes
    assert ingest(library, [str(book)], setup_random).status == "unchanged"
    book.write_text("other text\n")
    with pytest.raises(UsageError, match="--replace"):
        ingest(library, [str(book)], setup_random)
    assert ingest(library, [str(book)], setup_random, replace=True).tokens < first.tokens


def test_the_other_documents_are_looked_at_once(library, book, setup_random, monkeypatch):
    """Reading the facts of ten thousand takes half a second: longer than a short document."""
    looked, facts = [], Library.facts
    monkeypatch.setattr(Library, "facts", lambda self: looked.append(1) or facts(self))
    ingest(library, [str(book)], setup_random)
    assert len(looked) == 1


def test_a_state_is_not_read_with_another_model(library, book, setup_random, tmp_path):
    ingest(library, [str(book)], setup_random)
    other = tmp_path / "other"
    shutil.copytree(setup_random.model, other)
    (other / "model.safetensors").write_bytes(
        (other / "model.safetensors").read_bytes()[:-4] + b"\0\0\1\0"
    )
    with pytest.raises(StateMismatch, match="weights"):
        Session(library, None, dataclasses.replace(setup_random, model=str(other)))


def test_a_failed_ingest_leaves_no_document_and_the_same_command_works_again(
    library, book, setup_random, monkeypatch
):
    def fail(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(library, [str(book)], setup_random, on_progress=fail)
    with pytest.raises(NotFound):
        Session(library, "book", setup_random)
    left = {path.relative_to(library).parts[0] for path in library.rglob("*") if path.is_file()}
    assert left <= {"library.json", ".lock", "unfinished"}
    assert ingest(library, [str(book)], setup_random).status == "complete"
    Library.open(library).remove("book")
    files = {path.name for path in library.rglob("*") if path.is_file()}
    assert files <= {"library.json", ".lock"}


def test_state_is_the_same_whatever_pieces_the_text_comes_in(
    library, book, setup_random, monkeypatch
):
    ingest(library, [str(book)], setup_random)
    monkeypatch.setattr("longctx.core.tokens.tokens.PIECE", 100)
    monkeypatch.setattr("longctx.core.sources.reader.READ_BYTES", 333)
    ingest(library.with_name("other"), [str(book)], setup_random)
    for shard in (library / "documents" / "book").iterdir():
        other = library.with_name("other") / "documents" / "book" / shard.name
        assert shard.read_bytes() == other.read_bytes(), shard.name


# --- bad input ---


def test_what_cannot_be_read_is_refused(tmp_path, library, setup_random, book):
    with pytest.raises(UsageError, match="no such file"):
        ingest(library, [str(tmp_path / "missing")], setup_random)
    for name, data, why in (("empty", b"", "empty"), ("binary", b"\0\1\2", "binary")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UnreadableInput, match=why):
            ingest(library, [str(tmp_path / name)], setup_random)
        report = ingest(
            library, [str(tmp_path / name), str(book)], setup_random, name=f"with-{name}"
        )
        assert len(report.skipped) == 1
        assert why in report.skipped[0]
    assert {m.name for m in Library.open(library).documents() if m.status == "complete"} == {
        "with-empty",
        "with-binary",
    }


def test_full_attention_refuses_what_does_not_fit(library, book, setup_random):
    full = dataclasses.replace(setup_random, method="full")
    with pytest.raises(LongctxError, match=r"do not fit.*--method reform"):
        ingest(library, [str(book)], full)
    with pytest.raises(NotFound):
        Session(library, "book", setup_random)


def test_full_attention_has_no_scores_of_its_own(tmp_path, library, setup_random):
    source = tmp_path / "short.txt"
    source.write_text("the keeper wrote")
    ingest(library, [str(source)], dataclasses.replace(setup_random, method="full"))
    session = Session(library, None, setup_random)
    with pytest.raises(LongctxError, match="keeps no embeddings"):
        session.find("keeper", gather_by="method")
    assert session.find("keeper").passages[0].text == "the keeper wrote"


def test_a_disk_without_room_is_refused_before_the_work(library, book, setup_random, monkeypatch):
    monkeypatch.setattr("longctx.core.engine.disk.free_disk", lambda folder: 1000)
    with pytest.raises(LongctxError, match=r"no room in the library.*needs about"):
        ingest(library, [str(book)], setup_random)
    assert Library.open(library).documents() == []


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(
    library, book, setup_random, monkeypatch
):
    monkeypatch.setattr("longctx.core.engine.setup.free_memory", lambda device: 1000)
    monkeypatch.setattr("longctx.core.engine.setup.load_decoder", lambda *a: pytest.fail("loaded"))
    with pytest.raises(LongctxError, match=r"does not fit on cpu.* are free"):
        ingest(library, [str(book)], setup_random)
    assert Library.open(library).documents() == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/War & Peace.txt", "War & Peace"),
        ("-", "stdin"),
        ("x.tar.gz", "x"),
        ("...", "document"),
    ],
)
def test_documents_are_named_after_their_first_source(path, name):
    assert called_after(path) == name


# --- plans, memory ---


def test_standard_input_is_read_as_a_stream(library, setup_random, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(TEXTS["utf-8"]))
    monkeypatch.setattr(sys, "stdin", stdin)
    report = ingest(library, ["-"], setup_random)
    assert report.name == "stdin"
    assert report.bytes == len(TEXTS["utf-8"])


PEAKS = """
import os, resource, sys
from pathlib import Path
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job
from longctx.core.ingest.plan import plan
from longctx.core.engine.choice import Setup
model, folder, *jobs = sys.argv[1:]
setup = Setup(model, model + "/profile.yaml", device="cpu", dtype="fp32", threads=1)
for job in jobs:
    what, source = job.split("=")
    if os.fork():
        assert os.wait()[1] == 0
        continue
    library = Path(folder, Path(source).stem)
    if what == "plan":
        made = plan(Job(library, [source], setup))
        print(made.disk_bytes, made.peak_memory_bytes, made.tokens, flush=True)
    else:
        made = ingest(library, [source], setup, name="big")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(made.state_bytes, peak, made.tokens, flush=True)
    os._exit(0)
"""


def measured(model: Path, folder: Path, *jobs: str) -> list[tuple[int, int, int]]:
    """Bytes of the state, peak of memory, and tokens, of each job in a process of its own."""
    command = [sys.executable, "-P", "-c", PEAKS, str(model), str(folder), *jobs]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=400)
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]


LONG_WORDS = [letter * 63 for letter in "abcdefgh"]  # one token each, so that 20 MB are not many


@pytest.fixture(scope="module")
def fast_model(make_model_folder, tmp_path_factory) -> Path:
    """A random model with long words for tokens, large chunks and one small head."""
    folder = tmp_path_factory.mktemp("fast") / "model"
    make_model_folder(folder, " ".join(LONG_WORDS), vocab_size=900)
    (folder / "profile.yaml").write_text(
        "name: fast\nprompt: {prefix: '<s>', question: '{question}'}\n"
        "methods:\n  reform: {chunk: 4096, budget: 64, first: 4, last: 4, queries: 8,"
        " gather: 64, heads: [[0, k, 1]]}\n"
    )
    return folder


def test_memory_does_not_grow_with_the_input_and_is_as_planned(fast_model, tmp_path):
    line = " ".join(LONG_WORDS) + "\n"
    short, long = tmp_path / "short.txt", tmp_path / "long.txt"
    for source, size in ((short, 2_000_000), (long, 20_000_000)):
        source.write_text(line * (size // len(line)))
    jobs = (f"plan={short}", f"ingest={short}", f"ingest={long}")
    setup = Setup(str(fast_model), str(fast_model / "profile.yaml"), device="cpu", dtype="fp32")
    plan(Job(tmp_path, [str(short)], setup))  # the first use of a model imports transformers too
    planned, made, longer = measured(fast_model, tmp_path, *jobs)
    assert planned[2] == made[2]
    assert planned[0] == pytest.approx(made[0], rel=0.1)
    assert planned[1] == pytest.approx(made[1], rel=0.15)
    assert longer[2] > 9 * made[2]
    assert longer[1] - made[1] < 50e6
