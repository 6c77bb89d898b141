"""The transformers configuration that a GGUF file's metadata means, one function an architecture.

Every field that a file states is set. What files do not state and llama.cpp does for all models of
an architecture is set too, with a comment; nothing depends on what transformers takes for granted.
"""

from typing import Any

from longctx.core.model.gguf.facts import Facts
from longctx.core.model.gguf.ropes import head_dim, heads, key_heads, local_rope, rope

Fields = dict[str, Any]
FULL, SLIDING = "full_attention", "sliding_attention"
MOST_LAYERS = 512  # as in llama.cpp
RMS, NORM = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"


def shared(facts: Facts) -> Fields:
    """What the configurations of all architectures have, under the same names."""
    layers = facts.count("block_count")
    if layers > MOST_LAYERS:
        raise facts.wrong(f"its metadata says {layers:,} layers, and {MOST_LAYERS} are the most")
    return {
        "vocab_size": facts.container.tensors["token_embd.weight"].shape[0],
        "hidden_size": facts.count("embedding_length"),
        "intermediate_size": facts.count("feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads(facts),
        "num_key_value_heads": key_heads(facts),
        "max_position_embeddings": facts.count("context_length"),
        "tie_word_embeddings": not facts.has("output.weight"),
        "bos_token_id": facts.token("bos_token_id"),
        "eos_token_id": facts.token("eos_token_id"),
        "pad_token_id": facts.token("padding_token_id"),
        "head_dim": head_dim(facts),
    }


def _biased(facts: Facts, part: str) -> bool:
    return facts.has(f"blk.0.{part}.bias")


def _windows(facts: Facts, period: int) -> Fields:
    """The sliding window, and the type of each layer.

    Args:
        facts: the metadata.
        period: each layer of this number is full, if the file does not say which are.
    """
    layers = facts.count("block_count")
    stated = facts.layers("attention.sliding_window_pattern", layers)
    window = facts.find("attention.sliding_window", least=0)
    if isinstance(stated, int) or stated is None:
        period = stated or period
        stated = [(i + 1) % period != 0 for i in range(layers)]
    if not window:
        return {"sliding_window": None, "layer_types": [FULL] * layers}
    return {"sliding_window": window, "layer_types": [SLIDING if s else FULL for s in stated]}


def _no_window(facts: Facts) -> None:
    """Refuses a window where llama.cpp has none."""
    facts.require("attention.sliding_window", 0)


def llama(facts: Facts) -> Fields:
    """Llama and Mistral: a file does not say which, and they compute the same.

    A sliding window, as the first Mistral has, is not in the file: llama.cpp attends to all.
    """
    facts.require("expert_count", 0)
    facts.require("expert_used_count", 0)
    return {
        "rms_norm_eps": facts.real(RMS),
        "rope_parameters": rope(facts),
        "attention_bias": _biased(facts, "attn_q"),
        "mlp_bias": _biased(facts, "ffn_down"),
    }


def mixtral(facts: Facts) -> Fields:
    """Mixtral, which llama.cpp calls llama too; it normalizes the weights of the chosen experts."""
    return {
        "rms_norm_eps": facts.real(RMS),
        "rope_parameters": rope(facts),
        "sliding_window": None,
        "num_local_experts": facts.count("expert_count"),
        "num_experts_per_tok": facts.count("expert_used_count"),
    }


def granite(facts: Facts) -> Fields:
    """Granite: its multipliers are as those of llama.cpp where a file states none."""
    root = head_dim(facts) ** -0.5
    return {
        **llama(facts),
        "attention_multiplier": facts.find_real("attention.scale") or root,
        "embedding_multiplier": facts.find_real("embedding_scale") or 1.0,
        "residual_multiplier": facts.find_real("residual_scale") or 1.0,
        "logits_scaling": facts.find_real("logit_scale") or 1.0,
    }


def smollm3(facts: Facts) -> Fields:
    """SmolLM3: each fourth layer does not rotate; llama.cpp takes that for granted."""
    layers = range(facts.count("block_count"))
    _no_window(facts)
    return {
        **llama(facts),
        "no_rope_layers": [int((i + 1) % 4 != 0) for i in layers],
        "layer_types": [FULL for _ in layers],
        "use_sliding_window": False,
        "sliding_window": None,
    }


def qwen2(facts: Facts) -> Fields:
    """Qwen2: llama.cpp has no windows for it."""
    _no_window(facts)
    layers = facts.count("block_count")
    return {
        "rms_norm_eps": facts.real(RMS),
        "rope_parameters": rope(facts),
        "use_sliding_window": False,
        "sliding_window": None,
        "layer_types": [FULL] * layers,
    }


def qwen3(facts: Facts) -> Fields:
    """Qwen3."""
    return {**qwen2(facts), "attention_bias": _biased(facts, "attn_q")}


def _experts(facts: Facts) -> Fields:
    """Experts in every layer, chosen by softmax."""
    facts.require("expert_gating_func", 1)
    facts.require("expert_weights_scale", 0.0, 1.0)
    return {
        "num_experts": facts.count("expert_count"),
        "num_experts_per_tok": facts.count("expert_used_count"),
        "moe_intermediate_size": facts.count("expert_feed_forward_length"),
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def qwen2_moe(facts: Facts) -> Fields:
    """Qwen2-MoE: llama.cpp does not normalize the weights of the chosen experts."""
    facts.require("expert_weights_norm", False)
    return {
        **qwen2(facts),
        **_experts(facts),
        "qkv_bias": _biased(facts, "attn_q"),
        "shared_expert_intermediate_size": facts.count("expert_shared_feed_forward_length"),
        "norm_topk_prob": False,
    }


def qwen3_moe(facts: Facts) -> Fields:
    """Qwen3-MoE: llama.cpp normalizes the weights of the chosen experts."""
    facts.require("expert_weights_norm", True)
    return {**qwen3(facts), **_experts(facts), "norm_topk_prob": True}


def gemma2(facts: Facts) -> Fields:
    """Gemma 2: every second layer is full; of 27B (46 layers), queries are scaled otherwise."""
    return {
        **_windows(facts, 2),
        "rms_norm_eps": facts.real(RMS),
        "rope_parameters": rope(facts),
        "attn_logit_softcapping": facts.real("attn_logit_softcapping"),
        "final_logit_softcapping": facts.real("final_logit_softcapping"),
        "query_pre_attn_scalar": _query_scalar(facts, 46),
        "attention_bias": _biased(facts, "attn_q"),
    }


def _query_scalar(facts: Facts, largest: int) -> int:
    """What queries are divided by the root of: llama.cpp knows Gemma's 27B by its layers."""
    if facts.count("block_count") == largest:
        return facts.count("embedding_length") // heads(facts)
    return head_dim(facts)


def gemma3(facts: Facts) -> Fields:
    """Gemma 3: each sixth layer is full, with a rotary embedding of its own."""
    windows = _windows(facts, 6)
    return {
        **windows,
        "rms_norm_eps": facts.real(RMS),
        "rope_parameters": {FULL: rope(facts), SLIDING: local_rope(facts, 10_000.0)},
        "attn_logit_softcapping": None,
        "final_logit_softcapping": facts.find_real("final_logit_softcapping") or None,
        "query_pre_attn_scalar": _query_scalar(facts, 62),
        "attention_bias": _biased(facts, "attn_q"),
    }


def cohere2(facts: Facts) -> Fields:
    """Cohere 2: each fourth layer is full (and does not rotate)."""
    return {
        **_windows(facts, 4),
        "layer_norm_eps": facts.real(NORM),
        "rope_parameters": rope(facts),
        "logit_scale": facts.real("logit_scale"),
        "attention_bias": _biased(facts, "attn_q"),
    }


def exaone4(facts: Facts) -> Fields:
    """EXAONE 4: each fourth layer is full where there is a window; llama.cpp knows 32B's."""
    found = {**_windows(facts, 4)}
    if facts.count("block_count") == 64 and not found["sliding_window"]:
        types = [FULL if (i + 1) % 4 == 0 else SLIDING for i in range(64)]
        found = {"sliding_window": 4096, "layer_types": types}
    return {**found, "rms_norm_eps": facts.real(RMS), "rope_parameters": rope(facts)}


def olmo2(facts: Facts) -> Fields:
    """OLMo 2, and OLMo 3, which has windows and which llama.cpp calls so too."""
    fields = {"rms_norm_eps": facts.real(RMS), "attention_bias": _biased(facts, "attn_q")}
    if not _has_window(facts):
        _windows(facts, 4)
        return {**fields, "rope_parameters": rope(facts)}
    whole = rope(facts)
    local = local_rope(facts, whole["rope_theta"])
    return {**fields, **_windows(facts, 4), "rope_parameters": {FULL: whole, SLIDING: local}}


def _has_window(facts: Facts) -> bool:
    return bool(facts.find("attention.sliding_window", least=0))


def glm4(facts: Facts) -> Fields:
    """GLM-4."""
    facts.require("nextn_predict_layers", 0)
    return {
        "rms_norm_eps": facts.real(RMS),
        "rope_parameters": rope(facts, partial=True),
        "attention_bias": _biased(facts, "attn_q"),
    }


def phi3(facts: Facts) -> Fields:
    """Phi-3 and Phi-4."""
    parameters = rope(facts, partial=True)
    trained = parameters.get("original_max_position_embeddings")
    return {
        "rms_norm_eps": facts.real(RMS),
        "rope_parameters": parameters,
        "original_max_position_embeddings": trained or facts.count("context_length"),
        "sliding_window": facts.find("attention.sliding_window", least=0) or None,
    }


def gpt_neox(facts: Facts) -> Fields:
    """GPT-NeoX: llama.cpp's are all of the base 10,000."""
    return {
        "layer_norm_eps": facts.real(NORM),
        "rope_parameters": rope(facts, partial=True),
        "use_parallel_residual": facts.flag("use_parallel_residual") is not False,
        "attention_bias": _biased(facts, "attn_qkv"),
        "hidden_act": "gelu",
    }


def gpt_oss(facts: Facts) -> Fields:
    """GPT-OSS: every second layer is full; yarn without rounding, as its makers compute it."""
    facts.require("expert_gating_func", 1, 3)
    facts.require("expert_feed_forward_length", facts.count("feed_forward_length"))
    parameters = rope(facts)
    if parameters["rope_type"] == "yarn":
        parameters["truncate"] = False
    return {
        **_windows(facts, 2),
        "rms_norm_eps": facts.real(RMS),
        "rope_parameters": parameters,
        "num_local_experts": facts.count("expert_count"),
        "num_experts_per_tok": facts.count("expert_used_count"),
        "attention_bias": _biased(facts, "attn_q"),
    }


def stablelm(facts: Facts) -> Fields:
    """StableLM: its residuals are parallel where there is no second norm, as in llama.cpp."""
    parallel = not facts.has("blk.0.ffn_norm.weight")
    facts.require("use_parallel_residual", True, False)
    return {
        "layer_norm_eps": facts.real(NORM),
        "rope_parameters": rope(facts, partial=True),
        "use_qkv_bias": _biased(facts, "attn_q"),
        "qk_layernorm": facts.has("blk.0.attn_q_norm.weight"),
        "use_parallel_residual": parallel,
    }


def starcoder2(facts: Facts) -> Fields:
    """StarCoder2: llama.cpp has no windows for it."""
    _no_window(facts)
    return {
        "norm_epsilon": facts.real(NORM),
        "rope_parameters": rope(facts),
        "use_bias": _biased(facts, "attn_q"),
        "sliding_window": None,
        "hidden_act": "gelu_pytorch_tanh",
    }
