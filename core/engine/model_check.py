"""Checks models: reads their weights in full and compares them with what documents recorded.

Knows nothing of running a model, and of a document only its manifest.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from longctx.core.common.errors import LongctxError
from longctx.core.model.converted import is_whole
from longctx.core.model.files import kept_folders, local_weights, weights_digest
from longctx.core.store.library import Library


@dataclass(frozen=True)
class Checked:
    """What checking a model found.

    Attributes:
        name: as recorded in the documents.
        documents: those that were read with it.
        status: ok, changed, or absent where it is not on this computer.
        bytes: the size of its weights.
        error: what is wrong.
    """

    name: str
    documents: tuple[str, ...]
    status: str
    bytes: int = 0
    error: str | None = None


def check(
    library: Library,
    names: Iterable[str],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Checked]:
    """Reads all weights of documents' models in full, without using cached digests.

    Of a converted model it reads what that was made of, and what is kept of it.
    A model name with several digests is checked once for each digest.

    Args:
        library: where the documents are.
        names: the documents; those with an unreadable manifest are skipped.
        on_progress: called with bytes read and total bytes, after every block.
    """
    models = _models(library, names)
    files = {name: local_weights(name) for name, _ in models}
    total = sum(_size(files[name]) + _kept_size(name) for name, _ in models)
    done = 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        on_progress(done, total)

    for (name, recorded), documents in models.items():
        yield _checked(name, recorded, tuple(documents), files[name], add)


def _checked(
    name: str, recorded: str, documents: tuple[str, ...], files: list[Path], add: Callable
) -> Checked:
    if not files:
        return Checked(name, documents, "absent", error="it is not on this computer: not checked")
    try:
        found = weights_digest(name, files, add)
        damaged = [f for f in kept_folders(name) or () if not is_whole(f, True, add)]
    except LongctxError as error:
        return Checked(name, documents, "changed", error=str(error))
    if damaged:
        why = f"what is kept of it in '{damaged[0]}' is damaged; the next use makes it anew"
        return Checked(name, documents, "changed", _size(files), why)
    if found == recorded:
        return Checked(name, documents, "ok", _size(files))
    why = f"its weights are not those that were recorded for {', '.join(documents)}"
    return Checked(name, documents, "changed", _size(files), why)


def _models(library: Library, names: Iterable[str]) -> dict[tuple[str, str], list[str]]:
    """Name and digest of each model, with its documents."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys(names):
        try:
            model = library.document(name, partial=True).manifest.model
        except LongctxError:
            continue
        found.setdefault((model["name"], model["weights"]), []).append(name)
    return found


def _kept_size(name: str) -> int:
    return sum(_size([*folder.iterdir()]) for folder in kept_folders(name) or ())


def _size(files: list[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())
