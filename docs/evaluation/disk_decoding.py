"""How fast ReAttention answers from a state on disk, whose keys come of a real text.

    python docs/evaluation/disk_decoding.py BOOK.txt... [--models tiny] [--answer 128]

The texts are read as one document by each model, and asked about: with the files dropped from the
page cache (cold), opened again with them in it (warm), and twice more as it is then. An answer has
--answer tokens whatever they are. Printed is a JSON line for each: seconds of reading and opening,
and of the first token; tokens/s of all others, and milliseconds of the median and the slowest; and
how much of the state was read and verified. With --library documents stay, and are read once.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch

import longctx
from longctx.core.ask.answering import Question
from longctx.core.ask.recalling import Recalling
from longctx.core.common.device import device_name
from longctx.core.contracts.method import Recallable
from longctx.core.decode.decode import Generation
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import Engine, prepare
from longctx.core.measure.bench.ceilings import Clock, forget, remember
from longctx.core.profile.sampling import Sampling
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.store.document import Document
from longctx.core.store.library import Library

METHOD = "reattention"
QUESTIONS = ("What did Prince Andrew say to Pierre?", "Where did the battle take place?")


def main() -> None:
    """Reads with each model, asks, and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("texts", nargs="+", type=Path)
    parser.add_argument("--models", default="tiny")
    parser.add_argument("--answer", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--library", type=Path, help="where documents stay for a further run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for model in given.models.split(","):
            place = given.library or Path(folder, model)
            for row in measured(place, given.texts, model, given.device, given.answer):
                print(json.dumps({"model": model, **row}), flush=True)


def measured(
    place: Path, texts: list[Path], model: str, device: str, answer: int
) -> Iterator[dict]:
    """The reading, then the answers."""
    library, started = longctx.Library(place), time.perf_counter()
    if model not in library:
        library.ingest(*texts, name=model, model=model, method=METHOD, device=device)
    seconds = time.perf_counter() - started
    library.close()
    engine = prepare(Setup(model=model, method=METHOD, device=device))
    stored = Library.open(place)
    facts = {"device": device_name(engine.device), "torch": torch.__version__}
    tokens = stored.document(model).manifest.tokens
    yield {"reading_s": round(seconds, 2), "tokens": tokens, **facts}
    times(engine, opened(engine, stored.document(model)), 0, answer)  # uncounted: first uses
    [folder] = [folder for folder in stored.folders() if folder.name == model]
    for cache, prepared in {"cold": forget, "warm": remember}.items():
        for file in folder.iterdir():
            prepared(file)
        document = stored.document(model)
        clock = Clock(engine.device)
        way = opened(engine, document)
        open_s = clock.seconds()
        yield {"cache": cache, "open_s": round(open_s, 3), **times(engine, way, 0, answer)}
        yield {"cache": f"{cache}, again", **times(engine, way, 0, answer)}
        yield {"cache": f"{cache}, another question", **times(engine, way, 1, answer)}


def opened(engine: Engine, document: Document) -> Recalling:
    """A document to ask about; its keys are on the device then."""
    method = engine.new_method(document.snapshot(), document)
    assert isinstance(method, Recallable)
    return Recalling(engine, document, method, METHOD, PassageIndex(document))


def times(engine: Engine, way: Recalling, question: int, answer: int) -> dict:
    """The times of one answer's tokens."""
    [document], words = way.documents, QUESTIONS[question]
    before, clock = document.checked_bytes, Clock(engine.device)
    asked = Question(*engine.prompt.question(words), answer, words=words)
    begun = way.begin(asked, lambda: None)
    tokens = Generation(
        engine.decoder, begun.policy, begun.hidden, begun.prompt, Sampling(), answer, set()
    ).tokens()
    moments = []
    for _ in tokens:
        moments.append(clock.seconds())
    each = [1000 * (b - a) for a, b in pairwise(moments)]
    return {
        "first_token_s": round(moments[0], 3),
        "tokens_per_s": round(1000 * len(each) / sum(each), 2),
        "median_ms": round(median(each), 2),
        "slowest_ms": round(max(each), 1),
        "verified_mb": round((document.checked_bytes - before) / 1e6, 1),
    }


if __name__ == "__main__":
    main()
