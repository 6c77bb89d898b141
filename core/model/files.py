"""A model's files: location, digests, configuration and tokenizer.

A model is `tiny` (bundled), one that others publish (`published.py`), a GGUF file, a local folder,
or a name on the Hugging Face hub. Only the last may access the network. Weights are read from
safetensors and GGUF files alone; the latter are converted (`converted.py`). Knows nothing of
running a model.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.common.foreign import LONGEST, foreign
from longctx.core.common.units import show_bytes
from longctx.core.model import converted, wrong
from longctx.core.model.config_and_tokenizer import (
    CONFIG,
    GENERATION,
    TOKENIZER,
    described,
    require_whole,
)
from longctx.core.model.converted import Converted
from longctx.core.model.folder import require_files
from longctx.core.model.published import PUBLISHED
from longctx.core.model.weights import (
    WHOLE,
    count,
    digest,
    file_digest,
    loaded_files,
    read_object,
    require_file,
    sha256,
    stored_files,
    tensors_of,
)

if TYPE_CHECKING:
    import torch

BUNDLED = "tiny"
HUB_FILES = ["*.json", "*.safetensors", "tokenizer*", "*.jinja"]
# Config fields that say how a file was written, not what the model is.
NOT_IDENTITY = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache")


@dataclass(frozen=True)
class Fingerprint:
    """A model's identity: a state made with one model is never read with another.

    Attributes:
        name: as the user named it; not part of the identity.
        config, tokenizer, weights: SHA-256 hex digests.
    """

    name: str
    config: str
    tokenizer: str
    weights: str

    def as_dict(self) -> dict[str, str]:
        """The fields as a dict, for the manifest."""
        return asdict(self)


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk, not loaded.

    Attributes:
        name: as the user named it (a local folder or file: absolute).
        folder: where its configuration and tokenizer are; `loadable` has its weights.
        config: its configuration, or that of the language model inside it: of transformers, or one
            that `model/plain.py` runs.
        tokenizer: its fast tokenizer.
        made: what its weights are made of; None: the folder has them.
    """

    name: str
    folder: Path
    config: Any
    tokenizer: Any
    made: Converted | None = None

    def loadable(self, dtype: str) -> Path:
        """A folder in Hugging Face format with its weights; a converted model is made if need be.

        Args:
            dtype: the number format in which they will be loaded, as `dtype_name` has it.

        Raises:
            LongctxError: it cannot be converted.
        """
        return self.folder if self.made is None else self.made.loadable(dtype)

    def num_parameters(self) -> int:
        """Number of loaded parameters, counted from the files' headers.

        Raises:
            UsageError: weights are unreadable or missing.
        """
        if self.made is not None:
            return self.made.num_parameters()
        return sum(count(tensors_of(file)) for file in loaded_files(self.folder))

    def eos_ids(self) -> set[int]:
        """Token ids that end an answer: from config, generation config and tokenizer.

        Raises:
            UsageError: the generation config has something else in their place.
        """
        file = self.folder / GENERATION
        named = read_object(file).get("eos_token_id") if file.exists() else None
        given = named if isinstance(named, list) else [named]
        if wrong := [i for i in given if type(i) is not int and i is not None]:
            why = f"eos_token_id is {str(wrong[0])[:80]!a}, which is no token id"
            raise UsageError(f"cannot use {str(file)!r}", why, "Correct it.")
        own = getattr(self.config, "eos_token_id", None)
        ends = [self.tokenizer.eos_token_id, *(own if isinstance(own, list) else [own]), *given]
        return {i for i in ends if i is not None}

    def fingerprint(self) -> Fingerprint:
        """Hashes what identifies the model; weights are hashed in full once and remembered.

        Of a converted model, what it is made of counts, and no file that a library has written:
        with another version of it the digests would be others.
        """
        if self.made is not None:
            return self._fingerprint_of(self.made)
        content = {k: v for k, v in self.config.to_dict().items() if k not in NOT_IDENTITY}
        return Fingerprint(
            name=self.name,
            config=sha256(json.dumps(content, sort_keys=True, default=str).encode()),
            tokenizer=sha256(self.tokenizer.backend_tokenizer.to_str().encode()),
            weights=digest(stored_files(self.folder)),
        )

    def _fingerprint_of(self, made: Converted) -> Fingerprint:
        weights = made.digest()
        if made.published is None:  # the GGUF file has all of it
            return Fingerprint(
                name=self.name,
                config=sha256(f"config of {weights}".encode()),
                tokenizer=sha256(f"tokenizer of {weights}".encode()),
                weights=weights,
            )
        stated = read_object(self.folder / CONFIG)
        own = {key: value for key, value in stated.items() if key not in NOT_IDENTITY}
        return Fingerprint(
            name=self.name,
            config=sha256(json.dumps(own, sort_keys=True).encode()),
            tokenizer=file_digest(self.folder / TOKENIZER),
            weights=weights,
        )


def open_model_files(name: str) -> ModelFiles:
    """Finds a model's files and reads its configuration and tokenizer.

    Args:
        name: `tiny`, a GGUF file, a folder, or a hub name ("owner/model").

    Raises:
        UsageError: no such model, no weights that can be read, or no fast tokenizer.
    """
    made = _made(name)
    folder = _folder(name) if made is None else made.folder()
    with foreign(f"cannot read the folder {str(folder)!r}", "Name another folder."):
        require_files(folder, name)
    require_whole(folder, weights=made is None)
    config, tokenizer = described(folder, name)
    named = str(folder) if made is None and Path(name).is_dir() else name
    files = ModelFiles(made.name if made else named, folder, config, tokenizer, made)
    files.eos_ids()  # else an answer would be refused only after everything was read
    return files


def _folder(name: str) -> Path:
    if name == BUNDLED:
        return Path(str(resources.files("longctx.profiles") / BUNDLED))
    with foreign(f"no model {name[:LONGEST]!r}", wrong.BUNDLED):
        if Path(name).is_dir():
            return Path(name).resolve()
    if name.count("/") != 1 or name.startswith((".", "/", "~")) or Path(name).is_file():
        raise wrong.name(name)
    return _from_hub(name)


def _made(name: str) -> Converted | None:
    """What a model's weights are made of, if they are.

    Raises:
        UsageError: its weights are not here, or there is no such GGUF file.
    """
    if name in PUBLISHED:
        return converted.of_published(PUBLISHED[name])
    if not converted.is_gguf(name) or Path(name).is_dir():
        return None
    if not Path(name).exists():
        raise UsageError(f"no model {name!r}", "there is no such file", "Check the path.")
    return converted.opened_gguf(require_file(Path(name)))


def local_weights(name: str) -> list[Path]:
    """The files that a model's weights are, or are made of; for `weights_digest`.

    Args:
        name: `tiny`, a GGUF file, a folder, or a hub name ("owner/model").

    Returns:
        Those on this machine; none if it is not here or the name is invalid.
    """
    try:
        if made := _made(name):
            return made.sources()
        if name == BUNDLED or Path(name).is_dir():
            return stored_files(_folder(name))
        folder = _downloaded(name) if name.count("/") == 1 else None
        return stored_files(folder) if folder else []
    except (OSError, ValueError, UsageError):  # an invalid folder name, or an unknown model name
        return []


def weights_to_load(name: str) -> list[Path]:
    """The files that will be read when a model is loaded, as far as that is known.

    A converted model is loaded from what is kept of it, in the number format that was made last.
    """
    folders = kept_folders(name)
    return local_weights(name) if folders is None else [folder / WHOLE for folder in folders[-1:]]


def kept_folders(name: str) -> list[Path] | None:
    """The folders that are kept of a converted model, the latest last; None for any other."""
    try:
        made = _made(name)
        return None if made is None else converted.kept_folders(made.kept())
    except (OSError, ValueError, LongctxError):
        return None


def weights_digest(
    name: str, files: list[Path], on_bytes: Callable[[int], None] = lambda count: None
) -> str:
    """The digest of a model's weights, as a fingerprint has it, after reading all of them anew.

    Args:
        name: the model's.
        files: from `local_weights`.
        on_bytes: receives the number of bytes read, after every block.

    Raises:
        UsageError: a file cannot be read.
    """
    return digest(files, True, on_bytes, converted.MADE if _made(name) else "")


def _downloaded(name: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError):
        return None


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
    )

    if folder := _downloaded(name):
        return folder
    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except HFValidationError as error:
        raise UsageError(
            f"no model {name!r}",
            "it is neither a folder nor a name that the hub allows (owner/model)",
            wrong.BUNDLED,
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise wrong.hub(name, error) from error


def require_fit(files: ModelFiles, device: str, dtype: "torch.dtype", free: int | None) -> None:
    """Refuses a model whose weights do not fit, before anything is loaded.

    Args:
        files: the model.
        device, dtype: device and precision to load it in.
        free: bytes free there; None if unknown: nothing is refused.

    Raises:
        LongctxError: states the bytes needed and the bytes free.
    """
    needed = files.num_parameters() * dtype.itemsize
    if free is not None and needed > free:
        raise LongctxError(
            f"model {files.name!r} does not fit on {device}",
            f"its weights need {show_bytes(needed)} in {dtype}, {show_bytes(free)} are free",
            "Use a smaller model, --dtype bf16, or another --device.",
        )
