"""`longctx eval qa`: questions on documents, with known answers and possibly their places."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longctx.cli import amounts, completion, measuring, options, other_server, pages, render
from longctx.cli.eval.pace import Pace
from longctx.cli.loading import open_session
from longctx.cli.measuring import option
from longctx.cli.settings import library_path
from longctx.core.api.defaults import OWN
from longctx.core.common.errors import UsageError
from longctx.core.retrieve import gather_by

if TYPE_CHECKING:
    from longctx.core.ask.session import Session
    from longctx.core.measure.eval.qa import QuestionReport, QuestionTest
    from longctx.core.measure.eval.qa_places import PlacedQuestion
    from longctx.core.store.document import Document

EXAMPLES = """\
  longctx ingest tolstoy.txt && longctx eval qa tolstoy tolstoy.questions.jsonl
  longctx ingest samples/manual.md && longctx eval qa manual samples/questions/manual.yaml
  longctx eval qa tolstoy=tolstoy.questions.jsonl log=log.questions.jsonl --no-answers --markdown
  longctx eval qa tolstoy questions.jsonl --gather-by method,bm25 --out results --json
"""
SETUP = (
    *("model", "profile", "method", "decode", "device", "dtype", "threads"),
    *("answer_model", "answer_profile", "answer_with", "server_model"),
)


@dataclass(frozen=True)
class Sheet:
    """A document and questions about it.

    Attributes:
        document: in the library.
        placed: questions from one or more files.
        folder: where results are kept; None: nowhere.
    """

    document: "Document"
    placed: "list[PlacedQuestion]"
    folder: Path | None


def run(
    context: typer.Context,
    document: Annotated[
        str,
        typer.Argument(
            metavar="DOCUMENT",
            help="A document of the library, by its name; or DOCUMENT=QUESTIONS.",
            autocompletion=completion.documents,
        ),
    ],
    questions: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="QUESTIONS",
            show_default=False,
            help="Files of questions on it: YAML, or one JSON object a line. DOCUMENT=QUESTIONS "
            "begins another table, of that document.",
        ),
    ] = None,
    library: options.LibraryDir = None,
    model: options.Model = None,
    profile: options.ProfileName = None,
    method: options.AskWith = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    answer_model: options.AnswerModel = None,
    answer_profile: options.AnswerProfile = None,
    answer_with: options.AnswerWith = None,
    server_model: options.ServerModel = None,
    gather: Annotated[
        list[str] | None,
        option(
            "--gather",
            "N,...",
            "Tokens to gather, for recall: several numbers with commas, or several times; by "
            "default 1K,2K,4K,8K.",
            callback=amounts.of("tokens", commas=True),
        ),
    ] = None,
    gather_by: Annotated[
        list[str] | None,
        option(
            "--gather-by",
            "NAME,...",
            f"What is gathered by: {', '.join(gather_by.names())}, one after another, or 'all': "
            "those that fit the document; each asks every question. By default that of `ask`.",
        ),
    ] = None,
    answers: Annotated[
        bool,
        options.flag("--answers/--no-answers", "Also ask, and judge the answers; on by default."),
    ] = True,
    answer_gather: Annotated[
        str | None,
        option(
            "--answer-gather",
            "N",
            "Tokens to gather for an answer; by default the profile's number.",
            callback=amounts.of("tokens"),
        ),
    ] = None,
    decode: options.Decode = None,
    out: measuring.Out = None,
    markdown: Annotated[
        bool, options.flag("--markdown", "Print Markdown tables; off by default.")
    ] = False,
    html: Annotated[Path | None, pages.option("the tables and every question")] = None,
    json: options.Json = False,
) -> None:
    """Asks files of questions: gather recall, and answers.

    A question with the byte at which its answer stands counts as gathered where that byte is among
    the gathered tokens; any other where an accepted answer stands in a gathered passage, as whole
    words in any case, and begins on the question's line if it names one. Answers are compared with
    the accepted ones: exactly and by F1, both without case, punctuation and articles, and whether
    they contain one as whole words. Intervals are of 95%.
    """
    if markdown and json:
        raise UsageError("cannot print both forms", "", "Give one of --markdown and --json.")
    pages.require_writable(html)
    from longctx.core.store.library import Library

    budgets = measuring.tokens(gather or ["1K,2K,4K,8K"])
    answer_tokens = None if answer_gather is None else measuring.tokens([answer_gather])[0]
    library_folder = library_path(library)
    pairs = named_pairs(document, [*map(str, questions or [])])
    sheets = _sheets(library_folder, pairs, out and out.expanduser())
    if answer_with is not None and not answers:
        why = "without answers, nobody is asked"
        raise UsageError("cannot take --answer-with with --no-answers", why, "Leave one out.")
    setup = {name: other_server.fitting(context)[name] for name in SETUP}
    if setup["answer_model"] == OWN:
        setup["answer_model"] = None
    by = measuring.names(gather_by) if gather_by else None
    reports = []
    for sheet in sheets:
        with open_session(sheet.document, Library.open(library_folder), **setup) as session:
            from longctx.core.measure.eval.qa import QuestionTest

            if session.server is not None:
                to = session.server.url
                render.note(f"for each question, the passages gathered for it are sent to {to}")
            wanted = QuestionTest(by, budgets, answers, answer_tokens)
            reports.append(_report(session, sheet, wanted, len(sheets) > 1))
    if html is not None:
        from longctx.core.measure.eval.qa_page import qa_page

        pages.write(html, qa_page(reports))
    _print(reports, markdown, json)


def named_pairs(document: str, questions: Sequence[str]) -> list[tuple[str, list[Path]]]:
    """Documents with their files of questions, from the command's arguments.

    Args:
        document: a document's name, or DOCUMENT=QUESTIONS.
        questions: files for the preceding document, or DOCUMENT=QUESTIONS.

    Raises:
        UsageError: a document has no file.
    """
    pairs: list[tuple[str, list[Path]]] = []
    for word in (document, *questions):
        name, _, file = word.partition("=")
        is_file = pairs and ("/" in name or Path(word).expanduser().exists())
        if name and file and not is_file:
            pairs.append((name, [Path(file).expanduser()]))
        elif pairs:
            pairs[-1][1].append(Path(word).expanduser())
        else:
            pairs.append((word, []))
    if not pairs[0][1]:  # the others have a file
        remedy = "Name a file of questions after it, or give DOCUMENT=QUESTIONS."
        raise UsageError(f"cannot ask '{document}'", "there are no questions", remedy)
    return pairs


def _sheets(
    library: Path, pairs: Sequence[tuple[str, list[Path]]], out: Path | None
) -> list[Sheet]:
    """Reads and checks all questions, before a model is loaded."""
    from longctx.core.measure.eval.qa_places import place
    from longctx.core.measure.eval.qa_questions import read_items
    from longctx.core.store.library import Library

    read = [[item for file in files for item in read_items(file)] for _, files in pairs]
    store = Library.open(library)
    documents = [store.document(store.folder_named(name)) for name, _ in pairs]
    placed = [place(items, chosen) for items, chosen in zip(read, documents, strict=True)]
    folders = _folders([chosen.manifest.name for chosen in documents], out)
    return [*map(Sheet, documents, placed, folders)]


def _folders(names: Sequence[str], out: Path | None) -> list[Path | None]:
    """The folder for each document's results; with several, each has a subfolder."""
    if out is None or len(names) == 1:
        return [out] * len(names)
    counts = [names[: number + 1].count(name) for number, name in enumerate(names)]
    return [
        out / (name if count == 1 else f"{name}-{count}")
        for name, count in zip(names, counts, strict=True)
    ]


def _report(
    session: "Session", sheet: Sheet, wanted: "QuestionTest", several: bool
) -> "QuestionReport":
    from longctx.core.measure.eval.qa import run as run_qa

    pace, name = Pace(first_s=0), sheet.document.manifest.name
    before = f"{name}: " * several

    def tell(what: str, *told: Any) -> None:
        pace.tell(f"{before}{what}", *told)

    report = run_qa(session, sheet.placed, wanted, sheet.folder, tell)
    for by, why in report.left_out.items():
        render.note(f"{name} is not gathered by {by}: {why}")
    return report


def _print(reports: "Sequence[QuestionReport]", markdown: bool, json: bool) -> None:
    from longctx.cli.eval import qa_tables
    from longctx.core.measure.eval.qa import as_dict

    if render.result(as_dict(reports), json):
        return
    qa_tables.show(qa_tables.of_reports(reports), markdown)
