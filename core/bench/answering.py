"""How fast questions are answered from a state, with a cold and with a warm page cache.

The state is made here: the rows of one chunk, shuffled over and over, and the snapshot after it.
The stages are those of `Session`, apart from tokens becoming text.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from longctx.core.bench import ceilings
from longctx.core.bench.ceilings import Ceilings
from longctx.core.bench.floors import layer_flop
from longctx.core.bench.machine import Machine, machine_of
from longctx.core.bench.reading import RandomReading
from longctx.core.bench.shapes import Wanted, open_engine, sized
from longctx.core.decode import Generation
from longctx.core.device import peak_memory, reset_peak_memory
from longctx.core.gather import room, top_tokens
from longctx.core.memory import Method, Scores
from longctx.core.recompute import recompute
from longctx.core.resume import header
from longctx.core.sampling import Sampling
from longctx.core.setup import Engine
from longctx.core.store.behind import WriterBehind
from longctx.core.store.document import Document
from longctx.core.store.library import Library

SCHEMA_VERSION = 1
NAME = "random"
QUESTION, ANSWER = 32, 64  # tokens
CACHES = ("cold", "warm", "same document")


@dataclass(frozen=True)
class Answer:
    """One question to one document.

    Attributes:
        tokens, state_bytes: of the document.
        chunk, budget: with which its state was made.
        gathered: tokens recomputed for the question.
        cache: cold: nothing of the state is in memory; warm: all of it is in the page cache; same
            document: it was also opened and checked before.
        open_s: to open the state and load its snapshot; 0 where it was open.
        gather_s: from the question to the tokens that it needs: scores, choice, their ids.
        gather_floor_s: to move the rows to the device once; None where it is not known how fast.
        first_token_s: from the question to the first token of the answer.
        decode_tokens_per_s: of the tokens after the first.
        decode_ceiling: tokens/s, if each read all weights and the cache once.
        peak_memory: bytes at most on the device; None where unknown.
    """

    tokens: int
    state_bytes: int
    chunk: int
    budget: int
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
class Report:
    """What was measured.

    Attributes:
        machine: where and with what.
        ceilings: what is possible here.
        answers: for each pair of chunk and budget, each length and state of the page cache.
    """

    machine: Machine
    ceilings: Ceilings
    answers: list[Answer]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `bench ask`."""
        return {"schema_version": SCHEMA_VERSION, "bench": "ask", **asdict(self)}


def ask(
    wanted: Wanted,
    tokens: Sequence[int] = (131072,),
    sizes: Sequence[tuple[int, int]] = (),
    gather: int | None = None,
    on_note: Callable[[str], None] = lambda text: None,
) -> Report:
    """Measures answers from documents of random tokens.

    Args:
        wanted: the model, the device.
        tokens: length of each document.
        sizes: pairs of chunk and budget; none: those of the shape or the profile.
        gather: tokens to recompute; None: the method's.
        on_note: gets a line at each step.

    Raises:
        UsageError: an unknown shape, model or device, or sizes that cannot be.
        LongctxError: no room for the model or the state.
    """
    on_note("making the model")
    engine = open_engine(wanted)
    given, answers = engine.options, []
    with TemporaryDirectory(prefix="longctx-bench-") as name:
        folder = Path(name)
        on_note("measuring the ceilings")
        found = ceilings.measure(engine.decoder.layers[0], engine.device, engine.dtype, folder)
        library = Library.open(folder / "library", create=True)
        for chunk, budget in sizes or [(given.chunk, given.budget)]:
            engine.options = sized(given, chunk, budget)
            for length in tokens:
                on_note(f"making a state of {length:,} tokens")
                make_state(library, engine, length)
                on_note(f"asking about {length:,} tokens")
                answers += _Asker(engine, library, gather, found).answers()
                library.remove(NAME)
    return Report(machine_of(engine), found, answers)


def make_state(library: Library, engine: Engine, tokens: int) -> None:
    """Writes a document of random tokens without reading it: the rows of one chunk repeat."""
    method, rows = _read_some(engine)
    count = len(next(iter(rows.values())))
    with library.writer(NAME, header(engine)) as writer:
        behind = WriterBehind(writer, engine.device)
        reading = RandomReading(tokens, engine.files.config.vocab_size, behind)
        with behind:
            for start in range(0, tokens, count):
                order = torch.randperm(count)[: tokens - start]
                behind.append(method.group, {name: row[order] for name, row in rows.items()})
                reading.store(start + len(order))
        writer.complete(method.snapshot(), report=reading.report())


def _read_some(engine: Engine) -> tuple[Method, dict[str, Tensor]]:
    """A method whose cache is full, and the rows of its last chunk on the CPU."""
    method = engine.new_method()
    generator = torch.Generator().manual_seed(0)
    rows: dict[str, Tensor] = {}
    for _ in range(1 + -(-engine.options.budget // method.chunk)):
        ids = torch.randint(engine.files.config.vocab_size, (method.chunk,), generator=generator)
        engine.decoder.read(ids, method, method.depth)
        rows = {name: row.cpu() for name, row in method.rows().items()}
        method.end_chunk()
    return method, rows


class _Asker:
    """Asks one question of a document again and again."""

    def __init__(self, engine: Engine, library: Library, gather: int | None, found: Ceilings):
        self._engine, self._library, self._found = engine, library, found
        self._gather = engine.options.gather if gather is None else gather
        generator = torch.Generator().manual_seed(1)
        vocabulary = engine.files.config.vocab_size
        self._question = torch.randint(vocabulary, (QUESTION,), generator=generator)

    def answers(self) -> list[Answer]:
        """Cold, warm, and from what is open already; what a system cannot do is left out."""
        document, method, _ = self._open()  # once uncounted, so that a GPU's kernels are chosen
        self._ask(document, method, "warm", 0.0)
        answers = []
        for cache in CACHES:
            if cache == "cold" and not self._forget():
                continue
            open_s = 0.0
            if cache != "same document":
                document, method, open_s = self._open()
            answers.append(self._ask(document, method, cache, open_s))
        return answers

    def _forget(self) -> bool:
        """Takes the state out of the page cache, if this system can."""
        [folder] = [folder for folder in self._library.folders() if folder.name == NAME]
        return all([ceilings.forget(file) for file in folder.iterdir()])

    def _open(self) -> tuple[Document, Method, float]:
        started = time.perf_counter()
        document = self._library.document(NAME)
        method = self._engine.new_method(document.snapshot())
        ceilings.wait_for(self._engine.device)
        return document, method, time.perf_counter() - started

    def _ask(self, document: Document, method: Method, cache: str, open_s: float) -> Answer:
        engine, question = self._engine, self._question
        reset_peak_memory(engine.device)
        total, prefix = document.manifest.tokens, engine.prompt.prefix()
        fit = room(engine.window, len(prefix), len(question), ANSWER, total, self._gather)
        started = time.perf_counter()
        scores = self._score(document, method)
        chosen = top_tokens(scores, fit.tokens, total, method.edges)
        gathered = document.take("tokens", chosen)["ids"].long()
        gather_s = time.perf_counter() - started
        memory, hidden = recompute(engine.decoder, prefix, gathered, question, ANSWER)
        prompt = torch.cat([prefix, gathered, question])
        tokens = Generation(
            engine.decoder, memory, hidden, prompt, Sampling(), ANSWER, set()
        ).tokens()
        next(tokens)
        first_s = time.perf_counter() - started
        count = sum(1 for _ in tokens)
        rest_s = time.perf_counter() - started - first_s
        return Answer(
            tokens=total,
            state_bytes=document.size(),
            chunk=engine.options.chunk,
            budget=engine.options.budget,
            gathered=len(chosen),
            cache=cache,
            open_s=round(open_s, 4),
            gather_s=round(gather_s, 4),
            gather_floor_s=self._gather_floor(document, method, cache),
            first_token_s=round(first_s, 4),
            decode_tokens_per_s=round(count / rest_s, 2),
            decode_ceiling=round(self._decode_ceiling(len(prefix) + len(chosen)), 2),
            peak_memory=peak_memory(engine.device),
        )

    def _score(self, document: Document, method: Method) -> Scores:
        decoder, question = self._engine.decoder, self._question
        rows = (rows for _, rows in document.rows(method.group))
        scored = torch.ones(len(question), dtype=torch.bool)
        scores = method.score(
            lambda asked: decoder.read(question, asked, method.depth), scored, rows
        )
        return Scores(scores.raw.cpu(), scores.pooled.cpu())

    def _gather_floor(self, document: Document, method: Method, cache: str) -> float | None:
        sizes = [shard.size for shard in document.manifest.shards if shard.group == method.group]
        found = self._found
        speed = found.to_device_bytes_s or found.copy_bytes_s
        if cache == "cold":
            speed = found.disk_read_bytes_s
        return sum(sizes) / speed if speed else None

    def _decode_ceiling(self, context: int) -> float:
        """Tokens/s where each reads all layers, the output matrix and the cache from memory."""
        config, layers = self._engine.files.config, self._engine.decoder.layers
        weights = sum(layer_flop(config, layer) // 2 for layer in layers)
        weights += config.vocab_size * config.hidden_size
        cache = sum(2 * layer.kv_heads * layer.head_dim for layer in layers)
        cache *= context + len(self._question)
        return self._found.copy_bytes_s / ((weights + cache) * self._engine.dtype.itemsize)
