"""`longctx eval qa`: questions on a document, with answers and their places known."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longctx.cli import completion, options, render
from longctx.cli.eval import lists
from longctx.cli.eval.pace import Pace
from longctx.cli.loading import choose_document, open_session
from longctx.cli.settings import library_path

if TYPE_CHECKING:
    from longctx.core.eval.qa import Rate, Report

EXAMPLES = """\
  longctx ingest tolstoy.txt && longctx eval qa tolstoy tolstoy.questions.jsonl
  longctx eval qa tolstoy questions.jsonl --gather 1k,8k --no-answers
  longctx eval qa tolstoy questions.jsonl --gather-by method,bm25 --out results --json
"""


def run(
    document: Annotated[
        str,
        typer.Argument(
            metavar="DOCUMENT",
            help="A document of the library, by its name.",
            autocompletion=completion.documents,
        ),
    ],
    questions: Annotated[
        Path,
        typer.Argument(
            metavar="QUESTIONS",
            help="File of questions, one JSON object a line: question, answers, and where "
            "(path, byte_offset).",
        ),
    ],
    library: options.LibraryDir = None,
    model: options.Model = None,
    profile: options.ProfileName = None,
    method: options.AskWith = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    gather: Annotated[
        list[str] | None,
        typer.Option(
            "--gather",
            metavar="N,...",
            show_default=False,
            help="Tokens to gather, for recall: several numbers with commas, or several times; by "
            "default 1K,2K,4K,8K.",
        ),
    ] = None,
    gather_by: Annotated[
        list[str] | None,
        typer.Option(
            "--gather-by",
            metavar="NAME,...",
            show_default=False,
            help="What is gathered by: method, bm25, hybrid, one after another; by default method.",
        ),
    ] = None,
    answers: Annotated[
        bool,
        options.flag("--answers/--no-answers", "Also ask, and judge the answers; on by default."),
    ] = True,
    answer_gather: Annotated[
        str | None,
        typer.Option(
            "--answer-gather",
            metavar="N",
            show_default=False,
            help="Tokens to gather for an answer; by default the profile's number.",
        ),
    ] = None,
    decode: options.Decode = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            show_default=False,
            help="Folder that keeps what is done, so that a run that was stopped goes on; by "
            "default nothing is kept.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Asks a file of questions: gather recall, and answers.

    A question counts as gathered where the byte at which its answer stands is among the gathered
    tokens. Answers are compared with the accepted ones: exactly and by F1, both without case,
    punctuation and articles, and whether they contain one as whole words. Intervals are of 95%.
    """
    from longctx.core.eval.qa_questions import place, read_items

    path = questions.expanduser()
    items = read_items(path)
    budgets = lists.tokens(gather or ["1K,2K,4K,8K"])
    answer_tokens = None if answer_gather is None else lists.tokens([answer_gather])[0]
    folder = library_path(library)
    chosen = choose_document(folder, document)
    placed = place(path, items, chosen)
    setup = {
        "model": model,
        "profile": profile,
        "method": method,
        "decode": decode,
        "device": device,
        "dtype": dtype,
        "threads": threads,
    }
    with open_session(folder, chosen, **setup) as session:
        from longctx.core.eval.qa import Wanted
        from longctx.core.eval.qa import run as run_qa

        by = lists.names(gather_by or ["method"])
        wanted = Wanted(by, budgets, answers, answer_tokens)
        pace = Pace(first_s=0)
        report = run_qa(
            session,
            placed,
            wanted,
            out and out.expanduser(),
            lambda what, done, total, kept: pace.tell(what, done, total, "questions", kept),
        )
    if not render.result(report.as_dict(), json):
        _show(report)


def _show(report: "Report") -> None:
    budgets = report.settings["budgets"]
    headers = ("gathered by", *(f"{budget:,}" for budget in budgets))
    rates = {(rate.gather_by, rate.what, rate.budget): rate for rate in report.rates}
    names = list(dict.fromkeys(rate.gather_by for rate in report.rates))
    count = len(report.trials)
    render.line(f"{report.document}: {report.tokens:,} tokens, {count:,} questions")
    render.line("")
    render.table(headers, [(by, *(_hits(rates[by, "recall", b]) for b in budgets)) for by in names])
    judged = list(dict.fromkeys(r.what for r in report.rates if r.what != "recall"))
    if judged:
        render.line("")
        gathered = report.settings["answer_gather"]
        rows = [(by, *(_share(rates[by, what, gathered]) for what in judged)) for by in names]
        render.table(("answered from", *(what.replace("_", " ") for what in judged)), rows)


def _hits(rate: "Rate") -> str:
    return (
        f"{round(rate.rate * rate.total):,} of {rate.total:,} ({rate.low:.0%} to {rate.high:.0%})"
    )


def _share(rate: "Rate") -> str:
    return f"{rate.rate:.1%} ({rate.low:.0%} to {rate.high:.0%})"
