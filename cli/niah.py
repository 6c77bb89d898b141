"""`longctx niah`: a self-test: is a needle retrieved at every depth of a haystack?"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longctx.cli import amounts, grids, measuring, niah_tables, options, pages, render
from longctx.cli.loading import make_setup
from longctx.cli.measuring import option
from longctx.core.api.defaults import usual_model

if TYPE_CHECKING:
    from longctx.core.ingest.job import Progress
    from longctx.core.measure.niah.laying import Plan
    from longctx.core.measure.niah.needle_test import NeedleTest, NeedleWatch
    from longctx.core.measure.niah.report import NeedleReport, Trial

EXAMPLES = """\
  longctx niah
  longctx niah --lengths 16k,64k,256k,1M --out runs/tiny
  longctx niah --length 32k --variant mixed --trials 3 --bar 0.8
  longctx niah --length 128K --haystack ~/books --method reattention --json > report.json
"""
MISSED = 1  # exit code


def run(
    length: Annotated[
        str | None,
        option(
            "--length",
            "L",
            "Tokens of a haystack: 16000, 16k (= 16,000), 16K (= 16,384), 1M (= 1,048,576); by "
            "default 16k.",
            callback=amounts.of("tokens", commas=True),
        ),
    ] = None,
    lengths: Annotated[
        str | None,
        option(
            "--lengths",
            "L,L,...",
            "Several lengths in place of one.",
            callback=amounts.of("tokens", commas=True),
        ),
    ] = None,
    depths: Annotated[
        int,
        option(
            "--depths",
            "N",
            "Depths, evenly spaced from start to end, all in one haystack; by default 11.",
        ),
    ] = 11,
    variant: Annotated[
        str | None,
        option(
            "--variant",
            "NAME",
            "Kinds of needles: passkey, number, uuid, multikey, mixed or heldout "
            "(docs/needles.md); by default pass keys and numbers.",
        ),
    ] = None,
    needles: Annotated[
        int,
        option(
            "--needles",
            "N",
            "How many times the usual number of needles at a depth (one of each kind; four for "
            "mixed and heldout); by default 1.",
        ),
    ] = 1,
    trials: Annotated[
        int,
        option("--trials", "N", "Haystacks of each length; by default 1."),
    ] = 1,
    seed: measuring.Seed = 0,
    strict: Annotated[
        bool,
        options.flag(
            "--strict",
            "Give each needle its own haystack and reading; by default all needles share one.",
        ),
    ] = False,
    haystack: measuring.Haystack = None,
    bar: Annotated[
        float | None,
        option(
            "--bar",
            "X",
            "Share of questions to answer for exit code 0; by default 0.9 with --variant, else 1.",
            min=0,
            max=1,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "--out",
            "DIR",
            "Folder for report.json, heatmap.svg and finished results: the same "
            "command resumes after a stop, also with more lengths or trials. By default "
            "nothing is written.",
        ),
    ] = None,
    model: options.Model = None,
    profile: options.ProfileName = None,
    method: options.Method = None,
    gather: options.Gather = None,
    gather_by: options.GatherBy = None,
    decode: options.Decode = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    precision: options.Precision = None,
    threads: options.Threads = None,
    html: Annotated[Path | None, pages.option("grids, figures and missed needles")] = None,
    json: options.Json = False,
) -> None:
    """Tests whether facts are found at every depth of a long text.

    Hides needles at all depths of prose of an exact number of tokens, ingests it into a temporary
    library, and asks it like any document. `answered` means that the answer is right and names
    nothing else; `gathered`, that the whole needle was in what the answer is based on. The exit
    code is 1 if the share answered is below --bar.
    """
    pages.require_writable(html)
    setup = make_setup(
        model=model or usual_model(),
        profile=profile,
        method=method,
        decode=decode,
        device=device,
        dtype=dtype,
        precision=precision,
        threads=threads,
    )
    from longctx.core.measure.niah import needle_test as niah
    from longctx.core.measure.runner import How

    wanted = niah.NeedleTest(
        lengths=_lengths(length, lengths),
        depths=depths,
        variant=variant,
        needles=needles,
        trials=trials,
        strict=strict,
        seed=seed,
        haystack=haystack and haystack.expanduser(),
        bar=bar,
        out=out and out.expanduser(),
        how=How(gather, gather_by=gather_by),
    )
    with _watched(wanted) as watch:
        report = niah.run(setup, wanted, watch)
    if html is not None:
        from longctx.core.measure.niah.page import needle_page

        pages.write(html, needle_page(report))
    if not render.result(report.as_dict(), json):
        niah_tables.show(report, out)
    _warn(report)
    if not report.passed:
        raise typer.Exit(MISSED)


def _lengths(length: str | None, lengths: str | None) -> tuple[int, ...]:
    from longctx.core.common.errors import UsageError

    if length and lengths:
        raise UsageError("--length and --lengths", "both say how long", "Give one of them.")
    return tuple(measuring.lengths(lengths or length or "16k"))


# --- while it runs ---


@contextmanager
def _watched(wanted: "NeedleTest") -> "Iterator[NeedleWatch]":
    """Shows a grid of lengths and depths that fills with answers, and the current document."""
    from longctx.core.measure.haystack import depths
    from longctx.core.measure.niah.needle_test import NeedleWatch

    places = depths(wanted.depths)
    at: list[Plan] = []  # all haystacks, once known
    with grids.live_grid(
        "depth", niah_tables.columns(wanted.lengths), niah_tables.rows(places)
    ) as grid:

        def which(plan: "Plan") -> str:
            return f"{plan.length:,} tokens, haystack {at.index(plan) + 1} of {len(at)}"

        def read(plan: "Plan", state: "Progress") -> None:
            grid.read(which(plan), state)

        def trial(plan: "Plan", number: int, done: "Trial", kept: bool) -> None:
            grid.add(places.index(done.depth), wanted.lengths.index(done.length), done.answered)
            grid.asked(which(plan), number, len(plan.hidden), number if kept else 0)

        grid.tell("loading the model")
        yield NeedleWatch(at.extend, read, trial)


def _warn(report: "NeedleReport") -> None:
    lost = sum(not trial.gathered for trial in report.asked)
    if lost:
        render.note(f"{lost} of {len(report.asked)} needles were NOT gathered whole")
