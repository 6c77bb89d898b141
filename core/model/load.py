"""Loads a model and self-checks it: over a memory it must give the same results as by itself.

The check compares small float32 copies of the model's own layers, once per configuration, pair of
versions and kind of device. A model that fails is refused: it is never run wrongly.
"""

import copy
import hashlib
import logging
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longctx.core.common import libraries
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.common.foreign import REMEDY, foreign
from longctx.core.common.telemetry import stage
from longctx.core.model.adapter import (
    ATTENTION,
    Decoder,
    Layer,
    as_transformers,
    layers_of,
    register,
)
from longctx.core.model.architectures import Adapter, Module, adapter_of
from longctx.core.model.known import versions
from longctx.core.model.plain import load_plain
from longctx.core.model.plain_config import PlainConfig
from longctx.core.model.running import run
from longctx.core.model.weights import loaded_files, tensors_of

_log = logging.getLogger(__name__)

CHECK_TOKENS, CHECK_SPAN, CHECK_TOLERANCE = 96, 32, 1e-4
ORIGINAL = "original_max_position_embeddings"


def load_decoder(
    folder: str,
    config: Any,
    device: str,
    dtype: torch.dtype,
    check_cache: MutableMapping[str, bool],
) -> Decoder:
    """Loads a model from a local folder and checks that it runs as transformers runs it.

    Args:
        folder: a folder in Hugging Face format with safetensors weights.
        config: its configuration.
        device, dtype: device and precision to compute with.
        check_cache: remembers passed checks by `check_key`; the caller owns it.

    Raises:
        UsageError: the architecture has no adapter row, or weights are missing.
        LongctxError: position-free attention does not reproduce the model's own result.
    """
    row, model = adapter_of(config), None
    _require_layers(folder, config)
    if isinstance(config, PlainConfig):
        with foreign(f"cannot load the model in {folder!r}"):
            model = load_plain(folder, config, dtype)
        config = config if model else config.full()
    if model is None:
        model = _from_transformers(folder, config, row, dtype)
    decoder = Decoder(model.to(device), check_cache)
    key = check_key(config, device)
    if check_cache.get(key):
        _log.debug("self-check: passed before, with this configuration and these versions")
    else:
        with stage(_log, "self_check", "self-check: this model is run exactly"):
            self_check(model)
        check_cache[key] = True
    return decoder


def _from_transformers(folder: str, config: Any, row: Adapter, dtype: torch.dtype) -> Module:
    """A model as transformers loads it.

    Raises:
        UsageError: its files cannot be used, or weights are missing.
    """
    register()
    with foreign(f"cannot load the model in {folder!r}"):
        loading: Any = libraries.transformers().AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation=ATTENTION,
            use_safetensors=True,
            local_files_only=True,
            key_mapping=dict(row.renamed),
            output_loading_info=True,
            **_unpacked(config),
        )
    model, loaded = loading  # with `output_loading_info`
    _require_whole(folder, loaded["missing_keys"])
    for weight in model.parameters():
        # Unpacked weights may be bfloat16; what a model keeps in float32 stays.
        if weight.dtype not in (dtype, torch.float32):
            weight.data = weight.data.to(dtype)
    return model


def _unpacked(config: Any) -> dict[str, Any]:
    """Has mxfp4 weights, as in GPT-OSS, unpacked: packed ones need other libraries."""
    stored = getattr(config, "quantization_config", None) or {}
    packed = stored.get("quant_method") == "mxfp4"
    if not packed:
        return {}
    from transformers.utils.quantization_config import Mxfp4Config

    return {"quantization_config": Mxfp4Config(dequantize=True)}


def _require_layers(folder: str, config: Any) -> None:
    """Refuses a config with more layers than the files have tensors, before any is created."""
    tensors = sum(len(tensors_of(file)) for file in loaded_files(Path(folder)))
    if config.num_hidden_layers > tensors:
        raise UsageError(
            f"the model in {folder!r} is not whole",
            f"its config.json says {config.num_hidden_layers:,} layers, and its files have "
            f"{tensors:,} tensors",
            REMEDY,
        )


def _require_whole(folder: str, missing: set[str]) -> None:
    """Refuses missing weights: transformers would fill them with random values."""
    if missing:
        raise UsageError(
            f"the model in {folder!r} is not whole",
            f"its files lack {len(missing)} tensors, among them {min(missing)}",
            "Fetch it again, or name the folder of the whole model.",
        )


class _WholeWindow:
    """Plain causal attention at positions 0..T-1, as the model itself does."""

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        T = q.shape[1]
        q, k = (layer.rotate(x, slice(0, T), T) for x in (q, k))
        return layer.attention(q, k, v)


def check_key(config: Any, device: str | torch.device) -> str:
    """A key of everything that the result of a self-check depends on."""
    content = config.to_json_string(use_diff=False)
    digest = hashlib.sha256(content.encode()).hexdigest()[:24]
    kind = str(device).split(":")[0]
    return f"{digest}-{versions()}-{torch.__version__}-{kind}"


@torch.inference_mode()
def self_check(model: Module) -> None:
    """Compares position-free attention with the model's own, on small float32 copies of its layers.

    It uses two layers of each type, with windows and original context scaled down so that 96
    tokens exceed them.

    Raises:
        LongctxError: they differ by more than 1e-4 of the largest hidden state.
        UsageError: the weights are quantized and cannot be copied.
    """
    small = _small_copy(model)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, model.config.vocab_size, (CHECK_TOKENS,), generator=generator)
    table = model.get_input_embeddings().weight
    states = table[rows.to(table.device)].float()[None]
    theirs = as_transformers(small)
    theirs.set_attn_implementation("eager")
    own = theirs(inputs_embeds=states, use_cache=False).last_hidden_state[0]
    small.set_attn_implementation(ATTENTION)
    layers = layers_of(small, adapter_of(model.config))
    ours = run(small, layers, _WholeWindow(), None, inputs_embeds=states)
    difference = float((ours - own).abs().max())
    # `not <=` so that NaN is refused too
    if not difference <= CHECK_TOLERANCE * max(1.0, float(own.abs().max())):
        raise LongctxError(
            f"cannot run this {model.config.model_type} model exactly",
            f"its hidden states differ by {difference:.2g} from those of transformers",
            "The adapter does not fit it, or not this version of transformers; please report it.",
        )


def _small_copy(model: Module) -> Module:
    """A float32 copy of two layers of each type, with windows that 96 tokens exceed."""
    base = model.base_model
    types = _types(base)
    chosen = [i for i, kind in enumerate(types) if types[:i].count(kind) < 2]
    small = type(base)(_small_config(base, chosen)).to(base.device, torch.float32)
    layer_of = {f"layers.{j}.": f"layers.{i}." for j, i in enumerate(chosen)}
    source = base.state_dict()
    for name, target in small.state_dict().items():
        prefix = ".".join(name.split(".", 2)[:2]) + "."
        origin = name.replace(prefix, layer_of.get(prefix, prefix), 1)
        if origin not in source:
            raise _other_form(origin)
        target.copy_(source[origin][: len(target)])  # fewer tokens and experts, everything else
    return small.eval()


def _other_form(name: str) -> UsageError:
    return UsageError(
        "cannot check that this model runs exactly",
        f"it has no tensor {name}: its weights are kept in another form, such as a quantized one",
        "Name the same model in bf16, fp16 or fp32.",
    )


def _types(base: Module) -> list[tuple]:
    """The type of each layer of a decoder, from its configuration and its row."""
    layers = layers_of(base, adapter_of(base.config))
    named = getattr(base.config, "layer_types", None) or [None] * len(layers)
    return [
        (kind, layer.window, id(layer.rope), _has_experts(base.layers[layer.index]))
        for kind, layer in zip(named, layers, strict=True)
    ]


def _has_experts(layer: Module) -> bool:
    return any(name.endswith(".experts") for name, _ in layer.named_modules())


def _small_config(base: Module, chosen: list[int]) -> Any:
    config, small = base.config, copy.deepcopy(base.config)
    small.num_hidden_layers = len(chosen)
    small.vocab_size, small.pad_token_id = 8, None
    for name in ("layer_types", "no_rope_layers"):
        if getattr(config, name, None):
            setattr(small, name, [getattr(config, name)[i] for i in chosen])
    if getattr(config, "sliding_window", None):
        small.sliding_window = CHECK_SPAN
    if hasattr(config, "num_experts"):
        small.num_experts = config.num_experts_per_tok
        small.decoder_sparse_step = 1
        dense = [j for j, i in enumerate(chosen) if not _has_experts(base.layers[i])]
        small.mlp_only_layers = dense
    return _with_short_ropes(small)


def _with_short_ropes(small: Any) -> Any:
    """Makes rotary embeddings exceed their original context in 96 tokens, by the same factor."""
    nested = [rope for rope in small.rope_parameters.values() if isinstance(rope, dict)]
    ropes = [rope for rope in nested or [small.rope_parameters] if rope.get(ORIGINAL)]
    longest = max([1.0, *(small.max_position_embeddings / rope[ORIGINAL] for rope in ropes)])
    for rope in ropes:
        rope[ORIGINAL] = CHECK_SPAN
    small.max_position_embeddings = int(CHECK_SPAN * longest)
    return small


def random_decoder(config: Any, device: str, dtype: torch.dtype) -> Decoder:
    """A model with random weights, created on its device; for measuring, so it is not checked.

    Args:
        config: a transformers configuration.
        device, dtype: device and precision to compute with.

    Raises:
        UsageError: the architecture has no adapter row.
    """
    adapter_of(config)
    register()
    config = config.full() if isinstance(config, PlainConfig) else config
    whole = libraries.transformers().AutoModelForCausalLM
    with torch.device("meta"):
        model = whole.from_config(config, dtype=dtype, attn_implementation=ATTENTION)
    model.to_empty(device=device)
    model.tie_weights()
    base = model.base_model
    with torch.device(device):  # its frequencies are not weights: compute them again
        base.rotary_emb = type(base.rotary_emb)(base.config)
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.fill_(1.0)
            else:
                weight.normal_(0.0, config.initializer_range, generator=generator)
    return Decoder(model)
