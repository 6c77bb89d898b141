"""Documents opened to be searched by stored words and vectors, without the model that read them."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from longctx.core.api.opening import Chosen, told_changed, told_left_out, told_unfinished
from longctx.core.ask.candidates import Candidates, none_left, why_gone, without_damaged
from longctx.core.retrieve.gather_by import vectors
from longctx.core.store.facts import Facts

if TYPE_CHECKING:
    from longctx.core.common.errors import StateMismatch
    from longctx.core.retrieve.dense_index import DenseIndex
    from longctx.core.retrieve.hit import Hit
    from longctx.core.retrieve.lexical import PassageIndex
    from longctx.core.retrieve.ranked import Ranked
    from longctx.core.store.document import Document
    from longctx.core.store.drafts import Encoded
    from longctx.core.store.library import Library

T = TypeVar("T")
NOTHING = "no document can be searched"


@dataclass
class Opened:
    """Documents to search by their words and vectors.

    Attributes:
        documents: open, and nobody can delete or replace them meanwhile; of thousands, those that
            are looked at.
        facts: what is known of each.
        index: their words.
        changed: names of their sources whose files have changed.
        skipped: by name, why a document of the library is not among them; None: only one was
            requested.
        load_s: seconds to open them.
        named: the user named each; otherwise one that turns out to be damaged is left out.
        note: is told of that.
        drafts: by name, how far the encoding of each that is a draft is.
    """

    documents: "Sequence[Document]"
    facts: list[Facts]
    index: "PassageIndex"
    changed: list[str]
    skipped: dict[str, str] | None
    load_s: float
    named: bool = True
    note: Callable[[str], None] = lambda text: None
    drafts: "dict[str, Encoded]" = field(default_factory=dict)
    _dense: "tuple[PassageIndex, DenseIndex] | None" = None

    def without_damaged(self, attempt: Callable[[], T]) -> T:
        """What `attempt` gives once no damaged document is in its way.

        Raises:
            StateMismatch: a named document is damaged.
            NotFound: no document is left.
        """
        return without_damaged(attempt, self._leave_out)

    def _leave_out(self, error: "StateMismatch") -> None:
        places = [n for n, facts in enumerate(self.facts) if facts.folder == error.document]
        if self.named or self.skipped is None or not places:
            raise error
        name, why = self.facts[places[0]].name, why_gone(error)
        self.note(told_left_out(name, why))
        self.skipped[name] = why
        if len(self.facts) == 1:
            raise none_left(NOTHING, self.skipped)
        self._go_without(places[0])

    def _go_without(self, place: int) -> None:
        """Leaves out one of the documents."""
        from longctx.core.retrieve.lexical import PassageIndex

        self.facts = [facts for n, facts in enumerate(self.facts) if n != place]
        self.documents = tuple(d for n, d in enumerate(self.documents) if n != place)
        self.index = PassageIndex(*self.documents)

    @property
    def checked_bytes(self) -> int:
        """Bytes of the documents that were read and verified."""
        return sum(document.checked_bytes for document in self.documents)

    def look_at(self, owners: Sequence[int]) -> None:
        """Told which documents have passages: those of a few have been looked at."""

    @property
    def dense(self) -> "DenseIndex":
        """The vectors of the documents' passages."""
        from longctx.core.retrieve.dense_index import DenseIndex

        if self._dense is None or self._dense[0] is not self.index:
            self._dense = self.index, DenseIndex(self.documents, self.index)
        return self._dense[1]

    def ranked(self, query: str, gather_by: str, device: str = "auto") -> "Ranked":
        """How well each passage fits a query.

        Args:
            query: the user's words.
            gather_by: a gather source that needs no embeddings.
            device: where the reader computes, if it orders them.

        Raises:
            StateMismatch: a document is damaged.
            LongctxError: the gather source needs vectors that a document does not have.
        """
        from longctx.core.retrieve import gather_by as sources
        from longctx.core.retrieve.dense_index import no_vectors

        source = sources.load(gather_by)
        if source.vectors == "needed" and self.dense.missing:
            raise no_vectors(gather_by, self.dense.missing)
        sought = sources.Sought(query, self.index, lambda: self.dense.cosines(query))
        if source.reads:
            from longctx.core.common.device import choose_device
            from longctx.core.retrieve.stretches import Answers

            chosen, passages = choose_device(device), self.index.passages
            sought = replace(sought, answers=Answers(self.documents, passages, query, chosen))
        return source.rank(sought)

    def _without_vectors(self, gather_by: str) -> list[str]:
        """Names of the documents that were to have vectors and have none, for a search by them."""
        without = [] if vectors(gather_by) == "unused" else self.dense.without
        return [name for name in without if name not in self.drafts]

    def state(self, gather_by: str, hits: "Sequence[Hit]") -> dict[str, Any]:
        """The JSON fields on the state searched, without model, device and number format.

        Args:
            gather_by: the gather source.
            hits: what was found.
        """
        facts = self.facts
        told = {
            "reused_tokens": sum(each.tokens for each in facts),
            "status": max(each.status for each in facts),  # "reading" if any is
            "changed_sources": self.changed,
            "checked_bytes": self.checked_bytes,
            "method": ", ".join(dict.fromkeys(each.method for each in facts)),
            "gathered_by": gather_by,
            "without_vectors": self._without_vectors(gather_by),
            "words_only": [how.as_dict(name) for name, how in self.drafts.items()],
            "counted_again": [*self.index.counted_again],
            **{"model": facts[0].model["name"], "device": None, "dtype": None},
        }
        if self.skipped is None:
            return told
        skipped = [{"name": name, "why": why} for name, why in self.skipped.items()]
        gathered: Counter[int] = Counter()
        for hit in hits:
            gathered[hit.document] += hit.tokens
        asked = [
            {"name": each.name, "tokens": each.tokens, "gathered": gathered[number]}
            for number, each in enumerate(facts)
        ]
        return {**told, "asked": asked, "left_out": 0, "skipped": skipped}


@contextmanager
def open_for_words(chosen: Chosen, note: Callable[[str], None]) -> Iterator[Opened]:
    """Opens everything chosen, and tells people what they should know.

    Args:
        chosen: the documents.
        note: is told.

    Raises:
        LongctxError: a named document is unavailable or damaged; or all are unavailable.
    """
    from longctx.core.common.errors import Locked, NotFound, StateMismatch
    from longctx.core.retrieve.lexical import PassageIndex
    from longctx.core.store.sameness import changed_sources
    from longctx.core.store.shards import FOR_WORDS

    started, several = time.perf_counter(), chosen.documents
    folders, skipped, named = {chosen.first.name: chosen.first.folder}, dict[str, str](), True
    if isinstance(several, Candidates):
        folders, skipped, named = several.folders, dict(several.skipped), several.named
    documents = []
    with ExitStack() as held:
        for name, folder in folders.items():
            try:
                opened = chosen.store.reading(folder, chosen.partial, FOR_WORDS)
                documents.append(held.enter_context(opened))
            except (NotFound, Locked, StateMismatch) as error:
                if named:
                    raise
                skipped[name] = why_gone(error)
                note(told_left_out(name, skipped[name]))
        if not documents:
            raise none_left(NOTHING, skipped)
        sources = [source for document in documents for source in document.manifest.sources]
        changed = changed_sources(sources)
        drafts = tell(documents, changed, note, chosen.store)
        load_s = time.perf_counter() - started
        told = skipped if isinstance(several, Candidates) else None
        facts, index = [Facts.of(each.manifest) for each in documents], PassageIndex(*documents)
        opened = Opened(tuple(documents), facts, index, changed, told, load_s, named, note)
        opened.drafts = drafts
        yield opened


def tell(
    documents: "list[Document]", changed: list[str], note: Callable[[str], None], store: "Library"
) -> "dict[str, Encoded]":
    """Tells people what they should know of documents that are searched.

    Returns:
        By name, how far the encoding of each that is a draft is.
    """
    drafts: dict[str, Encoded] = {}
    for document in documents:
        manifest = document.manifest
        if manifest.is_draft and (how := store.encoded(manifest.folder)):
            drafts[manifest.name] = how
            note(f"{manifest.name}: {how.usable}")
        elif manifest.status == "reading":
            note(told_unfinished(manifest))
        for group, error in document.damage.items():
            note(f"{manifest.name} is searched without its {group}: {error.what}")
    for name in changed:
        note(told_changed(name))
    return drafts
