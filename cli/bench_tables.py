"""Tables of what `longctx bench` measured, for people."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from longctx.cli import render
from longctx.cli.text import counted, size

if TYPE_CHECKING:
    from longctx.core.measure.bench import answering, decoding, ingesting, stretches


def _show_readings(report: "ingesting.IngestReport") -> None:
    headers = "method, tokens, chunk/cache, seconds, tokens/s, floor, over floor, peak memory"
    rows = [
        (
            f"{report.machine.method}, {counted(r.floor.layers, 'layer')}",
            f"{r.tokens:,}",
            _sizes(r),
            _spread(r, "seconds", "{:,.2f}".format),
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
            _sizes(b),
            b.failed or _spread(b, "seconds", "{:,.2f}".format),
            "" if b.failed else f"{b.tokens_per_s:,.0f}",
            *("", "", size(b.peak_memory), ""),
        )
        for b in report.baselines
    ]
    _show(report, f"{headers}, state", rows)
    for g in report.growth:
        sizes = f"chunk {_count(g.chunk)}, cache {_count(g.budget)}"
        render.line(f"{sizes}: {g.tokens:g} times the tokens take {g.seconds:.2f} times the time")


def _show_answers(report: "answering.AskReport") -> None:
    headers = "method, by, tokens, chunk/cache, page cache, opening, gather, least, first token"
    rows = [
        (
            r.method,
            r.gathered_by,
            f"{r.tokens:,}",
            _sizes(r),
            r.cache,
            _ms(r.open_s or None),
            _spread(r, "gather_s", _ms),
            _ms(r.gather_floor_s),
            _spread(r, "first_token_s", _ms),
            _spread(r, "decode_tokens_per_s", "{:,.1f}".format),
            f"{r.decode_ceiling:,.1f}",
            size(r.peak_memory),
        )
        for r in report.answers
    ]
    _show(report, f"{headers}, tokens/s, at most, peak memory", rows, names=2)


def _show_curves(report: "stretches.CurveReport") -> None:
    rows = [
        (
            f"{curve.chunk:,}",
            f"{s.after:,}",
            f"{s.seconds_per_chunk * 1000:,.2f}",
            f"{s.tokens_per_s:,.0f}",
            size(s.peak_memory),
        )
        for curve in report.curves
        for s in curve.stretches
    ]
    _show(report, "chunk, after, ms a chunk, tokens/s, peak memory", rows, names=0)
    for curve in report.curves:
        whole = curve.whole
        render.line(
            f"chunk {curve.chunk:,}: {whole.tokens:,} tokens would take {whole.seconds:,.2f} s "
            f"({whole.tokens_per_s:,.0f} tokens/s), {curve.first_s:.3f} s of it the first "
            f"{curve.first_tokens:,}; {whole.over_floor:.2f} times the floor"
        )


def _show_decoded(report: "decoding.DecodeReport") -> None:
    headers = "decoded by, after, tokens, tokens/s, at most, over bound, attended, held, ready"
    rows = [
        (
            _decoded_by(r),
            f"{r.tokens:,}",
            f"{r.answer:,}",
            *((r.failed, *[""] * 5) if r.failed else _decoded(r)),
            size(r.peak_memory),
        )
        for r in report.decoded
    ]
    _show(report, f"{headers}, peak memory", rows)


def _show(report: Any, headers: str, rows: Sequence[Sequence[str]], names: int = 1) -> None:
    """A table under what it was measured on; all columns but the first `names` are numbers."""
    columns = headers.split(", ")
    _show_machine(report)
    render.line("")
    render.table(columns, rows, right=columns[names:])


_SHOWN = {
    "ingest": _show_readings,
    "ask": _show_answers,
    "ingest --at": _show_curves,
    "decode": _show_decoded,
}


def show(report: Any) -> None:
    """The table of a benchmark's report."""
    _SHOWN[report.bench](report)


def _spread(row: Any, name: str, shown: Callable[[float], str]) -> str:
    """A figure of the run in the middle, and its least and most where there were several."""
    figure = shown(getattr(row, name))
    if name not in row.spread:
        return figure
    least, most = map(shown, row.spread[name])
    return figure if least == most else f"{figure} ({least} to {most})"


def _decoded(row: Any) -> tuple[str, ...]:
    return (
        _spread(row, "tokens_per_s", "{:,.1f}".format),
        f"{row.bound_tokens_per_s:,.1f}",
        f"{row.over_bound:.2f}",
        f"{row.attended:,.0f}",
        f"{row.held:,}",
        f"{row.ready_s:,.2f} s",
    )


def _decoded_by(row: Any) -> str:
    """A policy with its options, as `--decode` takes them."""
    options = [f"{name}={value}" for name, value in row.options.items() if value is not None]
    return f"{row.name}:{','.join(options)}" if options else row.name


def _show_machine(report: Any) -> None:
    machine, ceilings = report.machine, report.ceilings
    attention = ", ".join(f"{name} {_tera(flops)}" for name, flops in ceilings.attention_by.items())
    facts = [
        ("model", f"{machine.model}, {machine.dtype}"),
        ("precision of reading", machine.precision),
        ("keys and values", machine.kv_dtype),
        ("device", f"{machine.device}, {machine.processor}, {machine.threads} threads"),
        ("memory limit", machine.memory_limit and size(machine.memory_limit)),
        ("versions", f"torch {machine.torch}, transformers {machine.transformers}"),
        ("matrix product", _tera(ceilings.matmul_flops)),
        ("while reading", ceilings.narrow_flops and _tera(ceilings.narrow_flops)),
        ("full attention", attention),
        ("copy on the device", _rate(ceilings.copy_bytes_s)),
        ("to and from it", _rates(ceilings.to_device_bytes_s, ceilings.to_host_bytes_s)),
        ("disk, write and read", _rates(ceilings.disk_write_bytes_s, ceilings.disk_read_bytes_s)),
    ]
    render.facts([(name, value) for name, value in facts if value])


def _sizes(row: Any) -> str:
    return f"{_count(row.chunk)}/{_count(row.budget)}"


def _count(tokens: int | None) -> str:
    return "all" if tokens is None else f"{tokens:,}"


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:,.0f} ms"


def _tera(flops: float) -> str:
    return f"{flops / 1e12:,.3g} TFLOP/s"


def _rate(speed: float) -> str:
    return f"{size(round(speed))}/s"


def _rates(*speeds: float | None) -> str:
    return ", ".join(_rate(speed) for speed in speeds if speed)
