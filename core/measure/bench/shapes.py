"""Models to measure: known shapes with random weights, or a real model.

Speed does not depend on what the weights are. Knows nothing of what is measured.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longctx.core import methods
from longctx.core.common import libraries
from longctx.core.common.device import choose_device, choose_dtype, limit_memory, set_threads
from longctx.core.common.errors import UsageError
from longctx.core.contracts.method import MethodOptions
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import Engine, prepare
from longctx.core.model import narrow
from longctx.core.model.adapter import Decoder
from longctx.core.model.files import Fingerprint, ModelFiles
from longctx.core.model.load import random_decoder
from longctx.core.profile.profile import Profile
from longctx.core.profile.prompt import PromptEncoder

LLAMA_8B: dict[str, Any] = {
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
}
SHAPES: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": LLAMA_8B,
    "llama-3.2-1b": {
        **LLAMA_8B,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "head_dim": 64,
        "tie_word_embeddings": True,
        "rope_parameters": {**LLAMA_8B["rope_parameters"], "factor": 32.0},
    },
    "mistral-nemo-12b": {
        **LLAMA_8B,
        "model_type": "mistral",
        "vocab_size": 131072,
        "hidden_size": 5120,
        "num_hidden_layers": 40,
        "sliding_window": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    },
    "gemma-2-9b": {
        "model_type": "gemma2",
        "vocab_size": 256000,
        "hidden_size": 3584,
        "intermediate_size": 14336,
        "num_hidden_layers": 42,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "max_position_embeddings": 8192,
        "sliding_window": 4096,
        "query_pre_attn_scalar": 256,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss",
        "vocab_size": 201088,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 24,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "max_position_embeddings": 131072,
        "sliding_window": 128,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe",
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
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
class Wanted(Setup):
    """What to measure with: the fields of `Setup`, where a shape may stand in for a model.

    Attributes:
        shape: a name of `SHAPES`; ignored where `model` is given.
        gpu_memory: limit in bytes on the GPU memory used; None: no limit.
        runs: how often each thing is measured.
    """

    method: str = "reform"
    shape: str = "llama-3.1-8b"
    gpu_memory: int | None = None
    runs: int = 1


@dataclass(frozen=True)
class RandomFiles(ModelFiles):
    """A model without files."""

    def fingerprint(self) -> Fingerprint:
        """A name, and no digests."""
        return Fingerprint(self.name, "random", "random", "random")


class NoPrompt(PromptEncoder):
    """A prompt without text, for models without a tokenizer."""

    def __init__(self):
        pass

    def prefix(self) -> Tensor:
        """(0,) token ids."""
        return torch.zeros(0, dtype=torch.long)

    def text(self, template: str) -> Tensor:
        """(0,) token ids, whatever the text is."""
        return self.prefix()


@dataclass
class RandomEngine(Engine):
    """A model with random weights, made when first needed."""

    @property
    def decoder(self) -> Decoder:
        """The model."""
        if self._decoder is None:
            self._decoder = random_decoder(self.files.config, self.device, self.dtype)
        return self._decoder


def open_engine(wanted: Wanted) -> Engine:
    """A model ready to run: of random weights with the published options, or with its profile.

    Raises:
        UsageError: no such shape, model, profile, method, device or dtype, or options that the
            method or the device does not have.
    """
    engine = _random(wanted) if wanted.model is None else prepare(wanted)
    if engine.options.reading.chunk is None:
        raise UsageError(
            f"the method {wanted.method!r} cannot be measured here",
            "it computes nothing while it reads",
            "Use another --method; --baselines measures full attention.",
        )
    if wanted.gpu_memory is not None:
        limit_memory(engine.device, wanted.gpu_memory)
    return engine


def _random(wanted: Wanted) -> Engine:
    config = config_of(wanted.shape)
    set_threads(wanted.threads)
    device = choose_device(wanted.device)
    dtype = choose_dtype(wanted.dtype, device)
    return RandomEngine(
        files=RandomFiles(f"{wanted.shape} (random weights)", Path(), config, None),
        profile=Profile(name=wanted.shape),
        method_name=wanted.method,
        options=options_of(config, wanted.method, wanted.kv_dtype),
        device=device,
        dtype=dtype,
        precision=narrow.chosen(wanted.precision, device, dtype, False),
        prompt=NoPrompt(),
        window=config.max_position_embeddings,
    )


def config_of(shape: str) -> Any:
    """The transformers configuration of a shape.

    Raises:
        UsageError: no such shape.
    """
    if shape not in SHAPES:
        raise UsageError(f"unknown shape {shape!r}", "", f"Known: {', '.join(SHAPES)}.")
    no_ids: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    return libraries.transformers().AutoConfig.for_model(**SHAPES[shape], **no_ids)


def options_of(config: Any, method: str, kv_dtype: str | None = None) -> MethodOptions:
    """A method's options for the configuration of a shape.

    Args:
        config: as of `config_of`.
        method: its name.
        kv_dtype: number format of stored keys and values; None: the method's own.

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
