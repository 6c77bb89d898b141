"""`longctx bench`: how fast this machine reads, answers and decodes, and how fast it could."""

from collections.abc import Callable
from enum import StrEnum
from itertools import count, zip_longest
from typing import Annotated

import typer

from longctx.cli import amounts, bench_tables, options, progress, render
from longctx.cli.loading import make_setup
from longctx.cli.measuring import option

EXAMPLES = """\
  longctx bench ingest --tokens 128K --tokens 1M
  longctx bench ingest --chunk 8k --budget 8k --chunk 32k --budget 32k --baselines
  longctx bench ask --tokens 1M --json
  longctx bench ingest --method reattention --at 128K --at 512K --at 1M
  longctx bench ask --method reattention --tokens 1M --no-save
  longctx bench decode --tokens 32K --tokens 128K --baselines
  longctx bench decode --tokens 128K --decode dense --decode recycled:budget=2048
  longctx bench ingest --shapes tiny --tokens 16k --device cpu
"""
RUNS = 3  # of everything that is measured
PROFILE = ("--profile needs --model", "shapes have settings of their own", "Leave it out.")
GATHER = ("--gather is for `bench ask`", "reading gathers nothing", "Leave it out.")
PLACES = ("--at is for `bench ingest`", "it measures reading", "Leave it out.")
BESIDE = (
    "--baselines is for `bench ingest` and `bench decode`",
    "nothing else is asked in this way",
    "Leave it out.",
)
DECODING = (
    "--decode and --answer are for `bench decode`",
    "they measure decoding",
    "Leave them out.",
)
NOT_DECODING = (
    "--method, --kv-dtype, --precision, --chunk, --budget and --no-save are not for `bench decode`",
    "nothing is read: keys and values are random, and policies have their options in --decode",
    "Leave them out.",
)
AT = (
    "--at is not for --tokens, --baselines, --no-save or --runs",
    "it reads a few chunks in place of documents, and writes nothing",
    "Give one or the other.",
)


class What(StrEnum):
    """What is measured."""

    INGEST = "ingest"
    ASK = "ask"
    DECODE = "decode"


def run(
    what: Annotated[What, typer.Argument(metavar="WHAT", help="What to measure.")],
    shapes: Annotated[
        str,
        option(
            "--shapes",
            "NAME",
            "Model shape to fill with random weights: llama-3.1-8b, llama-3.2-1b, "
            "mistral-nemo-12b or tiny; by default llama-3.1-8b.",
        ),
    ] = "llama-3.1-8b",
    model: Annotated[
        str | None,
        option(
            "--model", "MODEL", "A real model in place of a shape: 'tiny', a folder, or a hub name."
        ),
    ] = None,
    profile: options.ProfileName = None,
    method: Annotated[
        str | None,
        option(
            "--method", "METHOD", "Reading method: reform, reattention or both; by default reform."
        ),
    ] = None,
    kv_dtype: options.KvDtype = None,
    precision: options.Precision = None,
    tokens: Annotated[
        list[str] | None,
        option(
            "--tokens",
            "N",
            "Tokens of a document, or before an answer: 16k (= 16,000), 128K (= 131,072), 1M "
            "(= 1,048,576); by default 128K. May be given several times.",
            callback=amounts.of("tokens"),
        ),
    ] = None,
    chunk: Annotated[
        list[str] | None,
        option(
            "--chunk",
            "N",
            "Tokens read at a time; by default 8K, 512 where everything is kept, or the "
            "profile's. May be given several times, each with a --budget where there is one.",
            callback=amounts.of("tokens"),
        ),
    ] = None,
    budget: Annotated[
        list[str] | None,
        option(
            "--budget",
            "N",
            "Tokens that each layer's cache keeps; by default as many as --chunk. Not for "
            "methods that keep everything.",
            callback=amounts.of("tokens"),
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        option(
            "--at",
            "N",
            "Reading: instead of whole documents, read 16 chunks after N tokens, over randomly "
            "filled keys and values, and estimate what a document takes; nothing is written. For "
            "methods that keep keys and values; may be given several times.",
            callback=amounts.of("tokens"),
        ),
    ] = None,
    gather: options.Gather = None,
    decode: Annotated[
        list[str] | None,
        option(
            "--decode",
            "NAME[:OPTION=VALUE,...]",
            "Decoding: a decode policy to measure; by default each there is. May be given "
            "several times.",
        ),
    ] = None,
    answer: Annotated[
        str | None,
        option(
            "--answer",
            "N",
            "Decoding: tokens that are timed; by default 256.",
            callback=amounts.of("tokens"),
        ),
    ] = None,
    no_save: Annotated[
        bool,
        options.flag(
            "--no-save",
            "Write no state; by default one is written. Reading then keeps nothing, and `ask` "
            "needs a method that keeps keys and values, which are filled at random.",
        ),
    ] = False,
    runs: Annotated[
        int | None,
        option(
            "--runs",
            "N",
            "Measure everything N times, and show the run in the middle with the least and the "
            "most; by default 3.",
            min=1,
        ),
    ] = None,
    baselines: Annotated[
        bool,
        options.flag(
            "--baselines",
            "Also read with full attention as transformers runs it, and with a recent window, or "
            "decode with its `generate`; off by default.",
        ),
    ] = False,
    gpu_memory: Annotated[
        str | None,
        option(
            "--gpu-memory",
            "SIZE",
            "Use only so much of the GPU's memory, such as 24GB; by default all of it.",
            callback=amounts.of("bytes"),
        ),
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Measures the speed of reading, answering or decoding here.

    Documents are random tokens; states are written to the temporary folder (TMPDIR) and deleted.
    The same run measures the ceilings of device and disk; the floor of a reading is what its layers
    must compute at that speed. Decoding follows random keys and values; its bound is what each
    token must read, at the speed of a copy.
    """
    # Silences transformers and keeps it offline, as for every command.
    make_setup(model=model, profile=profile, method=None, device=device, dtype=dtype)
    from longctx.core.common.units import parse_bytes, parse_tokens
    from longctx.core.measure.bench.shapes import Wanted

    _require(profile is None or model is not None, PROFILE)
    _require(not (at and (tokens or baselines or no_save or runs)), AT)
    _require(what is What.ASK or gather is None, GATHER)
    _require(what is What.INGEST or not at, PLACES)
    _require(what is not What.ASK or not baselines, BESIDE)
    _require(what is What.DECODE or not (decode or answer), DECODING)
    reading = method or kv_dtype or precision or chunk or budget or no_save
    _require(what is not What.DECODE or not reading, NOT_DECODING)
    wanted = Wanted(
        shape=shapes,
        model=model,
        profile=profile,
        method=method or "reform",
        kv_dtype=kv_dtype,
        precision=precision,
        device=device,
        dtype=dtype,
        threads=threads,
        gpu_memory=None if gpu_memory is None else parse_bytes(gpu_memory),
        runs=runs or RUNS,
    )
    lengths = [parse_tokens(text) for text in at or tokens or ["128K"]]
    sizes = _pairs(*([parse_tokens(text) for text in texts or []] for texts in (chunk, budget)))
    if at:
        from longctx.core.measure.bench.stretches import measure_at

        report = measure_at(wanted, lengths, sizes, _steps())
    elif what is What.INGEST:
        from longctx.core.measure.bench.ingesting import ingest

        report = ingest(wanted, lengths, sizes, not no_save, baselines, _steps())
    elif what is What.DECODE:
        from longctx.core.measure.bench.decoding import decode as measure

        timed = parse_tokens(answer or "256")
        report = measure(wanted, lengths, decode or (), timed, baselines, _steps())
    else:
        from longctx.core.measure.bench.answering import ask

        report = ask(wanted, lengths, sizes, gather, not no_save, _steps())
    if not render.result(report.as_dict(), json):
        bench_tables.show(report)


def _pairs(chunks: list[int], budgets: list[int]) -> list[tuple[int | None, int | None]]:
    """Each chunk with its budget; None where only the other is given."""
    counts = len(chunks), len(budgets)
    _require(
        0 in counts or len({*counts}) == 1,
        (
            f"{counts[0]} times --chunk and {counts[1]} times --budget",
            "each chunk needs its budget",
            "Give both as often.",
        ),
    )
    return list(zip_longest(chunks, budgets))


def _require(fits: bool, message: tuple[str, str, str]) -> None:
    from longctx.core.common.errors import UsageError

    if not fits:
        raise UsageError(*message)


def _steps() -> Callable[[str], None]:
    """Reports which measurement runs; their total number is unknown."""
    numbers = count()
    return lambda text: progress.step(text, next(numbers), unit="measurements")
