"""Models to measure: known shapes with random weights, or a real model.

Speed does not depend on what the weights are. Knows nothing of what is measured.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longctx.core import methods
from longctx.core.common.device import choose_device, choose_dtype, limit_memory, set_threads
from longctx.core.common.errors import UsageError
from longctx.core.contracts.method import MethodOptions
from longctx.core.engine.setup import Engine, Setup, prepare
from longctx.core.model.adapter import Decoder
from longctx.core.model.files import Fingerprint, ModelFiles
from longctx.core.model.load import random_decoder
from longctx.core.profile.profile import Profile

SHAPES: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "llama-3.2-1b": {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "mistral-nemo-12b": {
        "model_type": "mistral",
        "vocab_size": 131072,
        "hidden_size": 5120,
        "intermediate_size": 14336,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "sliding_window": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    },
    "tiny": {
        "model_type": "llama",
        "vocab_size": 8192,
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0},
    },
}


@dataclass(frozen=True)
class Wanted:
    """What to measure with.

    Attributes:
        shape: a name of `SHAPES`; not looked at where there is a model.
        model: a real model, as in `Setup`.
        profile: of the real model, as in `Setup`.
        method, kv_dtype: as in `Setup`.
        device, dtype, threads: as in `Setup`.
        gpu_memory: bytes of the GPU's memory to use at most; None: all.
    """

    shape: str = "llama-3.1-8b"
    model: str | None = None
    profile: str | None = None
    method: str = "reform"
    kv_dtype: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None
    gpu_memory: int | None = None


@dataclass(frozen=True)
class RandomFiles(ModelFiles):
    """A model that is in no files."""

    def fingerprint(self) -> Fingerprint:
        """Nobody."""
        return Fingerprint(self.name, "random", "random", "random")


@dataclass
class NoPrompt:
    """A prompt without text, for models without a tokenizer."""

    nothing: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    def prefix(self) -> Tensor:
        """(0,) token ids."""
        return self.nothing


@dataclass
class RandomEngine(Engine):
    """A model of random weights, made when it is first needed."""

    @property
    def decoder(self) -> Decoder:
        """The model."""
        if self._decoder is None:
            self._decoder = random_decoder(self.files.config, self.device, self.dtype)
        return self._decoder


def open_engine(wanted: Wanted) -> Engine:
    """A model ready to run, with the published share of its layers, or as its profile says.

    Raises:
        UsageError: no such shape, model, profile, method, device or dtype, or options that the
            method or the device does not have.
    """
    engine = _real(wanted) if wanted.model is not None else _random(wanted)
    if engine.options.reading.chunk is None:
        raise UsageError(
            f"the method {wanted.method!r} cannot be measured here",
            "it computes nothing while it reads",
            "Use another --method; --baselines measures full attention.",
        )
    if wanted.gpu_memory is not None:
        limit_memory(engine.device, wanted.gpu_memory)
    return engine


def _real(wanted: Wanted) -> Engine:
    return prepare(
        Setup(
            model=wanted.model,
            profile=wanted.profile,
            method=wanted.method,
            kv_dtype=wanted.kv_dtype,
            device=wanted.device,
            dtype=wanted.dtype,
            threads=wanted.threads,
        )
    )


def _random(wanted: Wanted) -> Engine:
    config = config_of(wanted.shape)
    set_threads(wanted.threads)
    device = choose_device(wanted.device)
    return RandomEngine(
        files=RandomFiles(f"{wanted.shape} (random weights)", Path(), config, None),
        profile=Profile(name=wanted.shape),
        method_name=wanted.method,
        options=options_of(config, wanted.method, wanted.kv_dtype),
        device=device,
        dtype=choose_dtype(wanted.dtype, device),
        prompt=NoPrompt(),
        window=config.max_position_embeddings,
    )


def config_of(shape: str) -> Any:
    """The transformers configuration of a shape.

    Raises:
        UsageError: no such shape.
    """
    from transformers import AutoConfig

    if shape not in SHAPES:
        raise UsageError(f"unknown shape {shape!r}", "", f"Known: {', '.join(SHAPES)}.")
    ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    return AutoConfig.for_model(**SHAPES[shape], **ids)


def options_of(config: Any, method: str, kv_dtype: str | None = None) -> MethodOptions:
    """A method's options for a shape.

    Args:
        config: the shape's.
        method: its name.
        kv_dtype: how keys and values are kept; None: as the method does.

    Raises:
        UsageError: no such method, or it cannot choose how keys and values are kept.
    """
    window = config.max_position_embeddings
    options = methods.load(method).Options.measured(config.num_hidden_layers, window)
    if kv_dtype is not None:
        if options.reading.kv_dtype is None:
            raise UsageError(
                f"--kv-dtype is not for the method {method!r}",
                "it cannot choose how keys and values are kept",
                "Leave it out, or use --method reattention.",
            )
        options = options.with_reading(replace(options.reading, kv_dtype=kv_dtype))
    return options.fitted(window)
