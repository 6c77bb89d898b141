"""How each architecture stands in a GGUF file: names of tensors, what undoes their conversion, and
the transformers configuration that its metadata means.

One table of names serves all; a row says what is different. What llama.cpp's conversion does to
an architecture is stated beside its row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from longctx.core.model.gguf.facts import Facts
from longctx.core.model.gguf.undo import unpermuted

TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Tables that the metadata or the configuration has too, and what old conversions left behind.
UNUSED = {"rope_freqs", "rope_factors_long", "rope_factors_short", "attn_rot_embd"}


@dataclass(frozen=True)
class Form:
    """How an architecture stands in a GGUF file.

    Attributes:
        kind: transformers' `model_type`.
        fields: the configuration's fields that `shared_fields` does not have, or not the same.
        names: of parts of a layer (llama.cpp's: transformers'), where LAYER has others or none.
        changes: by llama.cpp's name of a part, what undoes its conversion.
    """

    kind: str
    fields: Callable[[Facts], dict[str, Any]]
    names: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, Callable[[Tensor, Facts], Tensor]] = field(default_factory=dict)


# --- configurations -----------------------------------------------------------------------------


def shared_fields(facts: Facts) -> dict[str, Any]:
    """The fields that configurations of all architectures have, under the same names."""
    return {
        "vocab_size": facts.container.tensors["token_embd.weight"].shape[0],
        "hidden_size": facts.count("embedding_length"),
        "intermediate_size": facts.count("feed_forward_length"),
        "num_hidden_layers": facts.count("block_count"),
        "num_attention_heads": heads(facts),
        "num_key_value_heads": key_heads(facts),
        "max_position_embeddings": facts.count("context_length"),
        "tie_word_embeddings": not facts.has("output.weight"),
        "bos_token_id": facts.token("bos_token_id"),
        "eos_token_id": facts.token("eos_token_id"),
        "pad_token_id": facts.token("padding_token_id"),
    }


def heads(facts: Facts) -> int:
    """The number of query heads."""
    return facts.count("attention.head_count")


def key_heads(facts: Facts) -> int:
    """The number of key/value heads."""
    return facts.find("attention.head_count_kv") or heads(facts)


def head_dim(facts: Facts) -> int:
    """The dimensions of a head."""
    return facts.find("attention.key_length") or facts.count("embedding_length") // heads(facts)


def rope(facts: Facts) -> dict[str, Any]:
    """The rotary embedding."""
    found: dict[str, Any] = {"rope_type": "default"}
    found["rope_theta"] = facts.find_real("rope.freq_base") or 10_000.0
    kind = facts.word("rope.scaling.type") or "none"
    if kind != "none" or facts.has("rope_freqs.weight"):
        raise facts.wrong(f"its rotary embedding is scaled ({kind}), which is not read yet")
    return found


def llama(facts: Facts) -> dict[str, Any]:
    """Llama and Mistral: the file does not say which, and they compute the same.

    A sliding window, as the first Mistral has, is not in the file: llama.cpp attends to all.
    """
    return {
        "rms_norm_eps": facts.real("attention.layer_norm_rms_epsilon"),
        "head_dim": head_dim(facts),
        "rope_parameters": rope(facts),
        "attention_bias": facts.has("blk.0.attn_output.bias"),
        "mlp_bias": facts.has("blk.0.ffn_down.bias"),
    }


# --- the rows -----------------------------------------------------------------------------------

PERMUTED = {
    "attn_q": lambda weight, facts: unpermuted(weight, heads(facts)),
    "attn_k": lambda weight, facts: unpermuted(weight, key_heads(facts)),
}
FORMS = {"llama": Form("llama", llama, changes=PERMUTED)}


def form_of(facts: Facts) -> Form:
    """The row of a file's architecture.

    Raises:
        UsageError: there is none.
    """
    if form := FORMS.get(facts.architecture):
        return form
    why = f"its architecture {facts.architecture[:80]!a} is not supported as a GGUF file"
    raise facts.wrong(why, f"Name one of these, or a safetensors model: {', '.join(FORMS)}.")
