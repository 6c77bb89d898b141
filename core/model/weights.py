"""A model's weight files: which are loaded, their sizes, and their digest.

Only safetensors files in the model's own folder are ever read: an index may name no others. A file
may itself be a link, as in the hub's cache. Knows nothing of running a model.
"""

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from longctx.core.common import file_limits
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.common.foreign import REMEDY, foreign
from longctx.core.common.outputs import Output
from longctx.core.common.regular_files import open_regular, parsed_json, read_json
from longctx.core.model import wrong
from longctx.core.model.folder import most_of, require_header

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
ENDING = ".safetensors"
BLOCK = 1 << 20  # bytes hashed at a time
ITEM_SIZE = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}


def loaded_files(folder: Path) -> list[Path]:
    """The weight files that are loaded, in name order: the whole model, or what its index names.

    Raises:
        UsageError: there is neither, or the index names a file that is not in the folder.
    """
    whole, index = folder / WHOLE, folder / INDEX
    if _is_there(whole):
        return [require_file(whole)]
    if _is_there(index):
        return [require_file(folder / name) for name in _named(index)]
    raise wrong.weights(folder, f"{WHOLE} or {INDEX}")


def stored_files(folder: Path) -> list[Path]:
    """The files that identify the model, in name order; empty if it is incomplete.

    These are all safetensors files in the folder, and those that its index names in subfolders.
    """
    files = {file for file in folder.glob(f"*{ENDING}") if file.is_file()}
    try:
        files |= {*loaded_files(folder)}
    except UsageError:
        return []
    return sorted(files)


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def require_file(path: Path) -> Path:
    """Returns the path of a file that can be read.

    Raises:
        UsageError: it is not a regular file, or missing.
    """
    if path.is_file():
        return path
    why = "it is not there"
    if path.is_symlink():
        why = "it is a link to what is not there"
    if path.exists():
        why = "it is a folder" if path.is_dir() else "it is no regular file"
    raise UsageError(f"cannot read {str(path)!r}", why, REMEDY)


def _named(index: Path) -> list[str]:
    """The files that an index names.

    Raises:
        UsageError: it is not an index, or names a file outside the folder.
    """
    values = read_object(index)
    names = values.get("weight_map")
    if not isinstance(names, dict) or not names:
        raise UsageError(f"cannot read {str(index)!r}", "it has no 'weight_map'", REMEDY)
    for name in names.values():
        if not _is_inside(name):
            raise UsageError(
                f"cannot use {str(index)!r}",
                f"it names weights that are no {ENDING} file of this folder: {str(name)[:80]!a}",
                REMEDY,
            )
    return sorted({*names.values()})


def _is_inside(name: Any) -> bool:
    """Whether a name can only mean a safetensors file in the folder or a subfolder."""
    if not isinstance(name, str) or not name.endswith(ENDING) or not name.isprintable():
        return False
    windows = PureWindowsPath(name)
    return not (
        "\\" in name or ".." in windows.parts or windows.anchor or PurePosixPath(name).anchor
    )


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a model.

    Raises:
        UsageError: it is unreadable or not an object.
    """
    what = f"cannot read {str(path)!r}"
    with foreign(what):
        values = read_json(require_file(path), most_of(path) or file_limits.CONFIG)
    if not isinstance(values, dict):
        raise UsageError(what, f"it is {type(values).__name__}, not an object", REMEDY)
    return values


def tensors_of(file: Path) -> dict[str, dict[str, Any]]:
    """The header of a weight file: each tensor's `dtype`, `shape` and `data_offsets`.

    Raises:
        UsageError: it is not a safetensors file, or is truncated.
    """
    what = f"cannot read weights from {str(file)!r}"
    with foreign(what):
        size = require_file(file).stat().st_size
        with open_regular(file) as stream:
            start = stream.read(8)
            (length,) = struct.unpack("<Q", start) if len(start) == 8 else (0,)
            if not length:
                raise ValueError("it is no safetensors file")
            require_header(file, length)
            header = parsed_json(stream.read(length)) if length <= size else {}
        if not isinstance(header, dict):
            raise ValueError("its header is no object")
        header.pop("__metadata__", None)
        ends = [_end_of(key, value) for key, value in header.items()]
    wanted = 8 + length + max(ends, default=0)
    if size < wanted:
        why = f"it has {size:,} bytes of at least {wanted:,}: a copy or download was stopped"
        raise UsageError(what, why, REMEDY)
    return header


def _end_of(name: str, tensor: Any) -> int:
    """Where a tensor's bytes end."""
    match tensor:
        case {"data_offsets": [start, end]} if (
            type(start) is type(end) is int and 0 <= start <= end
        ):
            return end
    raise ValueError(f"the header says nothing of where {name[:80]!a} is")


def count(tensors: dict[str, dict[str, Any]]) -> int:
    """The number of parameters in a file, from its header."""
    return sum(_weights(key, value) for key, value in tensors.items())


def _weights(name: str, tensor: dict[str, Any]) -> int:
    """Number of weights in a stored tensor; mxfp4 packs two per byte, with separate scales."""
    start, end = tensor["data_offsets"]
    dtype = str(tensor.get("dtype"))
    if dtype == "U8" and name.endswith(("_blocks", "_scales")):
        return 2 * (end - start) if name.endswith("_blocks") else 0
    return (end - start) // ITEM_SIZE.get(dtype, 1)


# --- digests ------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """The user's cache folder, which may not be there yet."""
    from platformdirs import user_cache_path

    return user_cache_path("longctx")


def cached_models() -> Path:
    """The folder of the user's cache that holds pulled and converted models."""
    return cache_folder() / "models"


def cached_json(name: str) -> "JsonCache":
    """A small mapping remembered between runs in the user's cache folder."""
    return JsonCache(cache_folder() / name)


class JsonCache(dict):
    """A mapping kept in a JSON file; losing it costs only time, so write errors are ignored."""

    def __init__(self, path: Path):
        self._path = path
        try:
            values = read_json(path, file_limits.CACHE)
        except (OSError, ValueError):
            values = {}
        super().__init__(values if isinstance(values, dict) else {})

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            Output(self._path).write(json.dumps(self))
        except (OSError, LongctxError):
            return


def digest(
    files: list[Path],
    anew: bool = False,
    on_bytes: Callable[[int], None] = lambda count: None,
    made: str = "",
) -> str:
    """SHA-256 over the files' digests, each of which is remembered.

    Args:
        files: in name order, or in the order in which weights are made of them.
        anew: read all of them, whatever is remembered.
        on_bytes: receives the number of bytes read, after every block.
        made: how weights are made of the files; empty where they hold the weights as they are.

    Raises:
        UsageError: a file cannot be read.
    """
    digests = [file_digest(file, anew, on_bytes) for file in files]
    return sha256("".join([*digests, made]).encode())


def file_digest(
    file: Path, anew: bool = False, on_bytes: Callable[[int], None] = lambda count: None
) -> str:
    """SHA-256 of a file, remembered; arguments and errors are those of `digest`.

    A file is recognized by path, size, inode, mtime and ctime: anyone can set the mtime, only the
    system the ctime.
    """
    with foreign(f"cannot read {str(file)!r}"):
        stat = file.stat()
        key = "|".join(
            map(str, (file, stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_ctime_ns))
        )
        known = cached_json("weights.json")
        found = None if anew else known.get(key)
        if not isinstance(found, str):
            found = sha256_of(file, on_bytes)
            known[key] = found
    return found


def sha256_of(file: Path, on_bytes: Callable[[int], None] = lambda count: None) -> str:
    """SHA-256 of a file, read now and not remembered; OSError if it cannot be read."""
    hashed = hashlib.sha256()
    with open_regular(file) as stream:
        while block := stream.read(BLOCK):
            hashed.update(block)
            on_bytes(len(block))
    return hashed.hexdigest()


def sha256(data: bytes) -> str:
    """The SHA-256 hex digest."""
    return hashlib.sha256(data).hexdigest()
