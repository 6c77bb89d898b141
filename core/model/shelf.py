"""The models with names of their own: bundled, pulled, and those converted into the user's cache.

For people and programs that ask what is there. Opens no model, and imports no model library.
"""

import os
import shutil
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from longctx.core.common.errors import LongctxError, NotFound, UsageError
from longctx.core.common.nearest import nearest
from longctx.core.model import converted
from longctx.core.model.gguf.parts import parts
from longctx.core.model.published import PUBLISHED, Published
from longctx.core.model.weights import WHOLE, cached_models, count, tensors_of

BUNDLED, BUNDLED_LICENCE = "tiny", "Apache-2.0"


@dataclass(frozen=True)
class Kept:
    """A number format that a model is kept in."""

    dtype: str
    bytes: int
    path: str


@dataclass(frozen=True)
class Shelved:
    """A model as `model list` shows it.

    Attributes:
        name: as for `--model`.
        status: bundled, pulled, installed, file (the user's), or absent.
        parameters: number of its weights; None if unknown.
        licence: of its weights; None if unknown.
        path: the folder or file that has them; None if they are not on this computer.
        bytes: their size; 0 if they are not on this computer.
        adapter: it has an adapter.
        kept: what is kept of it in the user's cache, already converted.
        kept_bytes: all that `model rm` would free.
    """

    name: str
    status: str
    parameters: int | None
    licence: str | None
    path: str | None
    bytes: int
    adapter: bool = False
    kept: tuple[Kept, ...] = ()
    kept_bytes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The fields as a dict, for JSON."""
        return asdict(self)


def shelved() -> list[Shelved]:
    """All of them: the package's own first, then converted files by name."""
    others = [_file(home, told) for home, told in _converted() if told["model"] not in PUBLISHED]
    own = [_tiny(), *map(_published, PUBLISHED.values())]
    return [*own, *sorted(others, key=lambda model: model.name)]


def named(name: str) -> Shelved:
    """The model of a name.

    Raises:
        UsageError: there is none.
        NotFound: its weights are not on this computer.
    """
    found = next((model for model in shelved() if model.name in _names(name)), None)
    if found is None and converted.is_gguf(name) and Path(name).is_file():
        file = Path(os.path.abspath(name))
        found = Shelved(str(file), "file", None, None, str(file), _file_size(file))
    if found is None:
        raise _unknown(name)
    if found.path is None:
        remedy = f"Run `{PUBLISHED[name].pull}`." if name in PUBLISHED else "Bring it back."
        raise NotFound(f"the weights of model {name!r} are not on this computer", "", remedy)
    return found


def remove(name: str) -> int:
    """Removes what is kept of a model.

    Returns:
        How many bytes that were.

    Raises:
        UsageError: there is nothing of this name, or it comes with longctx.
        LongctxError: it cannot be removed.
    """
    if name == BUNDLED:
        raise UsageError(f"cannot remove model {name!r}", "it comes with longctx")
    homes = [home for home, told in _converted() if told["model"] in _names(name)]
    if name in PUBLISHED:
        homes.append(PUBLISHED[name].pulled_path().parent)
    elif not homes:
        raise _unknown(name)
    freed = sum(_size(home) for home in homes)
    for home in homes:
        if not home.is_dir():
            continue
        try:
            with converted.locked(home.parent):
                shutil.rmtree(home)
        except OSError as error:
            what = f"cannot remove '{home}'"
            raise LongctxError(what, error.strerror or str(error), "Remove it yourself.") from error
    return freed


def _names(name: str) -> set[str]:
    """What a model of this name may be recorded as."""
    expanded = os.path.expanduser(name)
    return {name, os.path.abspath(expanded)} if converted.is_gguf(name) else {name}


def _unknown(name: str) -> UsageError:
    near = nearest(name, [model.name for model in shelved()])
    why = f"the nearest is {near!r}" if near else ""
    return UsageError(f"no model {name!r} here", why, "`longctx model list` shows all.")


def _tiny() -> Shelved:
    folder = Path(str(resources.files("longctx.profiles") / BUNDLED))
    weights = folder / WHOLE
    parameters, size = count(tensors_of(weights)), weights.stat().st_size
    return Shelved(BUNDLED, "bundled", parameters, BUNDLED_LICENCE, str(folder), size)


def _published(model: Published) -> Shelved:
    base = model.find_base()
    status = "absent" if base is None else "pulled" if base.pulled else "installed"
    homes = [home for home, told in _converted() if told["model"] == model.name]
    pulled = _size(model.pulled_path().parent)
    return Shelved(
        name=model.name,
        status=status,
        parameters=model.parameters,
        licence=model.licence,
        path=str(base.path) if base else None,
        bytes=model.gguf_bytes if base else 0,
        adapter=model.adapter() is not None,
        kept=tuple(kept for home in homes for kept in _kept(home)),
        kept_bytes=pulled + sum(_size(home) for home in homes),
    )


def _file(home: Path, told: dict[str, Any]) -> Shelved:
    """A GGUF file that was converted."""
    file = Path(told["model"])
    there = file.is_file()
    return Shelved(
        name=told["model"],
        status="file" if there else "absent",
        parameters=told["parameters"],
        licence=told.get("licence"),
        path=str(file) if there else None,
        bytes=_file_size(file) if there else 0,
        kept=tuple(_kept(home)),
        kept_bytes=_size(home),
    )


def _converted() -> list[tuple[Path, dict[str, Any]]]:
    """The folders of converted models in the cache, with what is known of each."""
    folder = cached_models()
    homes = sorted(folder.iterdir()) if folder.is_dir() else []
    told = ((home, converted.read_about(home)) for home in homes if home.is_dir())
    return [(home, about) for home, about in told if about is not None]


def _kept(home: Path) -> list[Kept]:
    folders = converted.kept_folders(home)
    return [Kept(folder.name, _size(folder), str(folder)) for folder in folders]


def _file_size(file: Path) -> int:
    """Bytes of a GGUF file, with the other files of a model that is split."""
    return sum(part.stat().st_size for part in parts(file) if part.is_file())


def _size(folder: Path) -> int:
    """Bytes of the files in a folder; 0 if there is none."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
