"""Models whose weights are made of other files: a GGUF file, or that and an adapter.

What is made is an ordinary folder in Hugging Face format, kept in the user's cache for each number
format, so that a model is converted once and mapped from then on:

    models/<identity>/about.json     what it was made of
                      description/   configuration and tokenizer, where the GGUF file has them
                      bf16/          these and model.safetensors
                      */kept.json    the SHA-256 of each file of a folder
    models.lock                      held while one of them is made or removed

A folder gets its name when it is complete; what a stopped conversion leaves has another name, and
the next one deletes it. Where the cache cannot be written, a temporary folder
serves for this process.
"""

import atexit
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longctx.core.common import file_limits
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.common.regular_files import read_json
from longctx.core.common.telemetry import notice, stage
from longctx.core.common.units import show_bytes
from longctx.core.model.gguf.parts import parts
from longctx.core.model.published import Published
from longctx.core.model.weights import WHOLE, cached_models, digest, file_digest, sha256_of

if TYPE_CHECKING:
    from longctx.core.model.gguf.model import GgufModel

_log = logging.getLogger(__name__)

MADE = "merge 1"  # how weights are made of the files; part of a model's identity
FORMATS = ("bf16", "fp16", "fp32")
ABOUT, KEPT, DESCRIPTION = "about.json", "kept.json", "description"
NEW = ".new"  # ends the names of folders that are being made
LOCK = "models.lock"  # beside the folder of all models
LOCK_SECONDS = 3600.0  # a conversion is waited for no longer
_temporary: dict[Path, Path] = {}  # where it would be kept -> where this process has it


@dataclass(frozen=True)
class Converted:
    """A model whose weights are made of other files.

    Attributes:
        name: as documents record it.
        gguf: the GGUF file.
        adapter: what is merged into it, or None.
        published: the model that others publish, whose folder has configuration and tokenizer;
            None: the GGUF file has them.
    """

    name: str
    gguf: Path
    adapter: Path | None = None
    published: Published | None = None

    def sources(self) -> list[Path]:
        """The files that it is made of: all of a model that is split, and an adapter."""
        others = [file for file in parts(self.gguf) if file != self.gguf and file.is_file()]
        return [self.gguf, *others, *([self.adapter] if self.adapter else [])]

    def digest(self, anew: bool = False, on_bytes: Callable = lambda count: None) -> str:
        """SHA-256 over the digests of what it is made of, and how; see `weights.digest`."""
        return digest(self.sources(), anew, on_bytes, MADE)

    def folder(self) -> Path:
        """A folder with its configuration and tokenizer.

        Raises:
            UsageError: the GGUF file cannot be used.
        """
        if self.published is not None:
            return self.published.folder
        return self._made(DESCRIPTION, self._describe) / DESCRIPTION

    def loadable(self, dtype: str) -> Path:
        """A folder in Hugging Face format with its weights in a number format.

        Args:
            dtype: `bf16`, `fp16` or `fp32`.

        Raises:
            UsageError: the files that it is made of cannot be used.
            LongctxError: there is no room for it.
        """
        described = self.folder()  # before the lock is held: it may have to be made as well
        return self._made(dtype, lambda place: self._convert(place, dtype, described)) / dtype

    def about(self) -> dict[str, Any]:
        """What is known of it: `model`, `parameters`, `licence`, `made_of`."""
        made_of = [str(file) for file in self.sources()]
        model = self.published or _opened(self.gguf)
        told = {"parameters": model.parameters, "licence": model.licence}
        return {"model": self.name, **told, "made_of": made_of}

    def num_parameters(self) -> int:
        """The number of its weights, without opening the GGUF file where that was done before."""
        if self.published is not None:
            return self.published.parameters
        known = read_about(self.folder().parent)
        return known["parameters"] if known else _opened(self.gguf).parameters

    def kept(self) -> Path:
        """Where it is kept in the user's cache, whether or not it is."""
        kind = "gguf" if self.published is None else self.name
        return cached_models() / f"{kind}-{self.digest()[:32]}"

    def _made(self, part: str, make: Callable[[Path], None]) -> Path:
        """The folder in which a part is, after it was made if need be."""
        home = _temporary.get(self.kept()) or self.kept()
        if is_whole(home / part):
            self._name_anew(home)
            return home
        try:
            self._make(home, part, make)
        except OSError as error:
            if self.kept() in _temporary:
                raise _no_room(self.name, home, error) from error
            self._use_temporary(error)
            return self._made(part, make)
        return home

    def _make(self, home: Path, part: str, make: Callable[[Path], None]) -> None:
        home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(home.parent):
            if is_whole(home / part):  # another process has just made it
                return
            new = home / (part + NEW)
            shutil.rmtree(new, ignore_errors=True)
            try:
                new.mkdir(parents=True, mode=0o700)
                make(new)
                self._require_unchanged(home)
                sums = {file.name: _synced(file) for file in new.iterdir()}
                write_json(new / KEPT, {"files": sums})
                if read_about(home) is None:
                    write_json(home / ABOUT, self.about())
                shutil.rmtree(home / part, ignore_errors=True)  # one that is damaged
                new.replace(home / part)
            finally:
                shutil.rmtree(new, ignore_errors=True)
                with suppress(OSError):
                    home.rmdir()  # if nothing could be made
            is_whole(home / part)  # reads it again, and remembers that

    def _require_unchanged(self, home: Path) -> None:
        """Refuses what was made while its files changed.

        Raises:
            UsageError: they did.
        """
        if self.kept().name != home.name:
            why = "its file changed while it was read"
            raise UsageError(f"cannot convert model {self.name!r}", why, "Try again.")

    def _name_anew(self, home: Path) -> None:
        """Has `model list` show where the file is now, if it is no longer where it was."""
        told = read_about(home)
        if told is not None and told["model"] != self.name and not Path(told["model"]).is_file():
            named = {"model": self.name, "made_of": [str(file) for file in self.sources()]}
            with suppress(OSError):
                write_json(home / ABOUT, {**told, **named})

    def _use_temporary(self, error: OSError) -> None:
        """Makes a folder for this process alone, and says why."""
        home = self.kept()
        why = f"model {self.name} cannot be kept in '{home}': {error.strerror or error}"
        notice(_log, f"{why}; every run converts it again")
        made = Path(tempfile.mkdtemp(prefix="longctx-model-"))
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        _temporary[home] = made / home.parent.name / home.name

    def _describe(self, place: Path) -> None:
        opened = _opened(self.gguf)
        opened.config.save_pretrained(place)
        opened.save_tokenizer(place)

    def _convert(self, place: Path, dtype: str, described: Path) -> None:
        from longctx.core.common.device import DTYPES
        from longctx.core.model.merge import write

        with stage(_log, "convert_model", f"model {self.name}: converted to {dtype}"):
            tensors = _opened(self.gguf).tensors()
            write(tensors, self.adapter, DTYPES[dtype], place / WHOLE)
        for file in described.iterdir():
            if file.suffix in (".json", ".jinja") and file.name != KEPT:
                shutil.copyfile(file, place / file.name)


def opened_gguf(path: Path) -> Converted:
    """The model in a GGUF file that the user names."""
    path = Path(os.path.abspath(path))  # a link keeps its name: the hub's files are links
    return Converted(str(path), path)


def of_published(model: Published) -> Converted:
    """A model that others publish.

    Raises:
        UsageError: its weights are not on this computer.
    """
    return Converted(model.name, model.require_base().path, model.adapter(), model)


def is_gguf(name: str) -> bool:
    """Whether a model's name is that of a GGUF file; there may be no such file."""
    return name.lower().endswith(".gguf")


def is_whole(folder: Path, anew: bool = False, on_bytes: Callable = lambda count: None) -> bool:
    """Whether a kept folder has what was written; digests are remembered, see `weights.digest`."""
    try:
        sums = read_json(folder / KEPT, file_limits.CONFIG)["files"]
        found = {name: file_digest(folder / name, anew, on_bytes) for name in sums}
        return bool(sums) and found == sums
    except (OSError, ValueError, KeyError, TypeError, LongctxError):
        return False


def read_about(home: Path) -> dict[str, Any] | None:
    """What a kept model was made of; None if that cannot be read."""
    try:
        told = read_json(home / ABOUT, file_limits.CONFIG)
    except (OSError, ValueError):
        return None
    whole = isinstance(told, dict) and isinstance(told.get("model"), str)
    return told if whole and type(told.get("parameters")) is int else None


def kept_folders(home: Path) -> list[Path]:
    """The folders that are kept of a model, one for each number format; the latest last."""
    files = [home / dtype / WHOLE for dtype in FORMATS]
    there = sorted((f for f in files if f.is_file()), key=lambda file: file.stat().st_mtime_ns)
    return [file.parent for file in there]


@contextmanager
def locked(models: Path) -> Iterator[None]:
    """Holds the lock of all models, which ends with its process; others wait.

    Args:
        models: the folder that has them.

    Raises:
        OSError: the lock cannot be made.
        UsageError: another process has held it for an hour.
    """
    from filelock import FileLock, Timeout

    path = models.with_name(LOCK)
    try:
        with FileLock(path, timeout=LOCK_SECONDS, mode=0o600):
            yield
    except NotImplementedError as error:  # a file system without locks
        raise OSError(None, "its file system has no locks", str(path)) from error
    except Timeout as error:
        what = "cannot wait any longer for another process"
        raise UsageError(what, f"it holds '{path}'", "End it, then try again.") from error


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Writes a small file, complete or not at all."""
    new = path.with_name(path.name + NEW)
    new.write_text(json.dumps(values, indent=1) + "\n", "utf-8")
    sync(new)
    new.replace(path)


def sync(path: Path) -> None:
    """Has a file's bytes on the disk before its name is."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _synced(path: Path) -> str:
    """The SHA-256 of a file that is now on the disk."""
    sync(path)
    return sha256_of(path)


def _opened(path: Path) -> "GgufModel":
    from longctx.core.model.gguf.model import open_gguf

    return open_gguf(path)


def _no_room(name: str, home: Path, error: OSError) -> LongctxError:
    why = error.strerror or str(error)
    with suppress(OSError):
        free = shutil.disk_usage(home).free
        why += f": {show_bytes(free)} are free in '{home}'"
    return LongctxError(
        f"cannot convert model {name!r}", why, "Make room there, or name a folder with TMPDIR."
    )
