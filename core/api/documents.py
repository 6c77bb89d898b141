"""`longctx.Documents`: several documents of a library, asked together."""

from collections.abc import Callable

from longctx.core.api.asking import Askable
from longctx.core.api.model import Model
from longctx.core.api.opening import Chosen
from longctx.core.api.shelf import Shelf
from longctx.core.ask.candidates import Candidates


class Documents(Askable):
    """Several documents that are asked together, from `Library.together`.

    All were read by one model. Of more than `max_docs`, each question is asked of those that fit it
    best by its words.

    Attributes:
        library: where they are.
    """

    def __init__(
        self,
        library: Shelf,
        chosen: Chosen,
        model: Callable[[Model | str | None], Model],
        note: Callable[[str], None],
    ):
        super().__init__(model, note)
        self.library, self._asked = library, chosen

    def __repr__(self) -> str:
        return f"<longctx.Documents {', '.join(map(repr, self.names))}>"

    def __len__(self) -> int:
        return len(self._asked.manifests)

    @property
    def names(self) -> tuple[str, ...]:
        """What they are called, in their order."""
        return tuple(manifest.name for manifest in self._asked.manifests)

    @property
    def tokens(self) -> int:
        """How many tokens they have together."""
        return sum(manifest.tokens for manifest in self._asked.manifests)

    def _is_of(self, chosen: Chosen) -> bool:
        """Whether these are the documents of a choice, as they are now."""
        return _told(self._asked) == _told(chosen)

    def _has(self, folders: set[str]) -> bool:
        """Whether one of them is in one of these folders."""
        return any(manifest.folder in folders for manifest in self._asked.manifests)

    def _chosen(self) -> Chosen:
        return self._asked


def _told(chosen: Chosen) -> tuple:
    """What tells a choice from another of the same library."""
    several = chosen.documents
    named = isinstance(several, Candidates) and (several.named, several.skipped)
    return chosen.manifests, named, chosen.partial, chosen.max_docs
