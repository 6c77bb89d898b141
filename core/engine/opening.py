"""The memory of a document that is opened to be asked, made again where it keeps less than that.

Short ones keep no rows, and no snapshot, since reading them takes less than an answer does.
"""

import logging
from collections.abc import Iterator

import torch

from longctx.core import methods
from longctx.core.common.errors import StateMismatch
from longctx.core.common.telemetry import stage
from longctx.core.contracts.memory import Groups, Rows, Snapshot
from longctx.core.contracts.method import Method
from longctx.core.engine.choice import recorded
from longctx.core.engine.encode import encode
from longctx.core.engine.setup import Engine
from longctx.core.profile import profile
from longctx.core.profile.chat import resolve
from longctx.core.profile.prompt import PromptEncoder
from longctx.core.store.document import Document
from longctx.core.store.manifest import UNITS
from longctx.core.store.shards import AGAIN

_log = logging.getLogger(__name__)


def saved_snapshot(document: Document, device: str = "cpu") -> Snapshot | None:
    """A document's snapshot; None where a question needs none, or it can be rebuilt.

    A checkpoint of a document whose sources are read one by one has the snapshot of one source.

    Args:
        document: the open document.
        device: of the model. The snapshot is put there at once if all of it belongs there, as the
            caches of methods that renew them do; else it is on the CPU.

    Raises:
        StateMismatch: the document is damaged.
    """
    if document.manifest.units != UNITS[0] or not document.has_snapshot:
        return None
    capabilities = methods.load(document.manifest.method).Method.capabilities
    return document.snapshot(device if capabilities.renews else "cpu")


def memory_of(engine: Engine, document: Document, snapshot: Snapshot | None) -> Method:
    """The memory of a document, ready to be asked.

    Args:
        engine: of the model that read it.
        document: the open document; gets the rows that it lacks where it is read again.
        snapshot: its own, from `saved_snapshot`; None: it is rebuilt by reading the prefix,
            followed by the document's tokens where they were read as one text.

    Raises:
        StateMismatch: the document is damaged, or was read by another method.
    """
    if snapshot is None:
        snapshot = _snapshot_again(engine, document)
    return engine.new_method(snapshot, document)


def _snapshot_again(engine: Engine, document: Document) -> Snapshot:
    """The snapshot of a document that keeps none; it gets the rows that it lacks.

    Raises:
        StateMismatch: the document is damaged.
    """
    manifest, made = document.manifest, _Made()
    whole = manifest.units == UNITS[0]
    if manifest.is_bare and not whole:
        make_again(engine, document)
    with stage(_log, "read_again", f"{manifest.name}: its snapshot made again"):
        method = _read_again(engine, document, 0, manifest.tokens if whole else 0, made)
    if whole and manifest.is_bare:
        document.lend(made.groups())
    return {name: tensor.cpu() for name, tensor in method.snapshot().items()}


def make_again(engine: Engine, document: Document) -> None:
    """Gives a bare document whose sources were read one by one the rows that it lacks.

    Raises:
        StateMismatch: the document is damaged.
    """
    made = _Made()
    with stage(_log, "read_again", f"{document.manifest.name}: its sources read again"):
        for source in (each for each in document.manifest.sources if each.tokens):
            end = source.first_token + source.tokens
            _read_again(engine, document, source.first_token, end, made)
    document.lend(made.groups())


def _read_again(engine: Engine, document: Document, first: int, end: int, made: "_Made") -> Method:
    """The memory of a document's tokens [first, end) behind the prefix; `made` gets rows."""
    reader = engine.reader  # before the room that it leaves
    # Layers stay where they are: other documents may be open, and a reading under way.
    method, ids = engine.new_method(), _ids_of(engine, document, first, end)
    for _ in encode(reader, method, _prefix_of(engine, document), ids, made):
        pass
    return method


def _prefix_of(engine: Engine, document: Document) -> torch.Tensor:
    """The prefix that was read before a document; the user may ask with another profile."""
    own = recorded(document.manifest).profile
    if not isinstance(own, dict):
        return engine.prompt.prefix()
    template = profile.parse(own, "the document's profile").prompt
    return PromptEncoder(resolve(template, engine.files.tokenizer), engine.files.tokenizer).prefix()


def _ids_of(engine: Engine, document: Document, first: int, last: int) -> Iterator[torch.Tensor]:
    for rows in document.rows_between("tokens", first, last):
        ids = rows["ids"].long()
        if ((ids < 0) | (ids >= engine.files.config.vocab_size)).any():
            why = "it has tokens that the model does not have"
            name, folder = document.manifest.name, document.manifest.folder
            raise StateMismatch(f"'{name}' is damaged", why, AGAIN, folder)
        yield ids


class _Made:
    """The rows of a document that is read again, on the CPU."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Rows]] = {}

    def append(self, group: str, rows: Rows) -> None:
        """Takes n more rows of a group."""
        part = {name: tensor.cpu() for name, tensor in rows.items()}
        self._parts.setdefault(group, []).append(part)

    def groups(self) -> Groups:
        """All rows that came, by group."""
        return {
            group: {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
            for group, parts in self._parts.items()
        }
