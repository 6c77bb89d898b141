"""`longctx find`: the places in a document that a query is about."""

from typing import Annotated

import typer

from longctx.cli import options, render
from longctx.cli.settings import library_path
from longctx.cli.together import choose_documents, open_documents
from longctx.core import scoring

EXAMPLES = """\
  longctx find "where the light went out"
  longctx find "payment failed" --doc log --limit 3
  longctx find "payment failed" --all
  longctx find "Aldous Crane" --gather-by bm25
  longctx find "the storm" --json | jq '.passages[0]'
"""


def run(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in any words.")],
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
    gather: options.Gather = None,
    gather_by: options.GatherBy = None,
    limit: Annotated[
        int,
        options.setting(
            "--limit", "Passages to print, best first; by default 10.", metavar="N", min=1
        ),
    ] = 10,
    partial: options.Partial = False,
    json: options.Json = False,
) -> None:
    """Finds passages of one document or several: a grep by meaning.

    Each line is `file:line: score text`, best first, as `grep -n` prints it, after the document's
    name where several are searched; nothing is generated. JSON has every passage, whole.
    """
    if gather_by is not None:
        scoring.require(gather_by)
    place = library_path(library)
    chosen = choose_documents(context, place, docs, everything, partial)
    setup = {
        "model": model,
        "profile": profile,
        "method": method,
        "device": device,
        "dtype": dtype,
        "threads": threads,
    }
    with open_documents(place, chosen, partial, max_docs, gather_by, **setup) as session:
        found = session.find(query, gather, gather_by)
    if render.result(found.as_dict(), json):
        return
    render.warn(found)
    render.passages(found.passages[:limit], scores=True, names=len(found.documents) > 1)
