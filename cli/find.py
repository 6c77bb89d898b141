"""`longctx find`: the places in documents that a query is about."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from longctx.cli import hyperlinks, options, render
from longctx.cli.searching import Search, SearchResults
from longctx.cli.settings import library_path
from longctx.cli.together import choose_documents, open_documents
from longctx.cli.words_alone import open_for_words
from longctx.core.common.errors import UsageError
from longctx.core.profile.wording import require_text
from longctx.core.retrieve.gather_by import WORDS, check

if TYPE_CHECKING:
    from longctx.cli.words_alone import Opened
    from longctx.core.ask.asking import Asking
    from longctx.core.ask.candidates import Candidates
    from longctx.core.retrieve.finding import Hit
    from longctx.core.store.document import Document

EXAMPLES = """\
  longctx find "where the light went out"
  longctx find "payment failed" --doc log -k 3 -C 2
  longctx find '"customer 53831" refund' --all
  longctx find "Aldous Crane" --gather-by bm25
  longctx find "timeout" -e 'ERROR|FATAL'
  longctx find "the storm" --json | jq '.passages[0].match'
"""
EMBEDDINGS = "embeddings"  # the group; `core/kv/embeddings.py` would import torch


def run(
    context: typer.Context,
    query: Annotated[
        str,
        typer.Argument(
            metavar="[QUERY]",
            show_default=False,
            help='What to look for, in any words; text in "..." must match exactly. Required '
            "without --regexp.",
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
            help="Print only the names of files, each once; off by default.",
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
    from longctx.core.passages.line_filter import LineFilter
    from longctx.core.store.shards import FOR_WORDS

    if gather_by is not None:
        check(gather_by)
    if not query.strip() and regexp is None:
        raise UsageError("the query is empty", "", "Say what to look for, or give --regexp.")
    require_text(query)
    lines = None if regexp is None else LineFilter(regexp)
    place = library_path(library)
    needed = FOR_WORDS if gather_by == WORDS or not query.strip() else None
    chosen = choose_documents(context, place, docs, everything, partial, needed)
    search = Search(query, lines, limit, gather, files)
    if _by_words_alone(chosen, gather_by, method, query):
        with open_for_words(place, chosen, partial) as opened:
            tell(lambda: search.by_words(opened), opened, files, around, json)
        return
    setup = {
        "model": model,
        "profile": profile,
        "method": method,
        "device": device,
        "dtype": dtype,
        "threads": threads,
    }
    with open_documents(place, chosen, partial, max_docs, gather_by, **setup) as session:
        tell(lambda: search.by_model(session, gather_by), session, files, around, json)


def _by_words_alone(
    chosen: "Document | Candidates", gather_by: str | None, method: str | None, query: str
) -> bool:
    """Whether no model is needed: ranking is by words alone, or there is none."""
    if gather_by is not None:
        return (gather_by == WORDS and method is None) or not query.strip()
    from longctx.core.store.document import Document

    manifests = [chosen.manifest] if isinstance(chosen, Document) else chosen.manifests
    groups = {shard.group for manifest in manifests for shard in manifest.shards}
    made_again = any(manifest.is_bare for manifest in manifests)
    if made_again or EMBEDDINGS in groups or method is not None:
        return not query.strip()
    if query.strip():
        render.note("there are no embeddings to search by: found by words alone (bm25)")
    return True


def tell(
    search: Callable[[], SearchResults],
    searched: "Asking | Opened",
    files: bool,
    around: int,
    json: bool,
) -> None:
    """Searches, and prints the results as an object or as lines.

    Args:
        search: gives the results.
        searched: the documents; one that turns out to be damaged may be left out.
        files: only name the files.
        around: lines to print before and after each matching one.
        json: print an object.
    """

    def read() -> "tuple[SearchResults, list[render.Line | None]]":
        found = search()
        return found, [] if json else [*_lines(found, files, around)]

    found, lines = searched.without_damaged(read)
    if render.result(found.values, json):
        return
    render.warn_of_search(found.values)
    render.lines(lines, indent=around > 0 and not files)


def _lines(found: SearchResults, files: bool, around: int) -> "Iterator[render.Line | None]":
    if not files:
        return _groups(found, around)
    return (_line(found, hit, None, hit.match.start, ()) for hit in found.hits)


def _groups(found: SearchResults, around: int) -> Iterator[render.Line | None]:
    """The line of each hit, with the requested lines around it."""
    for number, hit in enumerate(found.hits):
        if around and number:
            yield None
        before, behind = _context(found, hit, around)
        yield from before
        yield _match(found, hit)
        yield from behind


def _match(found: SearchResults, hit: "Hit") -> render.Line:
    """The matching line of a hit, cut where it is too long."""
    match = hit.match
    text, marked = render.cut(match.text, match.shown, match.marked)
    return _line(found, hit, text, match.start, marked)


def _context(
    found: SearchResults, hit: "Hit", around: int
) -> tuple[list[render.Line], list[render.Line]]:
    """The lines before and after that of a hit."""
    if not around:
        return [], []
    from longctx.core.passages.matching import LONG
    from longctx.core.passages.near_lines import context

    document, match = found.documents[hit.document], hit.match
    sides = context(document, hit.source, match.start, match.end, around)
    before, behind = (
        [_line(found, hit, text[:LONG], start, (), matches=False) for start, text in side]
        for side in sides
    )
    return before, behind


def _line(
    found: SearchResults,
    hit: "Hit",
    text: str | None,
    start: int,
    marked: tuple[tuple[int, int], ...],
    matches: bool = True,
) -> render.Line:
    """A line that begins at a byte of a hit's source; without text, the file alone."""
    document = found.documents[hit.document]
    source = document.manifest.sources[hit.source]
    place = (source.name,) if text is None else (source.name, document.place(hit.source, start))
    plain = source.origin is None  # else the number is not a line of the file
    number = document.line(hit.source, start) if text is not None and plain else None
    return render.Line(
        place=place,
        text=text,
        marked=marked,
        name=document.manifest.name if len(found.documents) > 1 else "",
        matches=matches,
        link=hyperlinks.link(source.path, number),
    )
