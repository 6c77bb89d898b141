"""What is used where nothing is named: the library's folder, and which models read and answer."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longctx.core.store.facts import Facts

LIBRARY = "LONGCTX_LIBRARY"
READER = "LONGCTX_DEFAULT_MODEL"
VECTORS = "LONGCTX_VECTORS"
BUNDLED = "tiny"
OWN = "own"  # as the model that answers: the one that read the document
EMBEDDINGS = "embeddings"  # the group; `core/kv/embeddings.py` would import torch
METHOD = "method"  # a gather source


def library_folder() -> Path:
    """The library's folder: LONGCTX_LIBRARY, or one in the user's data folder."""
    if named := os.environ.get(LIBRARY):
        return Path(named).expanduser()
    from platformdirs import user_data_path

    return user_data_path("longctx") / "library"


def wants_vectors() -> bool:
    """Whether a new document gets vectors of its passages: LONGCTX_VECTORS, by default yes."""
    return os.environ.get(VECTORS, "").lower() not in ("0", "f", "false", "n", "no", "off")


def usual_model(device: str) -> str:
    """The model that reads new documents: the bundled one on a CPU, elsewhere `small`.

    On a CPU the bundled model reads far faster and finds as much, and `small` may answer from what
    it has read (docs/benchmarks/accuracy.md, "Pairs"). Where the weights of `small` are not on this
    computer, the bundled model reads everywhere. LONGCTX_DEFAULT_MODEL names another.

    Args:
        device: as the user names it.
    """
    from longctx.core.model import small

    if named := os.environ.get(READER):
        return named
    if device == "auto":
        from longctx.core.common.device import choose_device

        device = choose_device()
    return BUNDLED if device == "cpu" or not small.find_base() else small.NAME


def usual_answerer(
    manifest: "Facts",
    *,
    named: str | None,
    as_usual: bool,
    gather_by: str | None,
) -> str | None:
    """The model that answers from a document's passages; None: the one that read it.

    `small` answers from passages of what the bundled model has read, if its weights are here. The
    model that read a document answers itself where its method attends to what was kept, or by its
    own rule (`gather_by="method"`), and where the user names a model, or `own`.

    Args:
        manifest: of the document, or one of several.
        named: the model that the user names.
        as_usual: the user names no model, method or profile for reading.
        gather_by: the gather source that the user names.
    """
    from longctx.core.model import small

    if named is not None:
        return None if named == OWN else named
    gathers = manifest.is_bare or has_embeddings(manifest)
    if not (gathers and as_usual and gather_by != METHOD and manifest.model["name"] == BUNDLED):
        return None
    return small.NAME if small.find_base() else None


def has_embeddings(manifest: "Facts") -> bool:
    """Whether a document keeps what it can be searched by meaning with."""
    return EMBEDDINGS in manifest.groups
