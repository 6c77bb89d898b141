"""A model's files: where they are, who they are, what they weigh, their tokenizer.

A model is named `tiny` (bundled), by a local folder, or by its name on the Hugging Face hub. Only
the last may reach the network, and only safetensors weights are ever read. Knows nothing of
running it.
"""

import hashlib
import json
import struct
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longctx.core import file_limits
from longctx.core.architectures import language_model
from longctx.core.errors import LongctxError, UsageError
from longctx.core.model_folder import require_files, require_header
from longctx.core.outputs import Output
from longctx.core.regular_files import open_regular, parsed_json, read_json

if TYPE_CHECKING:
    import torch

BUNDLED = "tiny"
HUB_FILES = ["*.json", "*.safetensors", "tokenizer*", "*.jinja"]
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
# Nothing that comes with a model is run, and nobody is asked whether it may be.
OWN_CODE = {"local_files_only": True, "trust_remote_code": False}
# Fields of a config that say how a file was written, not what the model is.
NOT_IDENTITY = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache")


@dataclass(frozen=True)
class Fingerprint:
    """Who a model is: a state made with one is never read with another.

    Attributes:
        name: as the user named it; not part of the identity.
        config, tokenizer, weights: SHA-256 hex digests.
    """

    name: str
    config: str
    tokenizer: str
    weights: str

    def as_dict(self) -> dict[str, str]:
        """The fields as a plain mapping, for the manifest."""
        return asdict(self)


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk, not loaded.

    Attributes:
        name: as the user named it (a local folder: absolute).
        folder: where its files are.
        config: the transformers configuration of it, or of the language model inside it.
        tokenizer: its fast tokenizer.
    """

    name: str
    folder: Path
    config: Any
    tokenizer: Any

    @property
    def weight_files(self) -> list[Path]:
        """The safetensors files, in name order."""
        return sorted(self.folder.glob("*.safetensors"))

    def num_parameters(self) -> int:
        """Parameters stored, counted from the files' headers."""
        return sum(_count(file) for file in self.weight_files)

    def eos_ids(self) -> set[int]:
        """Token ids that end an answer: the configuration's, the generation's, the tokenizer's."""
        file = self.folder / "generation_config.json"
        values = read_json(file, file_limits.CONFIG) if file.exists() else {}
        ends = [self.tokenizer.eos_token_id]
        for named in (getattr(self.config, "eos_token_id", None), values.get("eos_token_id")):
            ends += named if isinstance(named, list) else [named]
        return {i for i in ends if i is not None}

    def fingerprint(self) -> Fingerprint:
        """Hashes what makes the model; weights are hashed in full once and remembered."""
        content = {k: v for k, v in self.config.to_dict().items() if k not in NOT_IDENTITY}
        return Fingerprint(
            name=self.name,
            config=_sha256(json.dumps(content, sort_keys=True, default=str).encode()),
            tokenizer=_sha256(self.tokenizer.backend_tokenizer.to_str().encode()),
            weights=_weights_digest(self.weight_files),
        )


def open_model_files(name: str) -> ModelFiles:
    """Finds a model's files and reads its configuration and tokenizer.

    Args:
        name: `tiny`, a folder, or a hub name ("owner/model").

    Raises:
        UsageError: no such model, no safetensors weights, or no fast tokenizer.
    """
    from transformers import AutoConfig, AutoTokenizer

    folder = _folder(name)
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"no model in {str(folder)!r}",
            "it has no config.json",
            "Name a folder in Hugging Face format.",
        )
    if not list(folder.glob("*.safetensors")):
        raise UsageError(
            f"cannot use model {name!r}",
            "it has no safetensors weights, and other formats can run code when they are opened",
            "Convert it to safetensors first.",
        )
    try:
        require_files(folder, name)
        config = language_model(AutoConfig.from_pretrained(folder, **OWN_CODE))
        tokenizer = AutoTokenizer.from_pretrained(folder, **OWN_CODE)
    except (OSError, ValueError, KeyError) as error:
        needs_code = "trust_remote_code" in str(error)
        why = "it needs code of its own, which is never run" if needs_code else _first_line(error)
        raise UsageError(f"cannot read model {name!r}", why) from error
    if not tokenizer.is_fast:
        raise UsageError(
            f"cannot use the tokenizer of model {name!r}",
            "it has no fast version, so its tokens have no offsets in the text",
            "Save it with a tokenizer.json first.",
        )
    named = str(folder) if Path(name).is_dir() else name
    return ModelFiles(named, folder, config, tokenizer)


def _folder(name: str) -> Path:
    if name == BUNDLED:
        return Path(str(resources.files("longctx.profiles") / BUNDLED))
    if Path(name).is_dir():
        return Path(name).resolve()
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise UsageError(
            f"no model {name!r}",
            "it is neither a folder nor a hub name (owner/model)",
            f"Use {BUNDLED!r} for the bundled model.",
        )
    return _from_hub(name)


def local_weights(name: str) -> list[Path]:
    """The weight files of a model that is on this machine; none where it is not, or no such name.

    Args:
        name: `tiny`, a folder, or a hub name ("owner/model").
    """
    if name == BUNDLED or Path(name).is_dir():
        folder = _folder(name)
    else:
        folder = _downloaded(name) if name.count("/") == 1 else None
    return sorted(folder.glob("*.safetensors")) if folder else []


def _downloaded(name: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError):
        return None


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    if folder := _downloaded(name):
        return folder
    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise UsageError(
            f"cannot get model {name!r} from the hub",
            _first_line(error),
            "Check the name and the network, or name a local folder.",
        ) from error


def require_fit(files: ModelFiles, device: str, dtype: "torch.dtype", free: int | None) -> None:
    """Refuses a model whose weights do not fit, before anything is loaded.

    Args:
        files: the model.
        device, dtype: where and in what it would be loaded.
        free: bytes free there; None: unknown, nothing is refused.

    Raises:
        LongctxError: with the figure needed and the figure free.
    """
    needed = files.num_parameters() * dtype.itemsize
    if free is not None and needed > free:
        raise LongctxError(
            f"model {files.name!r} does not fit on {device}",
            f"its weights need {needed / 1e9:.2f} GB in {dtype}, {free / 1e9:.2f} GB are free",
            "Use a smaller model, --dtype bf16, or another --device.",
        )


def cached_json(name: str) -> "JsonCache":
    """A small mapping remembered between runs in the user's cache folder."""
    from platformdirs import user_cache_path

    return JsonCache(user_cache_path("longctx") / name)


class JsonCache(dict):
    """A mapping kept in a JSON file; losing it costs only time, so write errors are ignored."""

    def __init__(self, path: Path):
        self._path = path
        try:
            super().__init__(read_json(path, file_limits.CACHE))
        except (OSError, ValueError, TypeError):
            super().__init__()

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            Output(self._path).write(json.dumps(self))
        except (OSError, LongctxError):
            return


def _weights_digest(paths: list[Path]) -> str:
    """SHA-256 over the files' own digests, each remembered by path, size, mtime and inode."""
    known = cached_json("weights.json")
    digests = []
    for file in paths:
        stat = file.stat()
        key = f"{file}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}"
        if key not in known:
            with open_regular(file) as stream:
                known[key] = hashlib.file_digest(stream, "sha256").hexdigest()
        digests.append(known[key])
    return _sha256("".join(digests).encode())


def _count(file: Path) -> int:
    with open_regular(file) as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        require_header(file, length)
        header = parsed_json(stream.read(length))
    return sum(_weights(key, value) for key, value in header.items() if key != "__metadata__")


def _weights(name: str, tensor: dict[str, Any]) -> int:
    """Weights in a stored tensor; mxfp4 packs two in a byte, with scales beside them."""
    start, end = tensor["data_offsets"]
    if tensor["dtype"] == "U8" and name.endswith(("_blocks", "_scales")):
        return 2 * (end - start) if name.endswith("_blocks") else 0
    return (end - start) // ITEM_SIZE.get(tensor["dtype"], 1)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
