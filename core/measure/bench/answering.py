"""How fast questions are answered: from disk with a cold or warm page cache, or from memory.

The state is made here, without reading, of random tokens. The stages are those of `Session`, apart
from tokens becoming text.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from longctx.core import methods
from longctx.core.ask.answering import Answering, Question
from longctx.core.ask.kept_rows import KeptRows
from longctx.core.ask.recalling import Recalling
from longctx.core.ask.ways import way_of
from longctx.core.common.device import empty_cache, peak_memory, reset_peak_memory
from longctx.core.common.errors import UsageError
from longctx.core.common.read_ahead import ReadAhead
from longctx.core.contracts.method import Growing, Recallable, Way
from longctx.core.decode.decode import Generation
from longctx.core.engine.opening import saved_snapshot
from longctx.core.engine.setup import Engine
from longctx.core.kv.embeddings import GROUP as EMBEDDINGS
from longctx.core.measure.bench.ceilings import Ceilings, Clock, forget, remember
from longctx.core.measure.bench.floors import entry_bytes, weight_bytes
from longctx.core.measure.bench.machine import machine_of
from longctx.core.measure.bench.reading import NAME, filled, make_state, random_ids, text_of
from longctx.core.measure.bench.shapes import Wanted
from longctx.core.measure.bench.spread import Spread, of_runs
from longctx.core.measure.bench.workbench import Report, Size, Workbench, workbench
from longctx.core.profile.sampling import Sampling
from longctx.core.retrieve.gather_by import METHOD, USUAL
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.library import Library

QUESTION, ANSWER = 32, 64  # tokens
CACHES = {"cold": forget, "warm": remember}  # what is done to each file
IN_MEMORY = "in memory"
FIGURES = ("open_s", "gather_s", "decode_tokens_per_s")  # whose spread is told, and
FIRST = "first_token_s"  # by which runs are ordered


@dataclass(frozen=True)
class TimedAnswer:
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
        spread: the least and the most of figures over all runs, of which this is the middle one;
            empty where there was one.
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
    spread: Spread = field(default_factory=dict)


@dataclass(frozen=True)
class AskReport(Report):
    """What was measured.

    Attributes:
        ceilings: what is possible here.
        answers: for each pair of chunk and budget, each length and state of the page cache.
    """

    bench = "ask"
    ceilings: Ceilings
    answers: list[TimedAnswer]


@dataclass(frozen=True)
class _Open:
    """What can be asked.

    Attributes:
        answering: the way to ask.
        way: the method that answers in this way.
        document: the open document; None where it is not on disk.
        seconds: that opening it took.
    """

    answering: Answering
    way: Way
    document: Document | None = None
    seconds: float = 0.0


def ask(
    wanted: Wanted,
    tokens: Sequence[int] = (131072,),
    sizes: Sequence[Size] = (),
    gather: int | None = None,
    save: bool = True,
    on_note: Callable[[str], None] = lambda text: None,
) -> AskReport:
    """Measures answers from documents of random tokens.

    Args:
        wanted: the model, the method, the device.
        tokens: length of each document.
        sizes: pairs of chunk and budget; none: those of the shape, the method or the profile.
        gather: tokens to recompute; None: the method's.
        save: answer from a state on disk; otherwise from a memory that is filled at random.
        on_note: gets a line at each step.

    Raises:
        UsageError: an unknown shape, model or device, sizes that cannot be, a method that
            keeps nothing to find an answer by, or one that needs a state to answer from.
        LongctxError: no room for the model or the state.
    """
    answers: list[TimedAnswer] = []
    with workbench(wanted, on_note, sizes, save, partial(_require, save)) as bench:
        for _ in bench.each_size():
            for length in tokens:
                asker = _Asker(bench, length, gather)
                answers += asker.from_disk(bench.folder) if bench.folder else asker.from_memory()
    return AskReport(machine_of(bench.engine), bench.ceilings, answers)


def _require(save: bool, engine: Engine) -> None:
    if not methods.load(engine.method_name).Method.capabilities.searches:
        raise UsageError(
            f"answers with the method {engine.method_name!r} are not measured here",
            "what it keeps is of a fixed size and is not searched",
            "Use another --method; `bench ingest` measures how it reads.",
        )
    if not save and engine.options.reading.budget is not None:
        raise UsageError(
            f"the method {engine.method_name!r} cannot answer without a state",
            "it finds in the rows on disk what to recompute",
            "Leave --no-save out, or use --method reattention.",
        )


class _Asker:
    """Asks one question about one document again and again, in each way there is.

    Args:
        bench: the model, with the options of the method.
        tokens: of the document.
        gather: tokens to recompute; None: the method's.
    """

    def __init__(self, bench: Workbench, tokens: int, gather: int | None):
        self._bench, self._engine, self._tokens = bench, bench.engine, tokens
        ids = random_ids(QUESTION, self._engine.files.config.vocab_size, seed=1)
        scored = torch.ones(QUESTION, dtype=torch.bool)
        words = text_of(ids.int()).decode()
        self._question = Question(ids, scored, ANSWER, gather, words=words)

    def from_memory(self) -> Iterator[TimedAnswer]:
        """From a memory that is filled at random, in the ways that need no more."""
        self._bench.note(f"asking about {self._tokens:,} tokens in memory")
        method = filled(self._engine, self._tokens, QUESTION + ANSWER)
        # All that is asked of a document where nothing of it is read.
        document: Any = SimpleNamespace(manifest=SimpleNamespace(name=NAME, tokens=self._tokens))
        for name, way in self._engine.ways(method).items():
            if isinstance(way, Recallable):
                opened = _Open(Recalling(self._engine, document, way, name, PassageIndex()), way)
                self._ask(name, opened, IN_MEMORY)  # uncounted: a GPU's kernels are chosen
                yield self._runs(partial(self._ask, name, opened, IN_MEMORY))

    def from_disk(self, folder: Path) -> Iterator[TimedAnswer]:
        """From a state that is made in a folder, and deleted."""
        library = Library.open(folder / "library", create=True)
        self._bench.note(f"making a state of {self._tokens:,} tokens")
        make_state(library, self._engine, self._tokens)
        for name, way in self._engine.ways(self._engine.new_method()).items():
            # The method's own rule, and the usual one too where passages are recomputed.
            for by in (METHOD,) if isinstance(way, Recallable) else (METHOD, USUAL):
                self._bench.note(
                    f"asking about {self._tokens:,} tokens with {name}, gathered by {by}"
                )
                yield from self._each_cache(library, name, by)
        library.remove(NAME)

    def _each_cache(self, library: Library, name: str, by: str) -> Iterator[TimedAnswer]:
        """Cold, warm, and what is open already; what a system cannot do is left out."""
        [folder] = [folder for folder in library.folders() if folder.name == NAME]
        opens = partial(self._open, library, name, by)
        last = [opens()]  # one at a time: two might not fit
        self._ask(name, last[0], "")  # uncounted, so that a GPU's kernels are chosen
        for cache, prepare in CACHES.items():
            if prepare(next(iter(folder.iterdir()))):
                yield self._runs(partial(self._anew, name, opens, folder, cache, last))
        again = replace(last[0], seconds=0.0)
        yield self._runs(partial(self._ask, name, again, "same document"))

    def _anew(
        self, name: str, opens: Callable[[], _Open], folder: Confined, cache: str, last: list[_Open]
    ) -> TimedAnswer:
        """Asks what is opened with the files in or not in the page cache; it becomes `last`."""
        last.clear()
        for file in folder.iterdir():
            CACHES[cache](file)
        last.append(opens())
        return self._ask(name, last[0], cache)

    def _runs(self, once: Callable[[], TimedAnswer]) -> TimedAnswer:
        return of_runs(once, self._bench.runs, FIRST, FIGURES)

    def _open(self, library: Library, name: str, by: str) -> _Open:
        engine = self._engine
        empty_cache(engine.device)
        clock = Clock(engine.device)
        document = library.document(NAME)
        kept, index = KeptRows(engine.device), PassageIndex(document)
        with ReadAhead() as ahead:  # as a session does, while the model is loaded
            words = ahead.submit(lambda: index.passages)
            method = engine.new_method(saved_snapshot(document, engine.device), document)
            kept.warm(document)
            words.result()
        asked = replace(engine, asked_with=name)
        answering = way_of(asked, document, method, by, index, kept.of(document))
        return _Open(answering, engine.ways(method)[name], document, clock.seconds())

    def _ask(self, name: str, opened: _Open, cache: str) -> TimedAnswer:
        engine, document, gathered_s = self._engine, opened.document, []
        reset_peak_memory(engine.device)
        clock = Clock(engine.device)
        begun = opened.answering.begin(self._question, lambda: gathered_s.append(clock.seconds()))
        tokens = Generation(
            engine.decoder, begun.policy, begun.hidden, begun.prompt, Sampling(), ANSWER, set()
        ).tokens()
        next(tokens)
        first_s = clock.seconds()
        count = sum(1 for _ in tokens)
        decode_s = clock.seconds() - first_s
        peak, part = peak_memory(engine.device), engine.options.reading
        return TimedAnswer(
            tokens=self._tokens,
            state_bytes=document and document.size(),
            method=name,
            chunk=part.chunk,
            budget=part.budget,
            gathered_by=opened.answering.gathers_by,
            gathered=len(begun.found().tokens),
            cache=cache,
            open_s=round(opened.seconds, 4),
            gather_s=round(gathered_s[-1], 4),
            gather_floor_s=self._gather_floor(opened, cache),
            first_token_s=round(first_s, 4),
            decode_tokens_per_s=round(count / decode_s, 2),
            decode_ceiling=round(self._decode_ceiling(opened.way, len(begun.prompt)), 2),
            peak_memory=peak,
        )

    def _gather_floor(self, opened: _Open, cache: str) -> float | None:
        if opened.document is None or isinstance(opened.way, Recallable):
            return None
        shards, found = opened.document.manifest.shards, self._bench.ceilings
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
        return self._bench.ceilings.copy_bytes_s / moved
