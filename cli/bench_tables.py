"""Tables of what `longctx bench` measured, for people."""

from typing import TYPE_CHECKING, Any

from longctx.cli import render
from longctx.cli.text import size

if TYPE_CHECKING:
    from longctx.core.measure.bench import answering, decoding, ingesting, stretches
    from longctx.core.measure.bench.ceilings import Ceilings
    from longctx.core.measure.bench.machine import Machine


def show_readings(report: "ingesting.Report") -> None:
    """The table of `bench ingest`."""
    _show_machine(report.machine, report.ceilings)
    headers = ("method", "tokens", "chunk/cache", "seconds", "tokens/s", "floor", "over floor")
    headers = (*headers, "peak memory", "state")
    rows = [
        (
            f"{report.machine.method}, {r.floor.layers} layers",
            f"{r.tokens:,}",
            _sizes(r),
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
            _sizes(b),
            b.failed or f"{b.seconds:,.2f}",
            "" if b.failed else f"{b.tokens_per_s:,.0f}",
            *("", "", size(b.peak_memory), ""),
        )
        for b in report.baselines
    ]
    render.line("")
    render.table(headers, rows, right=headers[1:])
    for g in report.growth:
        sizes = f"chunk {_count(g.chunk)}, cache {_count(g.budget)}"
        render.line(f"{sizes}: {g.tokens:g} times the tokens take {g.seconds:.2f} times the time")


def show_answers(report: "answering.Report") -> None:
    """The table of `bench ask`."""
    _show_machine(report.machine, report.ceilings)
    headers = ("method", "by", "tokens", "chunk/cache", "page cache", "opening", "gather", "least")
    headers = (*headers, "first token", "tokens/s", "at most", "peak memory")
    rows = [
        (
            r.method,
            r.gathered_by,
            f"{r.tokens:,}",
            _sizes(r),
            r.cache,
            f"{r.open_s * 1000:,.0f} ms" if r.open_s else "",
            f"{r.gather_s * 1000:,.0f} ms",
            "" if r.gather_floor_s is None else f"{r.gather_floor_s * 1000:,.0f} ms",
            f"{r.first_token_s * 1000:,.0f} ms",
            f"{r.decode_tokens_per_s:,.1f}",
            f"{r.decode_ceiling:,.1f}",
            size(r.peak_memory),
        )
        for r in report.answers
    ]
    render.line("")
    render.table(headers, rows, right=headers[2:])


def show_curves(report: "stretches.Report") -> None:
    """The table of `bench ingest --at`, and the time for whole documents."""
    _show_machine(report.machine, report.ceilings)
    headers = ("chunk", "after", "ms a chunk", "tokens/s", "peak memory")
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
    render.line("")
    render.table(headers, rows, right=headers)
    for curve in report.curves:
        whole = curve.whole
        render.line(
            f"chunk {curve.chunk:,}: {whole.tokens:,} tokens would take {whole.seconds:,.2f} s "
            f"({whole.tokens_per_s:,.0f} tokens/s), {curve.first_s:.3f} s of it the first "
            f"{curve.first_tokens:,}; {whole.over_floor:.2f} times the floor"
        )


def show_decoded(report: "decoding.Report") -> None:
    """The table of `bench decode`."""
    _show_machine(report.machine, report.ceilings)
    headers = ("decoded by", "after", "tokens", "tokens/s", "at most", "over bound", "attended")
    headers = (*headers, "held", "ready", "peak memory")
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
    render.line("")
    render.table(headers, rows, right=headers[1:])


def _decoded(row: Any) -> tuple[str, ...]:
    return (
        f"{row.tokens_per_s:,.1f}",
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


def _show_machine(machine: "Machine", ceilings: "Ceilings") -> None:
    attention = ", ".join(f"{name} {_tera(flops)}" for name, flops in ceilings.attention_by.items())
    facts = [
        ("model", f"{machine.model}, {machine.dtype}"),
        ("keys and values", machine.kv_dtype),
        ("device", f"{machine.device}, {machine.processor}, {machine.threads} threads"),
        ("memory limit", machine.memory_limit and size(machine.memory_limit)),
        ("versions", f"torch {machine.torch}, transformers {machine.transformers}"),
        ("matrix product", _tera(ceilings.matmul_flops)),
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


def _tera(flops: float) -> str:
    return f"{flops / 1e12:,.3g} TFLOP/s"


def _rate(speed: float) -> str:
    return f"{size(round(speed))}/s"


def _rates(*speeds: float | None) -> str:
    return ", ".join(_rate(speed) for speed in speeds if speed)
