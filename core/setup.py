"""From the names a user gives to a model ready to run, with its profile, method and device."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch

from longctx.core import methods, profile
from longctx.core.chat import resolve
from longctx.core.device import (
    choose_device,
    choose_dtype,
    dtype_name,
    free_memory,
    is_out_of_memory,
    peak_memory,
    set_threads,
)
from longctx.core.errors import LongctxError, UsageError
from longctx.core.load import load_decoder
from longctx.core.memory import Method, Snapshot
from longctx.core.model import Decoder
from longctx.core.model_files import BUNDLED, ModelFiles, cached_json, open_model_files, require_fit
from longctx.core.profile import Profile
from longctx.core.prompt import PromptEncoder
from longctx.core.store.manifest import Manifest
from longctx.kernels import door


@dataclass(frozen=True)
class Setup:
    """What a user may choose about the model; every field has a flag of its name.

    Attributes:
        model: `tiny`, a folder, or a hub name; None: the bundled model, or the document's own.
        profile: a profile's name or YAML file; None: the one made for the model.
        method: reading method; None: the profile's.
        device: auto, cpu, mps, cuda or cuda:N.
        dtype: auto, bf16, fp16 or fp32.
        threads: CPU threads; None: PyTorch's choice.
    """

    model: str | None = None
    profile: str | None = None
    method: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None


@dataclass(frozen=True)
class Recorded:
    """What a document's manifest says of how it was read.

    Attributes:
        model: the model's name.
        profile: the profile's fields.
        method, options: the reading method and its options; they cannot be chosen anew.
    """

    model: str | None = None
    profile: dict[str, Any] | None = None
    method: str | None = None
    options: dict[str, Any] | None = None


@dataclass
class Engine:
    """A chosen model with all that belongs to it; the weights are loaded when first needed.

    Attributes:
        files: the model's files.
        profile: its profile, with the prompt as text, wherever that came from.
        method_name: the reading method.
        options: that method's options.
        device, dtype: where and in what to compute.
        prompt: encodes prefix and question.
        window: tokens that the model was trained on.
    """

    files: ModelFiles
    profile: Profile
    method_name: str
    options: Any
    device: str
    dtype: torch.dtype
    prompt: PromptEncoder
    window: int
    _decoder: Decoder | None = field(default=None, repr=False)

    @property
    def decoder(self) -> Decoder:
        """The loaded model.

        Raises:
            LongctxError: it does not fit, or does not run exactly.
        """
        if self._decoder is None:
            require_fit(self.files, self.device, self.dtype, free_memory(self.device))
            self._decoder = load_decoder(
                str(self.files.folder),
                self.files.config,
                self.device,
                self.dtype,
                cached_json("self-checks.json"),
            )
        return self._decoder

    def new_method(self, snapshot: Snapshot | None = None) -> Method:
        """A memory of the chosen method, fresh or as a snapshot left it.

        Args:
            snapshot: tensors on the CPU, in the dtype in which they were computed.
        """
        method = methods.load(self.method_name).Method(self.options, self.decoder.layers)
        if snapshot is not None:
            method.restore({name: self._placed(tensor) for name, tensor in snapshot.items()})
        return method

    def _placed(self, tensor: torch.Tensor) -> torch.Tensor:
        dtype = self.dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.to(self.device, dtype)

    def recorded(self) -> dict[str, str]:
        """How this engine computes; told in the manifest, not part of the model's identity."""
        import transformers

        return {
            "device": self.device,
            "dtype": dtype_name(self.dtype),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }


def recorded(manifest: Manifest) -> Recorded:
    """What a document says of how it was read."""
    return Recorded(manifest.model["name"], manifest.profile, manifest.method, manifest.options)


@contextmanager
def memory_told(engine: Engine, remedy: str) -> Iterator[None]:
    """Turns running out of memory into an error with the figures.

    Args:
        engine: what runs inside.
        remedy: what to do about it, beside another dtype, model or device.

    Raises:
        LongctxError: the device has no more memory.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch's own errors are RuntimeErrors
        if not is_out_of_memory(error):
            raise
        weights = engine.files.num_parameters() * engine.dtype.itemsize
        peak, free = peak_memory(engine.device) or 0, free_memory(engine.device) or 0
        raise LongctxError(
            f"out of memory on {engine.device}",
            f"the model's weights take {weights / 1e9:.2f} GB in {dtype_name(engine.dtype)}, this "
            f"process held up to {peak / 1e9:.2f} GB, and {free / 1e9:.2f} GB are free",
            f"{remedy} Or use --dtype bf16, a smaller model, or another --device.",
        ) from error


def prepare(setup: Setup, recorded: Recorded | None = None) -> Engine:
    """Finds everything that a setup names; loads no weights.

    Args:
        setup: the user's choices.
        recorded: what a document says it was read with; it stands where the user chose nothing.

    Raises:
        UsageError: a name that does not exist, an option that does not fit the method, a chat
            template that gives no prompt, or a value of LONGCTX_KERNELS that asks for what there
            is not.
    """
    recorded = recorded or Recorded()
    name = setup.model or recorded.model or BUNDLED
    device = choose_device(setup.device)
    dtype = choose_dtype(setup.dtype, device)
    _require_kernels(device)
    set_threads(setup.threads)
    files = open_model_files(name)
    if recorded.profile is not None and setup.profile is None:
        chosen = profile.parse(recorded.profile, "the document's profile")
    else:
        chosen = _choose_profile(setup, name)
    chosen = replace(chosen, prompt=resolve(chosen.prompt, files.tokenizer))
    method = recorded.method or setup.method or chosen.method
    module = methods.load(method)
    values = chosen.methods.get(method, {}) if recorded.options is None else recorded.options
    return Engine(
        files=files,
        profile=chosen,
        method_name=method,
        options=profile.build(module.Options, values, f"options of method {method!r}"),
        device=device,
        dtype=dtype,
        prompt=PromptEncoder(chosen.prompt, files.tokenizer),
        window=chosen.window or files.config.max_position_embeddings,
    )


def _require_kernels(device: str) -> None:
    try:
        door.require(device)
    except door.CannotChoose as error:
        raise UsageError(*error.args) from error


def _choose_profile(setup: Setup, model: str) -> Profile:
    """The profile that is named or made for the model, or an empty one where nothing needs it."""
    if setup.profile is None and setup.method and profile.made_for(model) is None:
        options = fields(methods.load(setup.method).Options)
        if not any(f.default is MISSING and f.default_factory is MISSING for f in options):
            return Profile(Path(model).name)
    return profile.find(setup.profile, model)
