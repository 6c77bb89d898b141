"""`longctx bench`: how fast this machine reads and answers, and how fast it could."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longctx.cli import options, render
from longctx.cli.loading import make_setup
from longctx.cli.text import size

if TYPE_CHECKING:
    from longctx.core.bench import answering, ingesting
    from longctx.core.bench.ceilings import Ceilings
    from longctx.core.bench.machine import Machine

EXAMPLES = """\
  longctx bench ingest --tokens 128K --tokens 1M
  longctx bench ingest --chunk 8k --budget 8k --chunk 32k --budget 32k --baselines
  longctx bench ask --tokens 1M --json
  longctx bench ingest --shapes tiny --tokens 16k --device cpu
"""


class What(StrEnum):
    """What is measured."""

    INGEST = "ingest"
    ASK = "ask"


def run(
    what: Annotated[What, typer.Argument(metavar="WHAT", help="What to measure.")],
    shapes: Annotated[
        str,
        typer.Option(
            "--shapes",
            metavar="NAME",
            show_default=False,
            help="Model shape to fill with random weights: llama-3.1-8b, mistral-nemo-12b or tiny; "
            "by default llama-3.1-8b.",
        ),
    ] = "llama-3.1-8b",
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            show_default=False,
            help="A real model in place of a shape: 'tiny', a folder, or a hub name.",
        ),
    ] = None,
    profile: options.ProfileName = None,
    tokens: Annotated[
        list[str] | None,
        typer.Option(
            "--tokens",
            metavar="N",
            show_default=False,
            help="Tokens of a document: 16k (= 16,000), 128K (= 131,072), 1M (= 1,048,576); by "
            "default 128K. May be given several times.",
        ),
    ] = None,
    chunk: Annotated[
        list[str] | None,
        typer.Option(
            "--chunk",
            metavar="N",
            show_default=False,
            help="Tokens read at a time; by default 8K, or the profile's. May be given several "
            "times, each with a --budget.",
        ),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            "--budget",
            metavar="N",
            show_default=False,
            help="Tokens that each layer's cache keeps; by default as many as --chunk.",
        ),
    ] = None,
    gather: options.Gather = None,
    no_save: Annotated[
        bool,
        options.flag("--no-save", "Read without writing a state; by default one is written."),
    ] = False,
    baselines: Annotated[
        bool,
        options.flag(
            "--baselines",
            "Also read with full attention as transformers runs it, and with a recent window; "
            "off by default.",
        ),
    ] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Measures the speed of reading or answering here.

    Documents are random tokens; states are written to the folder for temporary files (TMPDIR names
    it) and deleted. What the device and the disk can do at most is measured in the same run; the
    floor is what the layers that are run must compute, at this speed.
    """
    # Silences transformers and keeps it offline, as for every command.
    make_setup(model=model, profile=profile, method=None, device=device, dtype=dtype)
    from longctx.core.bench.shapes import Wanted
    from longctx.core.errors import UsageError
    from longctx.core.units import parse_tokens

    wanted = Wanted(shapes, model, profile, device, dtype, threads)
    lengths = [parse_tokens(text) for text in tokens or ["128K"]]
    sizes = [parse_tokens(text) for text in chunk or budget or []]
    kept = [parse_tokens(text) for text in budget or chunk or []]
    if len(sizes) != len(kept):
        raise UsageError(
            f"{len(sizes)} times --chunk and {len(kept)} times --budget",
            "each chunk needs its budget",
            "Give both as often.",
        )
    pairs = list(zip(sizes, kept, strict=True))
    if profile is not None and model is None:
        raise UsageError(
            "--profile needs --model", "shapes have settings of their own", "Leave it out."
        )
    if what is What.INGEST and gather is not None:
        raise UsageError("--gather is for `bench ask`", "reading gathers nothing", "Leave it out.")
    if what is What.INGEST:
        _ingest(wanted, lengths, pairs, not no_save, baselines, json)
    elif no_save or baselines:
        raise UsageError(
            "--no-save and --baselines are for `bench ingest`",
            "answers are given from a state",
            "Leave them out.",
        )
    else:
        _ask(wanted, lengths, pairs, gather, json)


def _ingest(
    wanted: Any,
    tokens: list[int],
    sizes: list[tuple[int, int]],
    save: bool,
    baselines: bool,
    json: bool,
) -> None:
    from longctx.core.bench.ingesting import ingest

    report = ingest(wanted, tokens, sizes, save, baselines, render.note)
    if json:
        render.print_json(report.as_dict())
    else:
        _show_readings(report)


def _ask(
    wanted: Any, tokens: list[int], sizes: list[tuple[int, int]], gather: int | None, json: bool
) -> None:
    from longctx.core.bench.answering import ask

    report = ask(wanted, tokens, sizes, gather, render.note)
    if json:
        render.print_json(report.as_dict())
    else:
        _show_answers(report)


# --- tables ---


def _show_readings(report: "ingesting.Report") -> None:
    _show_machine(report.machine, report.ceilings)
    headers = ("method", "tokens", "chunk/cache", "seconds", "tokens/s", "floor", "over floor")
    headers = (*headers, "peak memory", "state")
    rows = [
        (
            f"reform, {r.floor.layers} layers",
            f"{r.tokens:,}",
            f"{r.chunk:,}/{r.budget:,}",
            f"{r.seconds:,.2f}",
            f"{r.tokens_per_s:,.0f}",
            f"{r.floor.seconds:,.2f}",
            f"{r.over_floor:.2f}",
            size(r.peak_memory),
            "not written" if r.state_bytes is None else size(r.state_bytes),
        )
        for r in report.readings
    ]
    rows += [
        (
            b.name,
            f"{b.tokens:,}",
            f"{b.chunk:,}/{b.budget:,}" if b.chunk else "all/all",
            b.failed or f"{b.seconds:,.2f}",
            "" if b.failed else f"{b.tokens_per_s:,.0f}",
            *("", "", size(b.peak_memory), ""),
        )
        for b in report.baselines
    ]
    render.line("")
    render.table(headers, rows, right=headers[1:])
    for g in report.growth:
        render.line(
            f"chunk {g.chunk:,}, cache {g.budget:,}: {g.tokens:g} times the tokens take "
            f"{g.seconds:.2f} times the time"
        )


def _show_answers(report: "answering.Report") -> None:
    _show_machine(report.machine, report.ceilings)
    headers = (
        "tokens",
        "chunk/cache",
        "page cache",
        "gather",
        "least",
        "first token",
        "tokens/s",
        "at most",
    )
    rows = [
        (
            f"{r.tokens:,}",
            f"{r.chunk:,}/{r.budget:,}",
            r.cache,
            f"{r.gather_s * 1000:,.0f} ms",
            "" if r.gather_floor_s is None else f"{r.gather_floor_s * 1000:,.0f} ms",
            f"{r.first_token_s * 1000:,.0f} ms",
            f"{r.decode_tokens_per_s:,.1f}",
            f"{r.decode_ceiling:,.1f}",
        )
        for r in report.answers
    ]
    render.line("")
    render.table(headers, rows, right=headers)


def _show_machine(machine: "Machine", ceilings: "Ceilings") -> None:
    attention = ", ".join(f"{name} {_tera(flops)}" for name, flops in ceilings.attention_by.items())
    facts = [
        ("model", f"{machine.model}, {machine.dtype}"),
        ("device", f"{machine.device}, {machine.processor}, {machine.threads} threads"),
        ("versions", f"torch {machine.torch}, transformers {machine.transformers}"),
        ("matrix product", _tera(ceilings.matmul_flops)),
        ("full attention", attention),
        ("copy on the device", _rate(ceilings.copy_bytes_s)),
        ("to and from it", _rates(ceilings.to_device_bytes_s, ceilings.to_host_bytes_s)),
        ("disk, write and read", _rates(ceilings.disk_write_bytes_s, ceilings.disk_read_bytes_s)),
    ]
    render.facts([(name, value) for name, value in facts if value])


def _tera(flops: float) -> str:
    return f"{flops / 1e12:,.3g} TFLOP/s"


def _rate(speed: float) -> str:
    return f"{size(round(speed))}/s"


def _rates(*speeds: float | None) -> str:
    return ", ".join(_rate(speed) for speed in speeds if speed)
