"""Gathering without the model that has read the documents, for another one that answers."""

from torch import Tensor

from longctx.core.ask.answering import Question
from longctx.core.ask.gathering import Gatherer
from longctx.core.ask.state_checks import has_embeddings
from longctx.core.contracts.memory import Scores
from longctx.core.engine.setup import Engine
from longctx.core.retrieve.gather_by import METHOD, check
from longctx.core.retrieve.gather_by import embeddings as embeddings_of
from longctx.core.retrieve.late_interaction import Maxima
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.store.document import Document


def by_words(
    engine: Engine, documents: tuple[Document, ...], gather_by: str | None, index: PassageIndex
) -> "ByWords | None":
    """How another model answers without the one that read the documents; None: that is needed.

    Args:
        engine: the model that read them, with the one that answers.
        documents: open.
        gather_by: the gather source that the user names.
        index: the passages, and their words.
    """
    if gather_by is None:
        scored = engine.asked_with is None and all(map(has_embeddings, documents))
        gather_by = engine.profile.gather_by if scored else METHOD
    check(gather_by)
    if gather_by == METHOD or embeddings_of(gather_by):
        return None
    names = dict.fromkeys(document.manifest.method for document in documents)
    return ByWords(engine, documents, ", ".join(names), gather_by, index)


class ByWords(Gatherer):
    """Puts passages before another model than has read them.

    Words and vectors choose them, for which neither a method nor its model is needed.
    """

    _gather, _edges = None, (0, 0)

    def _has_embeddings(self, document: Document) -> bool:
        return False

    def _maxima(self, question: Question) -> Maxima:
        raise AssertionError("they are not used")

    def _method_scores(self, question: Question) -> Scores:
        raise AssertionError("a gather source chooses")

    def _top_tokens(self, scores: Scores, count: int, edges: tuple[int, int]) -> Tensor:
        raise AssertionError("a gather source chooses")

    def require_search(self) -> None:
        """See `Gatherer.require_search`: words are always there."""
