"""Times one question to a document of random tokens, in each way to ask it.

The document is on disk, or only in the method's memory. What is asked, and how, are the pipeline's
own stages; what is possible at most is given.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import torch

from longctx.core.ask.kept_rows import KeptRows
from longctx.core.ask.strategies import Answering, Question, Recalling, way_of
from longctx.core.common.device import empty_cache, peak_memory, reset_peak_memory
from longctx.core.contracts.method import Growing, Recallable, Way
from longctx.core.decode.decode import Generation
from longctx.core.engine.setup import Engine
from longctx.core.kv.embeddings import GROUP as EMBEDDINGS
from longctx.core.measure.bench import ceilings
from longctx.core.measure.bench.ceilings import Ceilings
from longctx.core.measure.bench.floors import entry_bytes, weight_bytes
from longctx.core.measure.bench.reading import random_ids, text_of
from longctx.core.measure.bench.states import NAME, make_state
from longctx.core.profile.sampling import Sampling
from longctx.core.retrieve.gather_by import METHOD, USUAL
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.store.document import Document
from longctx.core.store.library import Library

QUESTION, ANSWER = 32, 64  # tokens
CACHES = {"cold": ceilings.forget, "warm": ceilings.remember}  # what is done to each file
IN_MEMORY = "in memory"


@dataclass(frozen=True)
class Answer:
    """One question to one document.

    Attributes:
        tokens, state_bytes: of the document; None where it is not on disk.
        method: that answered.
        chunk, budget: with which its state was made; None: everything is kept.
        gathered_by: of `core/retrieve/gather_by/`; "method" is its own published rule.
        gathered: tokens that were recomputed for the question, or that the answer stands on.
        cache: cold: nothing of the state is in memory; warm: all of it is in the page cache; same
            document: it was also opened and checked before; in memory: as after reading it.
        open_s: to open the state and load what every question needs of it; 0 where it was open.
        gather_s: from the question to the tokens that it needs: scores, choice, their ids; or
            until the question has been read, where it attends to all that was kept.
        gather_floor_s: to move the rows to the device once; None where none are, or where it is
            not known how fast.
        first_token_s: from the question to the first token of the answer.
        decode_tokens_per_s: of the tokens after the first.
        decode_ceiling: tokens/s, if each read all weights, the keys that are scanned, and what is
            attended to once.
        peak_memory: bytes at most on the device; None where unknown.
    """

    tokens: int
    state_bytes: int | None
    method: str
    chunk: int
    budget: int | None
    gathered_by: str
    gathered: int
    cache: str
    open_s: float
    gather_s: float
    gather_floor_s: float | None
    first_token_s: float
    decode_tokens_per_s: float
    decode_ceiling: float
    peak_memory: int | None


@dataclass(frozen=True)
class _Open:
    """What can be asked.

    Attributes:
        answering: the way to ask.
        way: the method that answers in this way.
        document: it; None where it is not on disk.
        seconds: that opening it took.
    """

    answering: Answering
    way: Way
    document: Document | None = None
    seconds: float = 0.0


class Asker:
    """Asks one question about one document again and again, in each way that there is.

    Args:
        engine: the model, with the options of the method.
        tokens: of the document.
        gather: tokens to recompute; None: the method's.
        found: what is possible here.
        on_note: gets a line at each step.
    """

    def __init__(
        self,
        engine: Engine,
        tokens: int,
        gather: int | None,
        found: Ceilings,
        on_note: Callable[[str], None],
    ):
        self._engine, self._tokens, self._found, self._note = engine, tokens, found, on_note
        ids = random_ids(QUESTION, engine.files.config.vocab_size, seed=1)
        scored = torch.ones(QUESTION, dtype=torch.bool)
        words = text_of(ids.int()).decode()
        self._question = Question(ids, scored, ANSWER, gather, words=words)

    def from_memory(self) -> list[Answer]:
        """From a memory that is filled at random, in the ways that need no more."""
        self._note(f"asking about {self._tokens:,} tokens in memory")
        empty_cache(self._engine.device)
        method = self._engine.new_method(tokens=self._tokens + QUESTION + ANSWER)
        method.fill(self._tokens)
        document = SimpleNamespace(manifest=SimpleNamespace(name=NAME, tokens=self._tokens))
        answers = []
        for name, way in self._engine.ways(method).items():
            if isinstance(way, Recallable):
                opened = _Open(Recalling(self._engine, document, way, name, PassageIndex()), way)
                self._ask(name, opened, IN_MEMORY)  # uncounted: a GPU's kernels are chosen
                answers.append(self._ask(name, opened, IN_MEMORY))
        return answers

    def from_disk(self, folder: Path) -> list[Answer]:
        """From a state that is made in a folder, and deleted."""
        library = Library.open(folder / "library", create=True)
        self._note(f"making a state of {self._tokens:,} tokens")
        make_state(library, self._engine, self._tokens)
        answers = []
        for name in self._engine.ways(self._engine.new_method()):
            for by in self._gathers_by(name):
                self._note(f"asking about {self._tokens:,} tokens with {name}, gathered by {by}")
                answers += self._each_cache(library, name, by)
        library.remove(NAME)
        return answers

    def _gathers_by(self, name: str) -> tuple[str, ...]:
        """The method's own rule, and beside it the usual one where passages are recomputed."""
        way = self._engine.ways(self._engine.new_method())[name]
        return (METHOD,) if isinstance(way, Recallable) else (METHOD, USUAL)

    def _each_cache(self, library: Library, name: str, by: str) -> Iterator[Answer]:
        """Cold, warm, and what is open already; what a system cannot do is left out."""
        [folder] = [folder for folder in library.folders() if folder.name == NAME]
        opened = self._open(library, name, by)  # once uncounted, so that a GPU's kernels are chosen
        self._ask(name, opened, "")
        for cache, prepare in CACHES.items():
            opened = None  # it would take the room of what is opened next
            if all([prepare(file) for file in folder.iterdir()]):
                opened = self._open(library, name, by)
                yield self._ask(name, opened, cache)
        yield self._ask(name, replace(opened, seconds=0.0), "same document")

    def _open(self, library: Library, name: str, by: str) -> _Open:
        empty_cache(self._engine.device)
        started = time.perf_counter()
        document = library.document(NAME)
        method = self._engine.new_method(document.snapshot(), document)
        kept, index = KeptRows(self._engine.device), PassageIndex(document)
        kept.warm(document)
        _ = index.units  # as a session does, while the model is loaded
        engine = replace(self._engine, asked_with=name)
        answering = way_of(engine, document, method, by, index, kept.of(document))
        ceilings.wait_for(self._engine.device)
        seconds = time.perf_counter() - started
        return _Open(answering, self._engine.ways(method)[name], document, seconds)

    def _ask(self, name: str, opened: _Open, cache: str) -> Answer:
        engine, document, clock = self._engine, opened.document, _Clock(self._engine.device)
        reset_peak_memory(engine.device)
        begun = opened.answering.begin(self._question, lambda: clock.mark("gather"))
        tokens = Generation(
            engine.decoder, begun.policy, begun.hidden, begun.prompt, Sampling(), ANSWER, set()
        ).tokens()
        next(tokens)
        clock.mark("first")
        count = sum(1 for _ in tokens)
        clock.mark("all")
        peak, part = peak_memory(engine.device), engine.options.reading
        return Answer(
            tokens=self._tokens,
            state_bytes=document and document.size(),
            method=name,
            chunk=part.chunk,
            budget=part.budget,
            gathered_by=opened.answering.gathers_by,
            gathered=len(begun.found().tokens),
            cache=cache,
            open_s=round(opened.seconds, 4),
            gather_s=round(clock.marks["gather"], 4),
            gather_floor_s=self._gather_floor(opened, cache),
            first_token_s=round(clock.marks["first"], 4),
            decode_tokens_per_s=round(count / (clock.marks["all"] - clock.marks["first"]), 2),
            decode_ceiling=round(self._decode_ceiling(opened.way, len(begun.prompt)), 2),
            peak_memory=peak,
        )

    def _gather_floor(self, opened: _Open, cache: str) -> float | None:
        if isinstance(opened.way, Recallable):
            return None
        shards, found = opened.document.manifest.shards, self._found
        size = sum(shard.size for shard in shards if shard.group == EMBEDDINGS)
        speed = found.to_device_bytes_s or found.copy_bytes_s
        if cache == "cold":
            speed = found.disk_read_bytes_s
        return size / speed if speed else None

    def _decode_ceiling(self, way: Way, prompt: int) -> float:
        """Tokens/s where each reads all layers, the output matrix and its keys and values once."""
        config, layers = self._engine.files.config, self._engine.decoder.layers
        itemsize = self._engine.dtype.itemsize
        moved = weight_bytes(config, layers, itemsize)
        if isinstance(way, Growing):
            o, row = way.options, way.row_bytes()  # as many bytes of keys as of values
            moved += min(self._tokens, o.window) * row
            moved += max(0, self._tokens - o.near) * row // 2
        else:
            moved += prompt * entry_bytes(layers, itemsize)
        return self._found.copy_bytes_s / moved


class _Clock:
    """Seconds since it was made, when the device has done what it was given."""

    def __init__(self, device: str):
        self.marks: dict[str, float] = {}
        self._device, self._started = device, time.perf_counter()

    def mark(self, name: str) -> None:
        ceilings.wait_for(self._device)
        self.marks[name] = time.perf_counter() - self._started
