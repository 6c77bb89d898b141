"""What a library of thousands of small documents costs: to list, to select from, to search, to ask.

    python docs/evaluation/many_documents.py [--documents N] [--bytes N] [--library DIR] [--runs N]
        [--answers MODEL]

One document is read with the bundled model. It keeps no embeddings and no cache, because a document
this short is read again for a question. So the others are written as a reading would leave them,
without a model: real text (paragraphs of the documentation and the samples, in another order in
each, with names of its own), its tokens, lines and words. Nothing is synced meanwhile.

Each command runs in a process of its own, as a user's does, once to make the index and then warm;
times are by the clock, the middle of `--runs`. JSON lines, each as soon as it is known.

With `--answers MODEL` they are `ask --all` too, answered by that model: `first_token_s` is from the
start of the command, `timings` from the question. Then one process that has the library open, and
has answered a question, is asked about another document each time; one sentence has the answer.
"""

import argparse
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median

import torch

import longctx
from longctx.core.ask.candidates import of_all
from longctx.core.engine.choice import Setup
from longctx.core.ingest.ingest import ingest
from longctx.core.retrieve.document_selection import best_of_library
from longctx.core.retrieve.library_words import LibraryWords
from longctx.core.retrieve.word_tables import word_tables
from longctx.core.sources.find import open_sources
from longctx.core.store.document import Document
from longctx.core.store.library import Library

ROOT = Path(__file__).parents[2]
WORDS = [
    "harbour",
    "lantern",
    "quarry",
    "meadow",
    "cellar",
    "orchard",
    "beacon",
    "marrow",
    "thistle",
    "kettle",
]
QUESTIONS = [
    "Where is the key of lantern-00417 kept?",
    "what happens to the lock when a process is killed",
    "how many tokens a second are read on a GPU",
]


def main() -> None:
    """Makes the library unless it is there, and measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--bytes", type=int, default=10_000)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--answers", metavar="MODEL", help="also ask --all, answered by this one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = given.library or Path(place, "library")
        library = Library.open(folder, create=True)
        began = time.perf_counter()
        made = make(library, given.documents, given.bytes)
        tell("made", documents=made, seconds=round(time.perf_counter() - began, 1))
        size = sum(facts.bytes for facts in library.facts())
        tell("library", documents=len(library.facts()), text_bytes=size)
        (folder / "index" / "catalogue.json").unlink(missing_ok=True)
        measure(folder, given.runs, given.answers)


def measure(folder: Path, runs: int, answers: str | None) -> None:
    """Runs the commands, and the steps of document selection."""
    place = ["--library", str(folder), "--json"]
    words = ["find", QUESTIONS[0], "--all", "--gather-by", "bm25", *place]
    command("list", ["list", *place], runs)
    command("find --all --gather-by bm25", words, runs)
    command("find --all --gather-by bm25", ["find", QUESTIONS[1], *words[2:]], runs)
    selection(folder, runs)
    if answers:
        command("find --all", ["find", QUESTIONS[0], "--all", *place], runs)
        asked = ["ask", QUESTIONS[0], "--all", "--answer-model", answers, *place]
        command(f"ask --all, {answers} answers", asked, runs)
        session(folder, runs, answers)


def command(name: str, arguments: list[str], runs: int) -> None:
    """The first run, which may make an index, and the middle of the others."""
    times, processor, peaks, timings = [], [], [], []
    for _ in range(runs + 1):
        began = time.perf_counter()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "longctx", *arguments], stdout=out, stderr=err
            )
            status, spent, peak = waited(process)
            times.append(time.perf_counter() - began)
            processor.append(spent)
            peaks.append(peak)
            out.seek(0)
            err.seek(0)
            text, wrong = out.read(), err.read()
            if b'"timings"' in text:
                timings.append(json.loads(text)["timings"])
    told = {"error": wrong.decode()[-300:]} if status else {}
    figures = {"first_s": times[0], "warm_s": median(times[1:])}
    figures |= {"first_cpu_s": processor[0], "warm_cpu_s": median(processor[1:])}
    if b'"passages"' in text:
        values = json.loads(text)
        told = {"found": [passage["document"] for passage in values["passages"]][:3]}
        asked = values["state"].get("asked", ())
        told |= {"asked": len(asked), "answer": values.get("answer"), "timings": middle(timings)}
        if "first_token_s" in timings[0]:  # what is after it is known, what is before it is not
            after = [each["total_s"] - each["first_token_s"] for each in timings]
            firsts = [whole - rest for whole, rest in zip(times, after, strict=True)]
            figures["first_token_s"] = median(firsts[1:])
    rounded = {key: round(value, 2) for key, value in figures.items()}
    tell(name, **rounded, first_mib=peaks[0], warm_mib=max(peaks[1:]), **told)


def middle(timings: list[dict[str, float]]) -> dict[str, float]:
    """The middle of the warm ones of each."""
    return {key: round(median(each[key] for each in timings[1:]), 2) for key in timings[0]}


def session(folder: Path, runs: int, answers: str) -> None:
    """Asks in one process about another document each time; the first question is not counted."""
    wholes, processor, timings, right = [], [], [], 0
    model = longctx.Model("tiny", answers=answers, device="cpu")
    with model, longctx.Library(folder, model) as library:
        count = len(library)
        for run in range(runs + 1):
            number = count * (run + 1) // (runs + 2)
            began, spent = time.perf_counter(), time.process_time()
            answer = library.ask(f"Where is the key of {keyed(number)} kept?")
            wholes.append(time.perf_counter() - began)
            processor.append(time.process_time() - spent)
            timings.append(answer.timings)
            right += str(number * 7919) in answer.answer
    figures = {"warm_s": median(wholes[1:]), "slowest_s": max(wholes[1:])}
    figures["warm_cpu_s"] = median(processor[1:])
    figures = {key: round(value, 2) for key, value in figures.items()}
    name = f"a further question, {answers} answers"
    tell(name, **figures, timings=middle(timings), right=right, questions=runs + 1)


def keyed(number: int, chance: random.Random | None = None) -> str:
    """What has a key in the text of this number, and in no other."""
    return f"{(chance or random.Random(number)).choice(WORDS)}-{number:05d}"


def waited(process: subprocess.Popen) -> tuple[int, float, int]:
    """A process's exit code, its seconds of the processor, and its highest resident memory in MiB.

    The memory is 0 where Linux does not say.
    """
    peak, status = 0, Path(f"/proc/{process.pid}/status")
    while True:
        with suppress(OSError):
            found = re.search(r"VmHWM:\s+(\d+)", status.read_text())
            peak = max(peak, int(found[1]) >> 10 if found else 0)
        number, code, used = os.wait4(process.pid, os.WNOHANG)
        if number:
            process.returncode = os.waitstatus_to_exitcode(code)
            return process.returncode, used.ru_utime + used.ru_stime, peak
        time.sleep(0.005)


def selection(folder: Path, runs: int) -> None:
    """What a question adds in a process that has the index open, and what opening it takes."""
    library = Library.open(folder)
    steps: dict[str, list[float]] = {"facts": [], "index": [], "select": []}
    for run in range(runs):
        marks = [time.perf_counter()]
        candidates = of_all(library)
        marks.append(time.perf_counter())
        words = LibraryWords(library, candidates.manifests)
        marks.append(time.perf_counter())
        best_of_library(words, QUESTIONS[run % len(QUESTIONS)], 16)
        marks.append(time.perf_counter())
        for name, start, end in zip(steps, marks, marks[1:], strict=False):
            steps[name].append((end - start) * 1000)
    began = time.perf_counter()
    best_of_library(words, "the second question of a session, with other words", 16)
    second = (time.perf_counter() - began) * 1000
    told = {f"{name}_ms": round(median(values)) for name, values in steps.items()}
    index = [path for path in (folder / "index").iterdir() if path.name.startswith("segment-")]
    told |= {"segments": len(index), "index_mb": sum(p.stat().st_size for p in index) >> 20}
    tell("selection", **told, second_question_ms=round(second), passages=len(words.passages))


def make(library: Library, count: int, size: int) -> int:
    """Adds documents until there are `count`; how many that were."""
    have = len(library.names())
    if have >= count:
        return 0
    os.fsync = lambda handle: None
    if not have:
        with tempfile.TemporaryDirectory() as place:
            path = Path(place, "first.txt")
            path.write_text(next(texts(1, size)))
            ingest(library.path, [str(path)], Setup(model="tiny"), "first")
    first = library.document("first")
    stream = stream_of(first)
    for number, text in enumerate(texts(count, size)):
        if have < number < count:
            write(library, f"document-{number:05d}", text, first, stream)
    return count - max(1, have)


def stream_of(first: Document) -> object:
    """The tokenizer that read a document."""
    from longctx.core.engine.choice import recorded
    from longctx.core.engine.setup import prepare
    from longctx.core.tokens.tokens import TokenStream

    return TokenStream(prepare(Setup(model="tiny"), recorded(first.manifest)).files.tokenizer)


def texts(count: int, size: int) -> Iterator[str]:
    """Texts of about `size` bytes; each names things that no other does."""
    files = [*sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("samples/*.txt"))]
    paragraphs = [
        p for file in files for p in file.read_text("utf-8").split("\n\n") if len(p) < 2000
    ]
    for number in range(count):
        chance = random.Random(number)
        parts = [f"The key of {keyed(number, chance)} is kept in box {number * 7919}."]
        while sum(map(len, parts)) < size:
            parts.append(chance.choice(paragraphs))
        chance.shuffle(parts)
        yield "\n\n".join(parts)


def write(library: Library, name: str, text: str, first: Document, stream: object) -> None:
    """A document as a reading would have left it."""
    data = text.encode()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, f"{name}.txt")
        path.write_bytes(data)
        [source] = open_sources([str(path)])
        pieces = list(stream.read(source, lambda raw: None))
    old = first.manifest
    header = {key: getattr(old, key) for key in ("model", "recorded", "method", "options")}
    header |= {"profile": old.profile, "report": old.report}
    with library.writer(name, header) as writer:
        writer.begin_source(f"{name}.txt")
        writer.add_bytes(data)
        for piece in pieces:
            ids, starts = torch.from_numpy(piece.ids), torch.from_numpy(piece.starts)
            writer.append("tokens", {"ids": ids, "starts": starts})
        writer.end_source(len(data), hashlib.sha256(data).hexdigest(), "utf-8", 0)
        writer.complete(None, words=word_tables, report=old.report)


def tell(name: str, **values: object) -> None:
    """A line of results."""
    print(json.dumps({"what": name, **values}), flush=True)


if __name__ == "__main__":
    main()
