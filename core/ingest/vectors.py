"""The vectors of a document's passages: whether it gets them, how they are made, and progress.

The encoder in `core/dense/` is imported only where vectors are made.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from longctx.core.ingest.job import ENCODING, Job, Progress
from longctx.core.store.document import Document
from longctx.core.store.manifest import Manifest

if TYPE_CHECKING:
    import numpy as np

    Table = dict[str, np.ndarray]


def encoder_for(job: Job, known: Manifest | None = None) -> str:
    """What makes the vectors of a job's document, as a manifest says it; empty: it gets none.

    Args:
        job: whether a new document gets them.
        known: the document of its name, or what was begun of one, which decides if it has tokens;
            None: there is neither.
    """
    if known and known.tokens:
        return encoder_again(known)
    return encoder_now() if job.vectors else ""


def encoder_again(manifest: Manifest) -> str:
    """The same for a document that becomes longer; the encoder may have become another."""
    return encoder_now() if manifest.encoder else ""


def encoder_now() -> str:
    """The encoder of this version."""
    from longctx.core.dense.weights import FINGERPRINT

    return FINGERPRINT


def tables_on(device: str) -> Callable[..., "Iterator[Table]"]:
    """What makes the vectors of a document on a device, called as `vector_tables` otherwise is."""
    from longctx.core.retrieve.vector_tables import vector_tables

    return partial(vector_tables, device=device)


class Encoding:
    """Makes the vectors of a document, and tells how far it is.

    Args:
        make: as of `tables_on`.
        tell: gets the `Progress` of this phase.
        kept: tokens that the last checkpoint holds.
    """

    def __init__(
        self, make: Callable[..., "Iterator[Table]"], tell: Callable[[Progress], None], kept: int
    ):
        self._make, self._tell, self._kept = make, tell, kept

    def __call__(self, document: Document, first_file: int) -> "Iterator[Table]":
        """The tables of the vector files from `first_file` on.

        Args:
            document: complete, with a word index.
            first_file: those before it are kept from a shorter document.

        Raises:
            StateMismatch: the document is damaged.
        """
        counts = [len(document.words(number)["tokens"]) for number in range(document.word_files)]
        manifest = document.manifest
        size, passages = sum(source.size for source in manifest.sources), max(1, sum(counts))
        before = done = sum(counts[:first_file])
        started = time.perf_counter()

        def add(count: int) -> None:
            nonlocal done
            done = min(done + count, passages)
            cached, processed = size * before // passages, size * done // passages
            tokens, elapsed = manifest.tokens * done // passages, time.perf_counter() - started
            progress = size, cached, processed, tokens, self._kept, int(1000 * elapsed)
            self._tell(Progress(*progress, phase=ENCODING))

        add(0)
        yield from self._make(document, first_file, on_passages=add)
