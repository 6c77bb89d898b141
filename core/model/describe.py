"""Describes a model by its files, for the choice of its profile. Loads no weights."""

from pathlib import Path

from longctx.core.model.config_and_tokenizer import CONFIG
from longctx.core.model.files import ModelFiles
from longctx.core.model.weights import read_object
from longctx.core.profile.described import Described, Shape, full_layers

CACHED = "models--"  # begins a folder of the hub's cache: models--OWNER--NAME/snapshots/REVISION


def describe(files: ModelFiles, name: str) -> Described:
    """What a model's files say of it.

    Args:
        files: the model's.
        name: as the user named it.

    Raises:
        UsageError: its config.json is no object.
    """
    file = files.folder / CONFIG
    own = read_object(file).get("_name_or_path") if file.is_file() else None
    cached = [part for part in files.folder.parts if part.startswith(CACHED)]
    hub = [part.removeprefix(CACHED).replace("--", "/") for part in cached]
    names = [name, files.name, *hub, *([own] if isinstance(own, str) else [])]
    return Described(
        names=tuple(dict.fromkeys(each for n in names for each in (n, Path(n).name))),
        shape=Shape.of(files.config),
        full_layers=full_layers(files.config),
        window=files.config.max_position_embeddings,
        has_template=bool(files.tokenizer.chat_template),
    )
