"""Loading a model, and the self-check: does it run over memories exactly as it runs by itself?

The check compares small float32 copies of the model's own layers, once for each configuration,
pair of versions and kind of device. A model that fails it is refused: it is never run wrongly.
"""

import copy
import hashlib
from collections.abc import MutableMapping
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from longctx.core.attention import causal_attention
from longctx.core.errors import LongctxError
from longctx.core.model import ATTENTION, Decoder, Layer, adapter_of, layers_of, register, run

CHECK_TOKENS, CHECK_SPAN, CHECK_TOLERANCE = 96, 32, 1e-4


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
        device, dtype: where and in what to compute.
        check_cache: remembers passed self-checks by `check_key`; the caller keeps it.

    Raises:
        UsageError: the architecture has no adapter row.
        LongctxError: position-free attention does not give this model's own result.
    """
    adapter_of(config)
    register()
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        dtype=dtype,
        attn_implementation=ATTENTION,
        use_safetensors=True,
        local_files_only=True,
    ).to(device)
    decoder = Decoder(model)
    key = check_key(config, device)
    if not check_cache.get(key):
        self_check(model)
        check_cache[key] = True
    return decoder


class _WholeWindow:
    """Plain causal attention at positions 0..T-1: what the model does by itself."""

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        T = q.shape[1]
        q, k = (layer.rotate(x, slice(0, T), T) for x in (q, k))
        return causal_attention(q, k, v, layer.scale, layer.window)


def check_key(config: Any, device: str) -> str:
    """Names what the outcome of a self-check depends on."""
    content = config.to_json_string(use_diff=False)
    digest = hashlib.sha256(content.encode()).hexdigest()[:24]
    kind = str(device).split(":")[0]
    return f"{digest}-{transformers.__version__}-{torch.__version__}-{kind}"


@torch.inference_mode()
def self_check(model: PreTrainedModel) -> None:
    """Compares position-free attention with the model's own, on small float32 copies of its layers.

    Two layers of each type, with windows and original context scaled down so that 96 tokens cross
    them.

    Raises:
        LongctxError: they differ by more than 1e-4 of the largest hidden state.
    """
    small = _small_copy(model)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, model.config.vocab_size, (CHECK_TOKENS,), generator=generator)
    table = model.get_input_embeddings().weight
    states = table[rows.to(table.device)].float()[None]
    small.set_attn_implementation("eager")
    own = small(inputs_embeds=states, use_cache=False).last_hidden_state[0]
    small.set_attn_implementation(ATTENTION)
    layers = layers_of(small, adapter_of(model.config))
    ours = run(small, layers, _WholeWindow(), None, inputs_embeds=states)
    difference = float((ours - own).abs().max())
    # `not <=` so that a NaN is refused too
    if not difference <= CHECK_TOLERANCE * max(1.0, float(own.abs().max())):
        raise LongctxError(
            f"cannot run this {model.config.model_type} model exactly",
            f"its hidden states differ by {difference:.2g} from those of transformers",
            "The adapter does not fit it, or not this version of transformers; please report it.",
        )


def _small_copy(model: PreTrainedModel) -> PreTrainedModel:
    """A float32 copy of two layers of each type, its windows crossed by 96 tokens."""
    base = model.base_model
    types = getattr(base.config, "layer_types", None) or ["all"] * len(base.layers)
    chosen = [i for i, kind in enumerate(types) if types[:i].count(kind) < 2]
    small = type(base)(_small_config(base.config, chosen)).to(base.device, torch.float32)
    for target, index in zip(small.layers, chosen, strict=True):
        target.load_state_dict(base.layers[index].state_dict())
    small.norm.load_state_dict(base.norm.state_dict())
    return small.eval()


def _small_config(config: Any, chosen: list[int]) -> Any:
    small = copy.deepcopy(config)
    small.num_hidden_layers = len(chosen)
    small.vocab_size, small.pad_token_id = 8, None
    if getattr(config, "layer_types", None):
        small.layer_types = [config.layer_types[i] for i in chosen]
    if getattr(config, "sliding_window", None):
        small.sliding_window = CHECK_SPAN
    rope = small.rope_parameters
    original = rope.get("original_max_position_embeddings")
    if original:
        rope["original_max_position_embeddings"] = CHECK_SPAN
    ratio = config.max_position_embeddings / (original or config.max_position_embeddings)
    small.max_position_embeddings = int(CHECK_SPAN * max(1.0, ratio))
    return small
