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


def library_folder() -> Path:
    """The library's folder: LONGCTX_LIBRARY, or one in the user's data folder."""
    if named := os.environ.get(LIBRARY):
        return Path(named).expanduser()
    from platformdirs import user_data_path

    return user_data_path("longctx") / "library"


def wants_vectors() -> bool:
    """Whether a new document gets vectors of its passages: LONGCTX_VECTORS, by default yes."""
    return os.environ.get(VECTORS, "").lower() not in ("0", "f", "false", "n", "no", "off")


def usual_model() -> str:
    """The model that reads new documents: LONGCTX_DEFAULT_MODEL, by default the bundled one."""
    return os.environ.get(READER) or BUNDLED


def pointed_at(manifest: "Facts") -> bool:
    """Whether the reader answers from a document unless the user names another way.

    The bundled model has read it, and keeps embeddings or nothing: who keeps keys and values asked
    for a method that answers from these. From a draft nothing else can answer.
    """
    if manifest.is_draft:
        return True
    keeps = manifest.is_bare or EMBEDDINGS in manifest.groups
    return manifest.model["name"] == BUNDLED and keeps
