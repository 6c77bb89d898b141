"""Models to measure with: shapes of known models, filled with random weights, or a real model.

Speed does not depend on what the weights are. Knows nothing of what is measured.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longctx.core import methods
from longctx.core.device import choose_device, choose_dtype, set_threads
from longctx.core.errors import UsageError
from longctx.core.load import random_decoder
from longctx.core.model_files import Fingerprint, ModelFiles
from longctx.core.profile import Profile
from longctx.core.setup import Engine, Setup, prepare

SHARE = 0.7  # of the layers are run while reading: 22 of 32, as with the heads that were published
SIZES = ((8192, 8192),)  # chunk and budget
METHOD = "reform"
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
        device, dtype, threads: as in `Setup`.
    """

    shape: str = "llama-3.1-8b"
    model: str | None = None
    profile: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None


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


def open_engine(wanted: Wanted) -> Engine:
    """A model ready to run, with the published share of its layers, or as its profile says.

    Raises:
        UsageError: no such shape, model, profile, device or dtype.
    """
    if wanted.model is not None:
        setup = Setup(
            wanted.model, wanted.profile, METHOD, wanted.device, wanted.dtype, wanted.threads
        )
        return prepare(setup)
    config = config_of(wanted.shape)
    set_threads(wanted.threads)
    device = choose_device(wanted.device)
    dtype = choose_dtype(wanted.dtype, device)
    name = f"{wanted.shape} (random weights)"
    return Engine(
        files=RandomFiles(name, Path(), config, None),
        profile=Profile(name=wanted.shape),
        method_name=METHOD,
        options=options_of(config, *SIZES[0]),
        device=device,
        dtype=dtype,
        prompt=NoPrompt(),
        window=config.max_position_embeddings,
        _decoder=random_decoder(config, device, dtype),
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


def options_of(config: Any, chunk: int, budget: int) -> Any:
    """REFORM's options for a shape: four heads, of which the highest decide how deep is read."""
    depth = max(2, round(SHARE * config.num_hidden_layers))
    heads = ((depth // 2, "q", 0), (depth - 1, "q", 0), (depth - 1, "k", 0), (depth - 1, "v", 0))
    return sized(methods.load(METHOD).Options(heads=heads, gather=8192), chunk, budget)


def sized(options: Any, chunk: int, budget: int) -> Any:
    """The same options with another chunk and budget; ends that do not fit are made shorter."""
    ends = {name: min(getattr(options, name), budget // 4) for name in ("first", "last")}
    queries = min(options.queries, chunk)
    return replace(options, chunk=chunk, budget=budget, queries=queries, **ends)
