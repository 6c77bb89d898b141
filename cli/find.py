"""`longctx find`: the places in documents that a query is about."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from longctx.cli import cautions, hyperlinks, interface, options, progress, render
from longctx.core.common import cores, pasting

if TYPE_CHECKING:
    from longctx.core.api.passages import Findings, FoundPassage, Line
    from longctx.core.retrieve.hit import Match

EXAMPLES = """\
  longctx find "where the light went out"
  longctx find "payment failed" --doc log -k 3 -C 2
  longctx find '"customer 53831" refund' --all
  longctx find "Aldous Crane" --gather-by bm25
  longctx find "timeout" -e 'ERROR|FATAL'
  longctx find "the storm" --json | jq '.passages[0].match'
"""


def run(
    context: typer.Context,
    query: Annotated[
        str,
        typer.Argument(
            metavar="[QUERY]",
            show_default=False,
            help='What to look for, in any words; with text in "...", only passages that have it '
            "exactly, or the nearest, and a note, where none has. Required without --regexp.",
        ),
    ] = "",
    docs: options.Documents = None,
    everything: options.AllDocuments = False,
    max_docs: options.MaxDocs = 16,
    library: options.LibraryDir = None,
    model: options.Model = None,
    profile: options.ProfileName = None,
    method: options.AskWith = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    gather: Annotated[
        int | None,
        options.setting(
            "--gather",
            "Most tokens of all passages together (the best one is always shown); by default any "
            "number.",
            metavar="N",
            min=1,
        ),
    ] = None,
    gather_by: options.GatherBy = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            "-k",
            envvar="LONGCTX_LIMIT",
            show_default=False,
            metavar="N",
            min=1,
            help="Passages to find, at most; by default 10.",
        ),
    ] = 10,
    around: Annotated[
        int,
        typer.Option(
            "--context",
            "-C",
            envvar="LONGCTX_CONTEXT",
            show_default=False,
            metavar="N",
            min=0,
            help="Lines to print before and after each line that matches; by default 0.",
        ),
    ] = 0,
    files: Annotated[
        bool,
        typer.Option(
            "--files",
            "-l",
            show_default=False,
            help="Print only the names of the files of the passages found, each once, in their "
            "order; off by default.",
        ),
    ] = False,
    regexp: Annotated[
        str | None,
        typer.Option(
            "--regexp",
            "-e",
            show_default=False,
            metavar="REGEX",
            help="Find only lines that match this regular expression; without a query to rank "
            "them they are listed in order. By default all lines.",
        ),
    ] = None,
    partial: options.Partial = False,
    json: options.Json = False,
) -> None:
    """Finds passages by words and by meaning: a grep for people.

    Prints each passage as `file:line: text` with its matching line, best first, after the
    document's name where several are searched. Passages with the exact query come first. Nothing is
    generated. JSON has the whole passages.
    """

    from longctx.core.profile.wording import require_text

    require_text(query)
    model_choices = {"profile": profile, "method": method}
    where = {"device": device, "dtype": dtype, "threads": threads}
    with interface.opened(library, model, **model_choices, **where) as opened:
        searched = interface.choose(context, opened, docs, everything, partial, max_docs)
        cores.note()
        with progress.status("searching"):
            found = searched.find(
                query,
                k=limit,
                gather_by=gather_by,
                regexp=regexp,
                gather=gather,
                files=files,
                around=around,
            )
        tell(found, files, around, json)
        if not json and len(found) and _asks(query):
            render.hint(f"`longctx ask {pasting.word(query, 'QUESTION')}` answers a question")


_QUESTION_WORDS = frozenset(
    ["who", "whom", "whose", "what", "which", "where", "when", "why", "how", "do", "does", "did"]
)


def _asks(query: str) -> bool:
    """Whether a query is a question, and no text in quotes."""
    words = query.lower().split()
    return query.rstrip().endswith("?") or (len(words) > 2 and words[0] in _QUESTION_WORDS)


def tell(found: "Findings", files: bool, around: int, json: bool) -> None:
    """Prints what was found as an object or as lines.

    Args:
        found: it.
        files: only name the files.
        around: lines to print before and after each matching one.
        json: print an object.
    """
    if render.result(found.as_dict(), json):
        return
    cautions.warn_of_search(found.as_dict())
    names = len(found.documents) > 1
    if files:
        lines = (_line(passage, None, names) for passage in found)
    else:
        lines = _groups(found, around, names)
    render.lines([*lines], indent=around > 0 and not files)


def _groups(found: "Findings", around: int, names: bool) -> "Iterator[render.Line | None]":
    """The line of each passage, with the requested lines around it."""
    for number, passage in enumerate(found):
        if around and number:
            yield None
        yield from (_line(passage, line, names) for line in passage.before)
        yield _match(passage, names)
        yield from (_line(passage, line, names) for line in passage.behind)


def _match(passage: "FoundPassage", names: bool) -> render.Line:
    """The matching line of a passage, cut where it is too long."""
    match = passage.match
    text, marked = render.cut(match.line_text, match.shown, match.marked)
    return replace(_line(passage, match, names), text=text, marked=marked, matches=True)


def _line(passage: "FoundPassage", line: "Line | Match | None", names: bool) -> render.Line:
    """A line of a passage's source; without one, the file alone."""
    number = line.line if line is not None and passage.is_plain else None
    return render.Line(
        place=(passage.source,) if line is None else (passage.source, line.place),
        text=None if line is None else line.text,
        marked=(),
        name=passage.document if names else "",
        matches=line is None,
        link=hyperlinks.link(passage.path, number),
    )
