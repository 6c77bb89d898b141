"""The supported architectures, one row each, and the refused ones with the reason.

A row says what the adapter must know about an attention module; whatever a module or its
configuration states itself (scales, heads, windows of its layers, types of rotary embedding) is
read from it. No row repeats what a model computes. `make docs` puts the table in the README. torch
is not imported, so that a document can be opened before torch is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from longctx.core.common.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

Module = Any  # a transformers module: torch does not type the attributes of modules


def nothing(attention: Module) -> None:
    """Stands for an attribute that an architecture's attention does not have."""


def always(attention: Module) -> bool:
    """For architectures in which every layer rotates."""
    return True


@dataclass(frozen=True)
class Adapter:
    """What the adapter must know about an architecture; the functions read a built module.

    Attributes:
        name: its common name.
        window: the sliding window of an attention module in tokens, or None.
        softcap: bound of its attention logits (softcap * tanh(logits / softcap)), or None.
        sinks: (H,) logit of each query head that takes attention but has no value, or None.
        rotates: whether it rotates q and k at all.
        rotary_dims: leading dimensions of a head that it passes to `apply_rotary_pos_emb`, if it
            splits q and k itself; None if that function gets all of them.
        head_dim, groups: D, and query heads per key/value head.
        attention: the attention module's name in a decoder layer.
        partial: models of this architecture may rotate only part of each head.
        renamed: names of weights in a multimodal model's files, as regular expressions, with
            their names in the language model alone.
        also: for the table: what the model's own code does and no field above says.
    """

    name: str
    window: Callable[[Module], int | None] = nothing
    softcap: Callable[[Module], float | None] = nothing
    sinks: Callable[[Module], Tensor | None] = nothing
    rotates: Callable[[Module], bool] = always
    rotary_dims: Callable[[Module], int | None] = nothing
    head_dim: Callable[[Module], int] = lambda attention: attention.head_dim
    groups: Callable[[Module], int] = lambda attention: attention.num_key_value_groups
    attention: str = "self_attn"
    partial: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    also: str = ""


def own_window(attention: Module) -> int | None:
    """The window, in models that set it per layer."""
    return attention.sliding_window


def common_window(attention: Module) -> int | None:
    """The window, in models with one for all layers."""
    return attention.config.sliding_window


ADAPTERS = {
    "cohere2": Adapter(
        "Cohere 2 (Command R7B, Command A)",
        window=own_window,
        rotates=lambda attention: attention.sliding_window is not None,
        also="interleaved rotary, logit scale",
    ),
    "exaone4": Adapter(
        "EXAONE 4",
        window=lambda attention: attention.sliding_window if attention.is_sliding else None,
        rotates=lambda attention: attention.sliding_window is None or attention.is_sliding,
        also="q/k norm",
    ),
    "gemma2": Adapter(
        "Gemma 2",
        window=own_window,
        softcap=lambda attention: attention.attn_logit_softcapping,
        also="soft cap of the logits",
    ),
    "gemma3_text": Adapter(
        "Gemma 3 (its language model)",
        window=own_window,
        renamed={r"^language_model\.model\.": "model.", r"^language_model\.lm_head\.": "lm_head."},
        also="two rotary embeddings, q/k norm",
    ),
    "glm4": Adapter("GLM-4", partial=True, also="interleaved rotary"),
    "gpt_neox": Adapter(
        "GPT-NeoX, Pythia",
        head_dim=lambda attention: attention.head_size,
        groups=lambda attention: 1,
        attention="attention",
        partial=True,
        also="one key/value head for each query head",
    ),
    "gpt_oss": Adapter(
        "GPT-OSS",
        window=own_window,
        sinks=lambda attention: attention.sinks,
        also="experts, YaRN",
    ),
    "granite": Adapter("Granite 3", also="multipliers of embeddings, attention, residual, logits"),
    "llama": Adapter("Llama", also="every rope scaling"),
    "mistral": Adapter("Mistral", window=common_window),
    "mixtral": Adapter("Mixtral", window=common_window, also="experts"),
    "olmo2": Adapter("OLMo 2", also="q/k norm over all heads"),
    "olmo3": Adapter(
        "OLMo 3", window=own_window, also="two rotary embeddings, q/k norm over all heads"
    ),
    "phi3": Adapter("Phi-3, Phi-4", window=common_window, partial=True, also="longrope"),
    "qwen2": Adapter("Qwen2, Qwen2.5", window=own_window),
    "qwen2_moe": Adapter(
        "Qwen2-MoE",
        # Its full-attention layers have no such attribute.
        window=lambda attention: getattr(attention, "sliding_window", None),
        also="experts",
    ),
    "qwen3": Adapter("Qwen3", window=own_window, also="q/k norm"),
    "qwen3_moe": Adapter("Qwen3-MoE", window=own_window, also="experts, q/k norm"),
    "smollm3": Adapter(
        "SmolLM3", window=own_window, rotates=lambda attention: bool(attention.use_rope)
    ),
    "stablelm": Adapter(
        "StableLM", rotary_dims=lambda attention: attention.rotary_ndims, partial=True
    ),
    "starcoder2": Adapter("StarCoder2", window=common_window),
}

MULTIMODAL = frozenset({"gemma3"})  # only the language model inside them is run


def language_model(config: Any) -> Any:
    """The configuration to run: of a known multimodal model, that of its language model."""
    return config.get_text_config() if config.model_type in MULTIMODAL else config


# --- refused by name ----------------------------------------------------------------------------

LATENT = (
    "its multi-head latent attention keeps compressed latents, not the keys and values of heads "
    "that a memory keeps, scores and evicts"
)
HYBRID = (
    "some of its layers are state-space, convolution or linear-attention layers: they have no keys "
    "and values to keep or gather, but a state that only reading in order gives"
)
NORM_AFTER = (
    "it normalizes q and k after the rotary embedding, so they cannot be kept without position "
    "and rotated later"
)
REFUSED = {
    reason: frozenset(names.split())
    for reason, names in {
        LATENT: "axk1 axk2 deepseek_v2 deepseek_v3 deepseek_v32 dots3_note dots3_note_text"
        " glm4_moe_lite glm_moe_dsa hy_v4 longcat_flash minicpm3 mistral4 mistral_large4"
        " mistral_large4_text youtu",
        HYBRID: "bailing_hybrid bamba falcon_h1 falcon_mamba glm5_next glm5_next_text"
        " granitemoehybrid jamba kimi_linear lfm2 lfm2_moe lfm3 mamba mamba2 minimax nemotron_h"
        " olmo_hybrid qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text qwen3_next qwen4_exp"
        " qwen4_exp_text recurrent_gemma rwkv xlstm zamba zamba2",
        NORM_AFTER: "hunyuan_v1_dense hunyuan_v1_moe",
    }.items()
}


def require_known(values: Mapping[str, Any], where: str) -> None:
    """Refuses a config.json of another architecture, before transformers reads it.

    One that comes with code of its own is left to that: it says why it cannot be read.

    Args:
        values: what the file says.
        where: its folder, for the message.

    Raises:
        UsageError: it names one that there is no adapter for.
    """
    kind = values.get("model_type")
    if isinstance(kind, str) and kind not in MULTIMODAL and "auto_map" not in values:
        _row(kind, f" in {where!r}")


def adapter_of(config: Any) -> Adapter:
    """The row of a configuration's architecture.

    Raises:
        UsageError: there is none.
    """
    return _row(config.model_type)


def _row(kind: str, where: str = "") -> Adapter:
    if kind in ADAPTERS:
        return ADAPTERS[kind]
    why = [reason for reason, names in REFUSED.items() if kind in names]
    raise UsageError(
        f"cannot run architecture {kind[:80]!a}{where}",
        why[0] if why else "this version has no adapter for it",
        f"Name a model of one of these with --model: {', '.join(sorted(ADAPTERS))}.",
    )


# --- the README's table -------------------------------------------------------------------------

COLUMNS: dict[str, Callable[[Adapter], bool]] = {
    "sliding windows": lambda row: row.window is not nothing,
    "soft cap": lambda row: row.softcap is not nothing,
    "sinks": lambda row: row.sinks is not nothing,
    "layers without rotary": lambda row: row.rotates is not always,
    "partial rotary": lambda row: row.partial,
}


def table() -> str:
    """The architectures as a Markdown table, in the order of their names."""
    head = ["models", "`model_type`", *COLUMNS, "also"]
    lines = [head, ["---", "---", *[":-:" for _ in COLUMNS], "---"]]
    for kind, row in sorted(ADAPTERS.items(), key=lambda item: item[1].name.lower()):
        marks = ["yes" if has(row) else "" for has in COLUMNS.values()]
        lines.append([row.name, f"`{kind}`", *marks, row.also])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
