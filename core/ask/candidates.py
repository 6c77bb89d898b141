"""Which documents of a library can be asked together: the named ones, or all.

All must have been read with the same model. Only the facts of their manifests are consulted: no
other file of a state is opened, and no model library imported.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import TypeVar

from longctx.core.common.collection import no_collection
from longctx.core.common.errors import Locked, LongctxError, NotFound, StateMismatch
from longctx.core.store.facts import Facts
from longctx.core.store.library import Library
from longctx.core.store.manifest import FINGERPRINT, Manifest

T = TypeVar("T")


@dataclass(frozen=True)
class Candidates:
    """Documents that can be asked together.

    Attributes:
        library: where they are.
        manifests: the facts of the manifest of each, in order.
        partial: for an unfinished document, use what its last checkpoint holds.
        named: the user named each; otherwise an unavailable one is skipped and reported.
        skipped: by name, why a document of the library is not among them.
    """

    library: Library
    manifests: tuple[Facts, ...]
    partial: bool = False
    named: bool = True
    skipped: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.manifests)

    @cached_property
    def folders(self) -> dict[str, str]:
        """Their folders by their names, in order.

        Of two that are called alike, which only an older library has, one has its folder's name.
        """
        folders: dict[str, str] = {}
        for manifest in self.manifests:
            taken = manifest.name in folders
            folders[manifest.folder if taken else manifest.name] = manifest.folder
        return folders

    def first(self) -> Manifest:
        """The manifest of the first document that is still there.

        Raises:
            NotFound: none is.
        """
        for facts in self.manifests:
            with suppress(NotFound, Locked):
                manifest = self.library.described(facts.folder)
                if manifest.status != "damaged":
                    return manifest
        raise none_left("no document can be asked", self.skipped)


def of_names(
    library: Library,
    names: Sequence[str],
    partial: bool = False,
    needed: Collection[str] | None = None,
) -> Candidates:
    """The documents that a user names, in that order; a name given twice counts once.

    Args:
        library: where they are.
        names: what a user calls them.
        partial: for an unfinished document, use what its last checkpoint holds.
        needed: the groups that a document is opened for; None: all.

    Raises:
        LongctxError: as `Library.document`.
        StateMismatch: one was read with a different model from the first.
    """
    folders = dict.fromkeys(library.folder_named(name) for name in names)
    opened = (library.document(folder, partial, needed).manifest for folder in folders)
    manifests = {manifest.folder: Facts.of(manifest) for manifest in opened}
    return Candidates(library, _of_one_model(tuple(manifests.values())), partial)


def of_all(library: Library, partial: bool = False) -> Candidates:
    """All documents of a library, by name; those that cannot be asked are skipped with a reason.

    Of documents of several models, those of the model that read most of them are asked.

    Raises:
        NotFound: no document can be asked.
    """
    with no_collection():
        return _of_all(library, partial)


def _of_all(library: Library, partial: bool) -> Candidates:
    found: dict[str, Facts] = {}  # by folder
    skipped: dict[str, str] = {}
    for manifest in library.facts():  # the complete ones come first
        why = _unfit(manifest, partial)
        if manifest.folder in found:
            continue  # its replacement, still being read
        if why:
            skipped[manifest.name] = why
        else:
            found[manifest.folder] = manifest
    if not found:
        told = "; ".join(f"'{name}' {why}" for name, why in skipped.items())
        raise NotFound(
            f"the library '{library.path}' has no document to ask",
            told,
            "Run `longctx ingest` first",
        )
    chosen = sorted(found.values(), key=lambda manifest: manifest.name)
    manifests = _of_the_usual_model(chosen, skipped)
    return Candidates(library, manifests, partial, named=False, skipped=skipped)


def why_gone(error: LongctxError) -> str:
    """The reason reported for a document that could not be opened, or is damaged."""
    if isinstance(error, StateMismatch):
        return f"cannot be read: {error.reason}"
    return f"could not be opened: {error}"


def none_left(what: str, skipped: Mapping[str, str]) -> NotFound:
    """The error where every document is left out.

    Args:
        what: what cannot be done.
        skipped: by name, why each is.
    """
    told = "; ".join(f"'{name}' {why}" for name, why in skipped.items())
    return NotFound(what, told, "Run the command again, or `longctx verify` if any is damaged")


def without_damaged(attempt: Callable[[], T], leave_out: Callable[[StateMismatch], None]) -> T:
    """What `attempt` gives once no damaged document is in its way.

    Args:
        attempt: reads documents; called again when one was left out.
        leave_out: leaves out the document of an error, or raises it.
    """
    while True:
        try:
            return attempt()
        except StateMismatch as error:
            leave_out(error)


def _unfit(manifest: Facts, partial: bool) -> str:
    if manifest.status == "damaged":
        return f"is damaged: {manifest.error}"
    if manifest.status == "reading" and not (partial and manifest.tokens):
        some = f"its first {manifest.tokens:,} tokens were read"
        return f"is not finished: {some if manifest.tokens else 'nothing of it is kept yet'}"
    return ""


def _of_one_model(manifests: tuple[Facts, ...]) -> tuple[Facts, ...]:
    first = manifests[0]
    for manifest in manifests[1:]:
        if why := _of_another_model(manifest, first):
            raise StateMismatch(
                f"'{manifest.name}' cannot be asked together with '{first.name}'",
                f"it {why}",
                "Name documents of one model with --doc, or ingest it again with --replace",
            )
    return manifests


def _of_the_usual_model(manifests: list[Facts], skipped: dict[str, str]) -> tuple[Facts, ...]:
    """Those of the model that read most of them; the others are added to `skipped`."""
    models = [*map(itemgetter(*FINGERPRINT), (manifest.model for manifest in manifests))]
    usual, count = Counter(models).most_common(1)[0]
    if count == len(manifests):
        return tuple(manifests)
    first = manifests[models.index(usual)]
    whys = {manifest.name: _of_another_model(manifest, first) for manifest in manifests}
    skipped.update({name: why for name, why in whys.items() if why})
    return tuple(manifest for manifest in manifests if not whys[manifest.name])


def _of_another_model(manifest: Facts, first: Facts) -> str:
    """Why a document cannot be asked beside the first; empty if it can."""
    differing = [part for part in FINGERPRINT if manifest.model[part] != first.model[part]]
    if not differing:
        return ""
    return (
        f"was read with the model {manifest.model['name']}, which has another "
        f"{' and '.join(differing)} than {first.model['name']}"
    )
