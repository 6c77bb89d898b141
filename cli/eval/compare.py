"""`longctx eval compare`: methods and decode policies side by side, in one table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from longctx.cli import amounts, measuring, options, pages, progress, render
from longctx.cli.eval.pace import Pace
from longctx.cli.loading import make_setup
from longctx.cli.measuring import option
from longctx.core.api.defaults import usual_model
from longctx.core.common.errors import UsageError

if TYPE_CHECKING:
    from longctx.core.measure.eval.compare import ComparisonReport, MethodRun
    from longctx.core.measure.eval.compare_rows import Row

EXAMPLES = """\
  longctx eval compare --methods reform,reattention --lengths 4k,32k
  longctx eval compare --methods reform --decode dense,recycled:budget=512,quest --lengths 16k
  longctx eval compare --lengths 32K,128K --samples 11 --out results --markdown
"""


def run(
    methods: Annotated[
        list[str] | None,
        option(
            "--methods",
            "METHOD,...",
            "Reading methods: several with commas, or several times; by default "
            "reform,reattention.",
        ),
    ] = None,
    decode: Annotated[
        list[str] | None,
        option(
            "--decode",
            "POLICY,...",
            "Decode policies, with options as NAME:OPTION=VALUE,...; by default dense.",
        ),
    ] = None,
    gather_by: Annotated[
        list[str] | None,
        option(
            "--gather-by",
            "NAME,...",
            "What is gathered by: method, bm25, hybrid; by default method.",
        ),
    ] = None,
    lengths: Annotated[
        list[str] | None,
        option(
            "--lengths",
            "L,...",
            "Tokens of the texts; by default 4k,16k.",
            callback=amounts.of("tokens", commas=True),
        ),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        option(
            "--tasks",
            "TASK,...",
            "What is asked: niah (pass keys and numbers), niah-VARIANT, or a task of "
            "RULER that needs no file; by default niah.",
        ),
    ] = None,
    samples: Annotated[
        int,
        option(
            "--samples",
            "N",
            "Questions for each task and length: niah asks all of one text, other tasks use one "
            "text each; by default 11.",
        ),
    ] = 11,
    in_window: Annotated[
        str | None,
        option(
            "--in-window",
            "L",
            "Tokens of the texts that full attention reads within the model's window, as a "
            "ceiling for the others; by default as many as fit beside question and answer.",
            callback=amounts.of("tokens"),
        ),
    ] = None,
    seed: measuring.Seed = 0,
    model: options.Model = None,
    profile: options.ProfileName = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    out: Annotated[
        Path | None,
        option(
            "--out",
            "DIR",
            "Folder for compare.csv, compare.md, compare.svg and finished results, so that a "
            "stopped run resumes; by default nothing is kept.",
        ),
    ] = None,
    csv: Annotated[
        bool, options.flag("--csv", "Print comma-separated values; off by default.")
    ] = False,
    markdown: Annotated[
        bool, options.flag("--markdown", "Print a Markdown table; off by default.")
    ] = False,
    html: Annotated[Path | None, pages.option("the table with its figures and lines")] = None,
    json: options.Json = False,
) -> None:
    """Compares methods and policies on the same tasks, in one table.

    Each method reads each text once, in a process of its own, and is asked with every decode policy
    and every gather source. A row has the mean score with its 95% interval, the share of needed
    places that were gathered, seconds to read, to the first token and in all, tokens a second, peak
    memory and the size of the state; the first row is full attention within the window.
    Combinations that cannot work say so in their row, as do failures.
    """
    if csv + markdown + json > 1:
        raise UsageError("cannot print several forms", "", "Give one of --csv, --markdown, --json.")
    pages.require_writable(html)
    setup = make_setup(
        model=model or usual_model(),
        profile=profile,
        method=None,
        device=device,
        dtype=dtype,
        threads=threads,
    )
    from longctx.core.measure.eval.compare import Comparison
    from longctx.core.measure.eval.compare import run as run_compare

    wanted = Comparison(
        methods=measuring.names(methods or ["reform,reattention"]),
        decode=measuring.names(decode or ["dense"]),
        lengths=measuring.tokens(lengths or ["4k,16k"]),
        tasks=measuring.names(tasks or ["niah"]),
        gather_by=measuring.names(gather_by or ["method"]),
        samples=samples,
        seed=seed,
        in_window=0 if in_window is None else measuring.tokens([in_window])[0],
    )
    folder, told = out and out.expanduser(), _Told()
    report = run_compare(setup, wanted, folder, told.begin, told.tell)
    if html is not None:
        from longctx.core.measure.eval.compare_page import compare_page

        pages.write(html, compare_page(report))
    _print(report, csv, markdown, json)
    if folder is not None:
        from longctx.core.measure.eval.compare_files import write

        for file in write(folder, report.rows):
            render.note(f"written: {file}")


class _Told:
    """Shows on standard error which method reads which length, and its progress."""

    def __init__(self) -> None:
        self._pace, self._texts, self._name = Pace(), 0, ""

    def begin(self, run: "MethodRun") -> None:
        """Shows that a method begins a length."""
        self._name, self._texts = f"{run.method}, {run.length:,} tokens", 0
        progress.step(f"{self._name}{' (ceiling)' if run.is_ceiling else ''}", unit="runs")

    def tell(self, message: dict[str, Any]) -> None:
        """Shows a message from its process."""
        if reading := message.get("reading"):
            self._texts += reading["tokens"] == 0
            what = f"{self._name}, reading text {self._texts}"
            self._pace.tell(what, reading["processed"], reading["total"], "bytes")
        if asked := message.get("asked"):
            what = f"{self._name}, asking text {self._texts}"
            self._pace.tell(what, *asked, unit="ways")


def _print(report: "ComparisonReport", csv: bool, markdown: bool, json: bool) -> None:
    from longctx.core.measure.eval import compare_files

    if render.result(report.as_dict(), json):
        return
    if csv:
        render.line(compare_files.as_csv(report.rows).removesuffix("\n"))
    elif markdown:
        render.line(compare_files.as_markdown(report.rows).removesuffix("\n"))
    else:
        _show(report.rows)


def _show(rows: "list[Row]") -> None:
    """The figures as a table, with the notes of the rows below it."""
    from longctx.core.measure.eval.compare_files import HEADERS, NUMBERS, cells

    *headers, _ = HEADERS
    lines = [cells(row) for row in rows]
    render.table(headers, [line[:-1] for line in lines], right=NUMBERS)
    notes = [(f"{', '.join(line[:3])}, {line[3]} tokens", line[-1]) for line in lines if line[-1]]
    render.line("")
    render.facts(notes)
