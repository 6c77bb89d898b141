"""The two ways to an answer: gather and recompute passages, or attend to all that was kept.

The method decides which (it is `Recallable`, or not), unless the user names a gather source
(`core/retrieve/gather_by/`). Both give a memory to decode from, and the tokens that the answer is
based on.
"""

from collections.abc import Sequence

from longctx.core import methods
from longctx.core.ask.answering import Answering
from longctx.core.ask.one_document import Gathering
from longctx.core.ask.recalling import Recalling
from longctx.core.ask.state_checks import has_scores
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.contracts.memory import Stored
from longctx.core.contracts.method import Method, Recallable
from longctx.core.engine.setup import Engine
from longctx.core.retrieve.gather_by import METHOD, WORDS, check
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.store.document import Document
from longctx.core.store.facts import Facts
from longctx.core.store.manifest import Manifest


def way_of(
    engine: Engine,
    document: Document,
    method: Method,
    gather_by: str | None = None,
    index: PassageIndex | None = None,
    stored: Stored | None = None,
    finding: bool = False,
) -> "Answering":
    """How a document is asked.

    Args:
        engine: the model, and the way that the user named, if any.
        document: the open document.
        method: restored from it.
        gather_by: the gather source that the user names; None: the profile's where passages are
            recomputed or found, else the method's own way to answer.
        index: its passages, and their words; None: build one.
        stored: its rows; None: as they are on disk.
        finding: find passages only; no answer is needed.

    Raises:
        UsageError: `gather_by` does not fit the document.
        LongctxError: the document cannot be asked in the way that the user named.
    """
    ways = engine.ways(method)
    name = engine.asked_with or next(iter(ways))
    if name not in ways:
        raise LongctxError(
            f"cannot ask '{document.manifest.name}' with the method {name!r}",
            f"it was read with {engine.method_name!r} and can be asked with {' or '.join(ways)}",
            "Leave --method out, or ingest the document again with it.",
        )
    chosen = ways[name]
    recalls = isinstance(chosen, Recallable)
    index = PassageIndex(document) if index is None else index
    if gather_by is None:
        named = recalls and engine.asked_with is not None
        choosing = not named if finding else has_scores(chosen, document)
        gather_by = engine.profile.gather_by if choosing else METHOD
    check(gather_by)
    if recalls and gather_by == METHOD:
        return Recalling(engine, document, chosen, name, index)
    if recalls and engine.asked_with is not None:
        raise UsageError(
            f"cannot gather by {gather_by!r} with the method {name!r}",
            "it attends to everything that was kept, and nothing is gathered",
            f"Leave --method out, or use --gather-by {METHOD}.",
        )
    return Gathering(engine, document, chosen, name, gather_by, index, stored)


def refuse_recall(
    engine: Engine, manifests: Sequence[Manifest | Facts], gather_by: str | None
) -> None:
    """Refuses documents that answer by recall where another model answers; loads no weights.

    Args:
        engine: the model that read them, with the one that answers.
        manifests: the documents', or the facts of them.
        gather_by: the gather source that the user names.

    Raises:
        UsageError: one of them would attend to what the first model kept.
    """
    if gather_by not in (None, METHOD):
        return
    for manifest in manifests:
        name = engine.asked_with or manifest.method
        if issubclass(methods.load(name).Method, Recallable):
            raise UsageError(
                f"cannot answer from '{manifest.name}' with another model",
                f"the method {name!r} attends to keys and values that {manifest.model['name']} "
                "kept, and no other model has them",
                f"Add --gather-by {WORDS}, so that text is gathered, or leave --answer-model out.",
            )
