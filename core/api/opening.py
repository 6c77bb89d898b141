"""Documents that were chosen, opened with a model: one alone, or several together."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from longctx.core.ask.candidates import Candidates
from longctx.core.common.collection import no_collection
from longctx.core.common.errors import Locked, NotFound, StateMismatch
from longctx.core.common.read_ahead import ReadAhead
from longctx.core.store.facts import Facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from longctx.core.ask.asking import Asking
    from longctx.core.engine.choice import Setup
    from longctx.core.store.library import Library
    from longctx.core.store.manifest import Manifest

MAX_DOCS = 16  # documents that a question is encoded for
LONG = 1024  # tokens that are read again, from which on a second thread gains
_SHOWN = 200  # characters of the name of a source


@dataclass(frozen=True)
class Chosen:
    """Documents to open.

    Attributes:
        store: the library that they are in.
        documents: one, or several.
        partial: for an unfinished document, use what its last checkpoint holds.
        max_docs: of several, the most that a question is encoded for.
    """

    store: "Library"
    documents: Facts | Candidates
    partial: bool = False
    max_docs: int = MAX_DOCS

    @property
    def manifests(self) -> "Sequence[Facts]":
        """Those of the documents."""
        if isinstance(self.documents, Candidates):
            return self.documents.manifests
        return (self.documents,)

    @property
    def first(self) -> "Facts":
        """That of the document, or of the first of several."""
        return self.manifests[0]


def open_session(
    chosen: Chosen, setup: "Setup", gather_by: str | None, note: Callable[[str], None]
) -> "Asking":
    """Opens documents with their model; who closes the session lets them go.

    The files of both are read from the start, while the model's libraries are imported.

    Args:
        chosen: the documents.
        setup: model, device and the like.
        gather_by: the gather source; of several documents, those that it does not fit are left out.
        note: is told what people should know.

    Raises:
        LongctxError: as `Session` and `JointSession`.
    """
    with ReadAhead() as ahead:
        _warm(chosen, setup, ahead)
        if isinstance(chosen.documents, Candidates):
            with no_collection():
                from longctx.core.ask.joint_session import JointSession

            def left_out(name: str, why: str) -> None:
                note(told_left_out(name, why))

            session = JointSession(chosen.documents, setup, chosen.max_docs, gather_by, left_out)
            manifests = chosen.manifests
        else:
            with no_collection():
                from longctx.core.ask.session import Session

            # by its folder: two documents of an older library may have one name
            folder = chosen.documents.folder
            session = Session(chosen.store.path, folder, setup, chosen.partial)
            manifests = (Facts.of(session.document.manifest),)
    for manifest in manifests:
        if manifest.status != "complete":
            note(told_unfinished(manifest))
    for source in session.changed:
        note(told_changed(source))
    return session


def _warm(chosen: Chosen, setup: "Setup", ahead: ReadAhead) -> None:
    """Begins to read the model's files, and those of the first document."""
    from longctx.core.common.regular_files import open_regular
    from longctx.core.model.files import weights_to_load
    from longctx.core.store.confined import Confined

    first = chosen.first
    ahead.warm(
        weights_to_load(setup.answer_model or setup.model or first.model["name"]), open_regular
    )
    optional = isinstance(chosen.documents, Candidates) and not chosen.documents.named
    with suppress(NotFound, Locked, StateMismatch) if optional else nullcontext():
        document = chosen.store.document(first.folder, chosen.partial)
        ahead.warm(document.read_whole(), Confined.open)


def told_left_out(name: str, why: str) -> str:
    """What to say of a document that is not asked beside the others."""
    return f"{name} is left out: it {why}"


def told_unfinished(manifest: "Facts | Manifest") -> str:
    """What to say of a document of which only the beginning was read."""
    return f"{manifest.name} is not finished: only its first {manifest.tokens:,} tokens count"


def told_changed(source: str) -> str:
    """What to say of a source whose file has changed."""
    name = " ".join(source.split())
    name = name if len(name) <= _SHOWN else f"{name[: _SHOWN - 1].rstrip()}…"
    return f"{name} has changed since it was read; answers are from what was read"
