"""All that commands do without a model with a document that lies, in process."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import fuzz_changes as changes
import numpy as np
from fuzz_library import QUERY, Case, Shelf
from fuzz_running import refused_at_most, require_told

from longctx.cli import render
from longctx.cli import show as show_command
from longctx.core.api.searching import Search
from longctx.core.api.told import details, summary
from longctx.core.api.words_alone import Opened
from longctx.core.common.errors import StateMismatch
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.word_tables import count_tables, read_table
from longctx.core.store import shards
from longctx.core.store.document import Document
from longctx.core.store.facts import Facts
from longctx.core.store.library import Library
from longctx.core.store.manifest import MANIFEST, Manifest
from longctx.core.store.marks import marks_before, marks_of
from longctx.core.store.sameness import changed_sources
from longctx.core.store.word_files import damaged_tables, unchanged_tables

LOOKED_AT = 4  # tokens, places and rows that are asked for


def read_case(shelf: Shelf, case: Case, rng: random.Random) -> None:
    """Puts a case in its place and does all with the document that commands do without a model.

    Raises:
        Exception: one that is not of our own, or that says nothing.
    """
    manifest_path = next(path for path in case if path.endswith(MANIFEST))
    folder = shelf.library / os.path.dirname(manifest_path)
    with shelf.with_case(case):
        try:
            manifest = Manifest.read(folder)
        except StateMismatch as error:
            require_told(error)
            if changes.seldom(rng, 16):
                listed(shelf.library)
            return
        told(manifest)
        if changes.seldom(rng, 16):
            listed(shelf.library)
        opened(folder, rng)


def told(manifest: Manifest) -> None:
    """What `show` and `list` tell of a manifest."""
    from longctx.core.engine.choice import recorded

    assert recorded(manifest)
    told_of = details(manifest, summary(manifest))
    assert "\x1b" not in json.dumps(told_of, allow_nan=False)
    facts = show_command.facts(manifest.folder, told_of)
    assert all(isinstance(value, str) for _, value in facts)
    render.one_line(manifest.name)


def listed(library: Path) -> None:
    """What `list` tells of a library; it lists all, whatever is wrong with one."""
    documents = Library.open(library).documents()
    assert {"book", "kept", "begun"} <= {manifest.name for manifest in documents}
    json.dumps([summary(manifest) for manifest in documents], allow_nan=False)


def opened(folder: Path, rng: random.Random) -> None:
    """Opens a document and reads all that is in it, in every way that there is."""
    with refused_at_most():
        whole = Document(folder)
        for step in STEPS if changes.seldom(rng, 8) else rng.sample(STEPS, 2):
            with refused_at_most():
                step(whole, rng)
        if changes.seldom(rng, 2):
            searched(whole, rng)
        return
    with refused_at_most():  # words need less of it
        searched(Document(folder, needed=shards.FOR_WORDS), rng)


def _kept(document: Document, rng: random.Random) -> None:
    document.size(), document.read_whole()
    if document.has_snapshot:
        document.snapshot()


def _boundary(document: Document, rng: random.Random) -> None:
    document.boundary()


def _rows(document: Document, rng: random.Random) -> None:
    for group in document.groups:
        with refused_at_most():
            for _, rows in document.rows(group):
                assert rows is not None


def _chosen_rows(document: Document, rng: random.Random) -> None:
    import torch

    tokens = document.manifest.tokens
    if not tokens:
        return
    wanted = sorted({0, tokens - 1, *(rng.randrange(tokens) for _ in range(LOOKED_AT))})
    with refused_at_most():
        document.array_take("tokens", np.array(wanted), "starts")
    document.take("tokens", torch.tensor(wanted))


def _spans(document: Document, rng: random.Random) -> None:
    manifest = document.manifest
    for source in manifest.sources[:LOOKED_AT] if manifest.tokens else ():
        if source.tokens:
            first = source.first_token + rng.randrange(source.tokens)
            last = rng.choice([first + 1, source.first_token + source.tokens])
            with refused_at_most():
                number, start, end = document.span(first, last)
                document.text(number, start, end)
                document.place(number, start)


def _text(document: Document, rng: random.Random) -> None:
    for number, source in enumerate(document.manifest.sources[:LOOKED_AT]):
        with refused_at_most():
            assert len(document.text(number, 0, source.size)) == source.size
        with refused_at_most():
            at = rng.choice([0, source.size, rng.randrange(source.size + 1)])
            assert document.line(number, at) >= 1 or document.manifest.sources
            document.place(number, at)


def _marks(document: Document, rng: random.Random) -> None:
    for number in range(min(LOOKED_AT, len(document.manifest.sources))):
        with refused_at_most():
            marks_of(document, number, rng.choice([0, 1, 10**6]))
    marks_before(document, rng.choice([0, 10, 10**12]))


def _tails(document: Document, rng: random.Random) -> None:
    """What going on from a checkpoint, or making it longer, reads."""
    for group in document.groups:
        with refused_at_most():
            document.tail(group)
        document.full(group, rng.choice([0, 64, 10**6]))
    assert sum(map(len, document.text_tail())) >= 0
    document.full_text(rng.choice([0, 10, 10**9]))
    unchanged_tables(document, document.manifest.tokens)


def _verified(document: Document, rng: random.Random) -> None:
    damaged_tables(document)
    document.verify()


def _word_tables(document: Document, rng: random.Random) -> None:
    for number in range(count_tables(document.manifest)):
        read_table(document, number)


def _sameness(document: Document, rng: random.Random) -> None:
    changed_sources(document.manifest.sources[:LOOKED_AT])


STEPS: list[Callable[[Document, random.Random], None]] = [
    *(_kept, _boundary, _rows, _chosen_rows, _spans, _text, _marks, _tails, _verified),
    *(_word_tables, _sameness),
]


def searched(document: Document, rng: random.Random) -> None:
    """What `find --gather-by bm25` tells."""
    search = Search(rng.choice([QUERY, "code", "карта мир", '"a map"']), None, 3, None, False)
    facts, index = [Facts.of(document.manifest)], PassageIndex(document)
    found = search.by_stored(Opened((document,), facts, index, [], None, 0.0), "bm25")
    json.dumps(found.values, allow_nan=False)
    for hit in found:
        size = max(each.size for each in document.manifest.sources if each.name == hit.source)
        assert 0 <= hit.start <= hit.end <= size
        assert 0 <= hit.match.start <= hit.match.end <= size
