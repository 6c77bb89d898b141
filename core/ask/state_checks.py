"""Whether a document's state holds what a question needs, and is whole."""

from collections.abc import Sequence

from torch import Tensor

from longctx.core.common.errors import LongctxError, StateMismatch
from longctx.core.contracts.method import Scoring, Way
from longctx.core.kv import embeddings
from longctx.core.store.document import Document
from longctx.core.store.shards import AGAIN


def has_scores(way: Way, document: Document) -> bool:
    """Whether a method scores the document's tokens before a question is answered."""
    return isinstance(way, Scoring) and has_embeddings(document)


def has_embeddings(document: Document) -> bool:
    """Whether a document has embeddings to score with, or they are made again."""
    manifest = document.manifest
    return manifest.is_bare or embeddings.GROUP in {shard.group for shard in manifest.shards}


def require_numbers(values: Tensor, documents: Sequence[Document]) -> None:
    """Refuses results with NaN or infinity, which can come from a document's stored data.

    Args:
        values: of any shape.
        documents: where they come from.

    Raises:
        StateMismatch: some are not finite.
    """
    if not bool(values.isfinite().all()):
        names = ", ".join(f"'{document.manifest.name}'" for document in documents)
        raise StateMismatch(
            f"the state of {names} cannot be reckoned with",
            "it leads to numbers that are none (NaN or infinity)",
            f"Ask with --dtype fp32 if it was another. {AGAIN}",
            documents[0].manifest.folder if len(documents) == 1 else "",
        )


def require_search(method: Way, name: str, document: Document) -> None:
    """Refuses a method that keeps nothing to search by.

    Args:
        method: the way that the document is asked.
        name: the method's.
        document: what it would search.

    Raises:
        LongctxError: it is such a method.
    """
    if not method.searches:
        raise LongctxError(
            f"cannot search document {document.manifest.name!r}",
            f"method {name!r} keeps no embeddings",
            "Ingest it with --method reform, or use --gather-by bm25.",
        )


def require_all(rows: int, document: Document, group: str) -> None:
    """Refuses a state that lacks rows, or has too many.

    Args:
        rows: those that were found.
        document: whose they are.
        group: what they hold; one row a token.

    Raises:
        StateMismatch: they are not as many as the document's tokens.
    """
    if rows != document.manifest.tokens:
        manifest = document.manifest
        why = f"it has {rows:,} rows of {group!r} for its {manifest.tokens:,} tokens"
        raise StateMismatch(f"'{manifest.name}' is damaged", why, AGAIN, manifest.folder)
