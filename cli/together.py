"""Which documents a command asks, and how they are opened: one alone, or several together."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from longctx.cli import progress, render
from longctx.cli.loading import choose_document, go_offline, make_setup, named_models, open_session
from longctx.core.common.errors import Locked, NotFound, StateMismatch, UsageError

if TYPE_CHECKING:
    from longctx.core.ask.asking import Asking
    from longctx.core.ask.candidates import Candidates
    from longctx.core.ask.joint_session import JointSession
    from longctx.core.store.document import Document
    from longctx.core.store.manifest import Manifest

GIVEN = "COMMANDLINE"  # the origin of a value typed for this run


def choose_documents(
    context: typer.Context,
    library: Path,
    docs: list[str] | None,
    everything: bool,
    partial: bool,
    needed: Collection[str] | None = None,
) -> "Document | Candidates":
    """The document that the user named, or the latest; or several, if several are requested.

    Takes no time, so that a wrong name is reported before a model is loaded.

    Args:
        context: knows whether `docs` were typed, or are a setting, which --all overrides.
        library: the library's folder.
        docs: names; none: the latest.
        everything: all documents of the library.
        partial: for an unfinished document, use what its last checkpoint holds.
        needed: the groups that a document is opened for; None: all.

    Raises:
        LongctxError: there is no such library or document, or it is damaged or was read with
            another model.
    """
    from longctx.core.ask import candidates
    from longctx.core.store.library import Library

    source = context.get_parameter_source("docs")
    if everything and docs and source is not None and source.name == GIVEN:
        raise UsageError("cannot take both --doc and --all", "", "Give one of them.")
    if not everything and len(set(docs or ())) < 2:
        return choose_document(library, docs[0] if docs else None, partial, needed)
    store = Library.open(library)
    if everything:
        chosen = candidates.of_all(store, partial)
    else:
        chosen = candidates.of_names(store, docs or (), partial, needed)
    for name, why in chosen.skipped.items():
        note_left_out(name, why)
    if len(chosen.manifests) == 1:
        return store.document(chosen.manifests[0].folder, partial, needed)
    return chosen


def note_left_out(name: str, why: str) -> None:
    """Tells people of a document that is not asked beside the others."""
    render.note(f"{name} is left out: it {why}")


def first_manifest(chosen: "Document | Candidates") -> "Manifest":
    """The manifest of the document, or of the first of several."""
    from longctx.core.ask.candidates import Candidates

    return chosen.manifests[0] if isinstance(chosen, Candidates) else chosen.manifest


@contextmanager
def open_documents(
    library: Path,
    chosen: "Document | Candidates",
    partial: bool,
    max_docs: int,
    gather_by: str | None,
    **choices: Any,
) -> "Iterator[Asking]":
    """Opens the chosen documents with their model, and tells people what they should know.

    Args:
        library: the library's folder.
        chosen: one document, or several, from `choose_documents`.
        partial: for an unfinished document, use what its last checkpoint holds.
        max_docs: the most documents that a question is encoded for.
        gather_by: the gather source.
        **choices: fields of `Setup`.

    Raises:
        LongctxError: as `Session` and `JointSession`.
    """
    from longctx.core.ask.candidates import Candidates

    if not isinstance(chosen, Candidates):
        with open_session(library, chosen, partial, **choices) as session:
            yield session
        return
    with _opened_together(chosen, max_docs, gather_by, choices) as session:
        for manifest in chosen.manifests:
            if manifest.status != "complete":
                read = f"{manifest.tokens:,} tokens"
                render.note(f"{manifest.name} is not finished: only its first {read} count")
        for source in session.changed:
            name = render.one_line(source)
            render.note(f"{name} has changed since it was read; answers are from what was read")
        yield session


def _opened_together(
    chosen: "Candidates", max_docs: int, gather_by: str | None, choices: dict[str, Any]
) -> "JointSession":
    """A session; its first files are read while the model's libraries are imported."""
    from longctx.core.common import cores
    from longctx.core.common.read_ahead import ReadAhead
    from longctx.core.common.regular_files import open_regular
    from longctx.core.model.files import weights_to_load
    from longctx.core.store.confined import Confined

    cores.note()
    first, models = chosen.manifests[0], named_models(choices)
    with ReadAhead() as ahead:
        go_offline(*models)
        ahead.warm(weights_to_load(models[1] or models[0] or first.model["name"]), open_regular)
        with nullcontext() if chosen.named else suppress(NotFound, Locked, StateMismatch):
            document = chosen.library.document(first.folder, chosen.partial)
            ahead.warm(document.read_whole(), Confined.open)
        setup = make_setup(**choices)
        from longctx.core.ask.joint_session import JointSession

        with progress.status(f"opening {len(chosen.manifests):,} documents"):
            return JointSession(chosen, setup, max_docs, gather_by, note_left_out)
