"""How fast one document is read on one GPU and on several: the layers are split, chunks flow.

    python docs/evaluation/several_gpus.py [--minutes N] [--tokens N,N] [--devices 1,2] [--ask]

Random weights in the shape of Llama 3.1 8B, REFORM with its published sizes, random tokens; the
state is written, as `ingest` does. First a short document is read on each number of GPUs and the
states are compared, byte for byte. With `--ask` each is then asked by the same devices, of which
each holds at most `--share` of the weights: whether the states of the prompt's last token have the
same bits, and how many of the answer's first tokens are the same. JSON lines, each as soon as it is
known; what does not fit in `--minutes` any more is left out, the longest documents last. On a
machine without GPUs, `--on cpu --shape tiny --chunk 256 --tokens 3000` tries it.
"""

import argparse
import filecmp
import json
import tempfile
import time
from pathlib import Path

import torch

from longctx.core.ask.answering import Question
from longctx.core.ask.ways import way_of
from longctx.core.common.device import peak_memory, reset_peak_memory, synchronize
from longctx.core.decode.decode import Generation
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.document_reading import DocumentReading
from longctx.core.ingest.resume import header
from longctx.core.measure.bench.reading import NAME, RandomReading, random_ids, text_of, warm_up
from longctx.core.measure.bench.shapes import Wanted, open_engine
from longctx.core.measure.bench.workbench import sized
from longctx.core.model.split import SplitDecoder
from longctx.core.profile.sampling import Sampling
from longctx.core.retrieve.gather_by import METHOD
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.store.behind import WriterBehind
from longctx.core.store.library import Library

QUESTION, ANSWER = 32, 24  # tokens


def main() -> None:
    """Compares the states, then measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--tokens", default="131072,1048576")
    parser.add_argument("--devices", default="1,2")
    parser.add_argument("--shape", default="llama-3.1-8b")
    parser.add_argument("--method", default="reform")
    parser.add_argument("--chunk", type=int, help="tokens of a chunk, and of each layer's cache")
    parser.add_argument("--on", default="cuda")
    parser.add_argument("--same", type=int, default=0, help="tokens whose bytes are compared")
    parser.add_argument("--ask", action="store_true", help="also ask what was compared")
    parser.add_argument("--share", type=float, default=0.6, help="of the weights, on each device")
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    counts = [int(count) for count in given.devices.split(",")]
    engine = open_engine(Wanted(shape=given.shape, method=given.method, device=given.on))
    budget = None if engine.options.reading.budget is None else given.chunk
    engine.options = sized(engine.options, given.chunk, budget)
    whole, alone = engine.decoder, dict[int, float]()
    with tempfile.TemporaryDirectory(prefix="longctx-gpus-") as place:
        folder = Path(place)
        for count in counts:
            split(engine, whole, given.on, count)
            same = given.same or 4 * engine.options.reading.chunk + 100
            read(engine, folder / str(count), same)
        tell(
            "same bytes",
            devices=counts,
            tokens=same,
            same=all_same([folder / str(n) for n in counts]),
        )
        if given.ask:
            compare_answers(engine, whole, given.on, counts, given.share, folder)
        for tokens in sorted(int(text) for text in given.tokens.split(",")):
            for count in counts:
                measure(engine, whole, given.on, count, tokens, folder / "timed", until, alone)


def measure(engine, whole, on, count, tokens, folder, until, alone) -> None:
    """One reading, unless the time for it has run out; seconds are of the whole reading."""
    rate = alone.get(count, 0.0)
    if time.monotonic() + (tokens / rate if rate else 0) > until:
        tell("left out", devices=count, tokens=tokens, why="no time is left for it")
        return
    split(engine, whole, on, count)
    warm_up(engine, tokens)
    seconds = read(engine, folder, tokens)
    alone.setdefault(count, tokens / seconds)
    Library.open(folder).remove(NAME)
    names = places(on, count)
    tell(
        "read",
        devices=names,
        tokens=tokens,
        seconds=round(seconds, 3),
        tokens_per_s=round(tokens / seconds, 1),
        peak_bytes=[peak_memory(name) for name in names],
    )


def compare_answers(engine, whole, on, counts, share, folder) -> None:
    """Asks each document by the devices that read it; the first number of them is compared with."""
    weights = sum(weight.nbytes for weight in whole._model.parameters())
    first: tuple[torch.Tensor, list[int]] | None = None
    for count in counts:
        split(engine, whole, on, count, int(share * weights) if count > 1 else None)
        began = time.perf_counter()
        hidden, tokens = asked(engine, folder / str(count))
        first = first or (hidden, tokens)
        pairs = enumerate(zip(tokens, first[1], strict=True))
        names = places(on, count)
        tell(
            "asked",
            devices=names,
            max_memory=int(share * weights) if count > 1 else None,
            same_bits=torch.equal(hidden, first[0]),
            same_tokens=next((n for n, (one, other) in pairs if one != other), len(tokens)),
            tokens=len(tokens),
            seconds=round(time.perf_counter() - began, 3),
            peak_bytes=[peak_memory(name) for name in names],
        )


def asked(engine, folder: Path) -> tuple[torch.Tensor, list[int]]:
    """The last states of a prompt (E,), and the tokens of an answer whatever they are."""
    document = Library.open(folder).document(NAME)
    method = engine.new_method(document.snapshot(), document)
    way = way_of(engine, document, method, METHOD, PassageIndex(document), document)
    ids = random_ids(QUESTION, engine.files.config.vocab_size, seed=1)
    scored = torch.ones(QUESTION, dtype=torch.bool)
    begun = way.begin(Question(ids, scored, ANSWER, words=text_of(ids.int()).decode()), list)
    given = begun.policy, begun.hidden, begun.prompt, Sampling(), ANSWER, set[int]()
    return begun.hidden[-1].cpu(), [*Generation(engine.decoder, *given).tokens()]


def places(on: str, count: int) -> list[str]:
    """The names of so many devices."""
    return [on if on == "cpu" else f"{on}:{number}" for number in range(count)]


def split(engine, whole, on: str, count: int, most: int | None = None) -> None:
    """Puts the model's layers on so many devices, each with at most so many bytes of weights."""
    names = places(on, count)
    engine.devices, engine.device = (tuple(names) if count > 1 else ()), names[0]
    # one device too: layers come back from where an earlier split has put them
    engine._decoder = SplitDecoder(whole, names, most)
    for name in names:
        reset_peak_memory(name)


def read(engine, folder: Path, tokens: int) -> float:
    """Reads a document of random tokens into a library; seconds until it is complete."""
    library = Library.open(folder, create=True)
    with library.writer(NAME, header(engine)) as writer:
        behind = WriterBehind(writer, engine.device, len(engine.devices))
        reading = RandomReading(tokens, engine.files.config.vocab_size, behind)
        run = DocumentReading(engine, reading, behind, Cadence(), expected=tokens)
        began = time.perf_counter()
        run.read()
        for name in engine.devices or [engine.device]:
            synchronize(name)
        return time.perf_counter() - began


def all_same(libraries: list[Path]) -> bool:
    """Whether the documents of all libraries have the same files with the same bytes."""
    first, *others = (library / "documents" / NAME for library in libraries)
    names = sorted(path.name for path in first.iterdir())
    for other in others:
        _, different, missing = filecmp.cmpfiles(first, other, names, shallow=False)
        if different or missing or sorted(path.name for path in other.iterdir()) != names:
            return False
    return True


def tell(what: str, **values: object) -> None:
    """A line of results."""
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print(json.dumps({"what": what, "machine": machine, **values}), flush=True)


if __name__ == "__main__":
    main()
