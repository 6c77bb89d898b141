"""How each architecture stands in a GGUF file: its name, its tensors' names, what was changed.

One table of names serves all; a row says what is different and what undoes llama.cpp's conversion.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from longctx.core.model.gguf import configs, undo
from longctx.core.model.gguf.facts import Facts
from longctx.core.model.gguf.ropes import FACTORS, heads, key_heads

TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.gate_up_proj",
    "ffn_up_exps": "mlp.experts.gate_up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
}
# transformers' names of these end in nothing, or `_bias`.
BARE = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "attn_sinks"}
# What the configuration has too, and frequencies that old conversions wrote down.
UNUSED = {*FACTORS, "attn_rot_embd"}

Change = Callable[[Tensor, Facts], Tensor]


@dataclass(frozen=True)
class Form:
    """How an architecture stands in a GGUF file.

    Attributes:
        kind: transformers' `model_type`.
        fields: the configuration's fields beyond `configs.shared`.
        names: of parts of a layer (llama.cpp's: transformers'), where LAYER has others or none; a
            name with `{}` is that of each row by itself.
        changes: by llama.cpp's name of a part, what undoes its conversion.
        join: makes one tensor of the experts' gate and up.
        top: names of what is in no layer.
        layers: what stands before a layer's number.
    """

    kind: str
    fields: Callable[[Facts], dict[str, Any]]
    names: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, Change] = field(default_factory=dict)
    join: Callable[[Tensor, Tensor], Tensor] = undo.gate_over_up
    top: Mapping[str, str] = field(default_factory=lambda: TOP)
    layers: str = "model.layers"

    def name(self, layer: int | None, part: str) -> str | None:
        """transformers' name of a part, or None if it has none."""
        if layer is None:
            return self.top.get(part)
        found = {**LAYER, **self.names}.get(part)
        return f"{self.layers}.{layer}.{found}" if found else None


# --- the rows -----------------------------------------------------------------------------------

PERMUTED: dict[str, Change] = {
    "attn_q": lambda weight, facts: undo.unpermuted(weight, heads(facts)),
    "attn_k": lambda weight, facts: undo.unpermuted(weight, key_heads(facts)),
}
AFTER = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
GEMMA_NORMS = {**AFTER, "ffn_norm": "pre_feedforward_layernorm"}
NORMS = ("attn_norm", "attn_q_norm", "attn_k_norm", "output_norm", *GEMMA_NORMS)
GEMMA_CHANGES: dict[str, Change] = {norm: lambda w, facts: undo.less_one(w) for norm in NORMS}
FUSED_MLP = {"ffn_up": "mlp.gate_up_proj"}
SHARED_EXPERT = {
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
HEAD_NORMS = {
    "attn_q_norm": "self_attn.q_layernorm.norms.{}",
    "attn_k_norm": "self_attn.k_layernorm.norms.{}",
}
NEOX = {
    "attn_qkv": "attention.query_key_value",
    "attn_output": "attention.dense",
    "ffn_up": "mlp.dense_h_to_4h",
    "ffn_down": "mlp.dense_4h_to_h",
}
NEOX_TOP = {
    "token_embd": "gpt_neox.embed_in",
    "output_norm": "gpt_neox.final_layer_norm",
    "output": "lm_head",
}
GLM_NORMS = {
    "post_attention_norm": "post_self_attn_layernorm",
    "post_ffw_norm": "post_mlp_layernorm",
}
OSS = {
    "attn_sinks": "self_attn.sinks",
    "ffn_gate_inp": "mlp.router",
    "post_attention_norm": "post_attention_layernorm",
}
MIXTRAL = Form("mixtral", configs.mixtral, changes=PERMUTED)
OLMO3 = Form("olmo3", configs.olmo2, names=AFTER)
# By llama.cpp's name of the architecture.
FORMS = {
    "cohere2": Form("cohere2", configs.cohere2),
    "exaone4": Form("exaone4", configs.exaone4, names=AFTER),
    "gemma2": Form("gemma2", configs.gemma2, GEMMA_NORMS, GEMMA_CHANGES),
    "gemma3": Form("gemma3_text", configs.gemma3, GEMMA_NORMS, GEMMA_CHANGES),
    "glm4": Form("glm4", configs.glm4, names={**GLM_NORMS, **FUSED_MLP}),
    "gpt-oss": Form(
        "gpt_oss",
        configs.gpt_oss,
        OSS,
        {"ffn_down_exps": lambda weight, facts: undo.last_two_swapped(weight)},
        undo.gate_between_up,
    ),
    "gptneox": Form(
        "gpt_neox",
        configs.gpt_neox,
        NEOX,
        {"attn_qkv": lambda weight, facts: undo.by_heads(weight, heads(facts))},
        top=NEOX_TOP,
        layers="gpt_neox.layers",
    ),
    "granite": Form("granite", configs.granite, changes=PERMUTED),
    "llama": Form("llama", configs.llama, changes=PERMUTED),
    "olmo2": Form("olmo2", configs.olmo2, names=AFTER),
    "phi3": Form("phi3", configs.phi3, names={"attn_qkv": "self_attn.qkv_proj", **FUSED_MLP}),
    "qwen2": Form("qwen2", configs.qwen2),
    "qwen2moe": Form(
        "qwen2_moe",
        configs.qwen2_moe,
        SHARED_EXPERT,
        {"ffn_gate_inp_shexp": lambda weight, facts: undo.as_row(weight)},
    ),
    "qwen3": Form("qwen3", configs.qwen3),
    "qwen3moe": Form("qwen3_moe", configs.qwen3_moe),
    "smollm3": Form("smollm3", configs.smollm3, changes=PERMUTED),
    "stablelm": Form("stablelm", configs.stablelm, names=HEAD_NORMS),
    "starcoder2": Form(
        "starcoder2", configs.starcoder2, names={"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
    ),
}


def form_of(facts: Facts) -> Form:
    """The row of a file's architecture.

    Raises:
        UsageError: there is none.
    """
    if facts.architecture == "llama" and facts.find("expert_count", least=0):
        return MIXTRAL
    if facts.architecture == "olmo2" and facts.find("attention.sliding_window", least=0):
        return OLMO3
    if form := FORMS.get(facts.architecture):
        return form
    why = f"its architecture {facts.architecture[:80]!a} is not supported as a GGUF file"
    raise facts.wrong(why, f"Name one of these, or a safetensors model: {', '.join(FORMS)}.")
