"""The rotary embedding that a GGUF file's metadata means, as transformers' parameters."""

from typing import Any

import torch
from torch import Tensor

from longctx.core.model.gguf.facts import Facts

THETA = 10_000.0  # where a file states none: llama.cpp's default
FACTORS = ("rope_freqs", "rope_factors_long", "rope_factors_short")
# Llama 3's scaling is in a file as the factors that it gives; all its models have these ends.
LOW, HIGH, TRAINED = 1.0, 4.0, 8192


def heads(facts: Facts) -> int:
    """The number of query heads."""
    return facts.count("attention.head_count")


def key_heads(facts: Facts) -> int:
    """The number of key/value heads."""
    return facts.find("attention.head_count_kv") or heads(facts)


def head_dim(facts: Facts) -> int:
    """The dimensions of a head; those of values must be as many."""
    dims = facts.find("attention.key_length") or facts.count("embedding_length") // heads(facts)
    facts.require("attention.value_length", dims)
    return dims


def rope(facts: Facts, partial: bool = False) -> dict[str, Any]:
    """The rotary embedding of all layers, or of those with full attention.

    Args:
        facts: the metadata.
        partial: models of this architecture may rotate only part of each head.

    Raises:
        UsageError: it is scaled in a way that transformers does not have.
    """
    dims = head_dim(facts)
    rotated = facts.find("rope.dimension_count") or dims
    if rotated > dims or (rotated != dims and not partial):
        raise facts.wrong(f"it rotates {rotated} of the {dims} dimensions of a head")
    found = {"rope_theta": facts.find_real("rope.freq_base") or THETA, **_scaling(facts, rotated)}
    return {**found, "partial_rotary_factor": rotated / dims} if partial else found


def local_rope(facts: Facts, theta: float) -> dict[str, Any]:
    """The rotary embedding of layers with a sliding window: never scaled.

    Args:
        facts: the metadata.
        theta: its base if the file states none.
    """
    stated = facts.find_real("rope.freq_base_swa")
    return {"rope_type": "default", "rope_theta": stated or theta}


def _scaling(facts: Facts, rotated: int) -> dict[str, Any]:
    """How the rotary embedding is scaled."""
    kind = facts.word("rope.scaling.type") or "linear"
    factor = facts.find_real("rope.scaling.factor")
    trained = facts.find("rope.scaling.original_context_length")
    if facts.has("rope_factors_long.weight") or kind == "longrope":
        return _longrope(facts, trained, rotated)
    if kind == "yarn":
        return _yarn(facts, factor, trained)
    if facts.has("rope_freqs.weight"):
        return _by_factors(facts, rotated)
    if kind not in ("linear", "none"):
        raise facts.wrong(f"its rotary embedding is scaled by {kind[:80]!a}, which is unknown")
    if kind == "none" or factor in (None, 0.0, 1.0):
        return {"rope_type": "default"}
    return {"rope_type": "linear", "factor": factor}


def _yarn(facts: Facts, factor: float | None, trained: int | None) -> dict[str, Any]:
    facts.require("rope.scaling.yarn_ext_factor", 1.0)
    facts.require("rope.scaling.yarn_log_multiplier", 0.0)
    if factor is None or trained is None:
        raise facts.wrong("its rotary embedding is scaled by yarn, and it does not say how much")
    found = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": trained,
        "beta_fast": facts.find_real("rope.scaling.yarn_beta_fast"),
        "beta_slow": facts.find_real("rope.scaling.yarn_beta_slow"),
        "attention_factor": _attention_factor(facts),
    }
    return {key: value for key, value in found.items() if value is not None}


def _attention_factor(facts: Facts) -> float | None:
    old = facts.find_real("rope.scaling.attn_factor")
    new = facts.find_real("rope.scaling.yarn_attn_factor")
    return old if new is None else new


def _longrope(facts: Facts, trained: int | None, rotated: int) -> dict[str, Any]:
    if trained is None:
        raise facts.wrong("it does not say for which context its rotary embedding was trained")
    found = {
        "rope_type": "longrope",
        "short_factor": _factors(facts, "rope_factors_short", rotated).tolist(),
        "long_factor": _factors(facts, "rope_factors_long", rotated).tolist(),
        "original_max_position_embeddings": trained,
        "factor": facts.count("context_length") / trained,
        "attention_factor": _attention_factor(facts),
    }
    return {key: value for key, value in found.items() if value is not None}


def _by_factors(facts: Facts, rotated: int) -> dict[str, Any]:
    """Each frequency divided by its own factor.

    If these are what Llama 3's scaling gives, it is named so; else they are stated one by one,
    which only `longrope` can, with the same ones at every length.
    """
    factors = _factors(facts, "rope_freqs", rotated)
    scaled = {
        "rope_type": "llama3",
        "factor": float(factors.max()),
        "low_freq_factor": LOW,
        "high_freq_factor": HIGH,
        "original_max_position_embeddings": TRAINED,
    }
    theta = facts.find_real("rope.freq_base") or THETA
    if torch.allclose(_llama3(theta, rotated, scaled["factor"]), factors, rtol=1e-5):
        return scaled
    return {
        "rope_type": "longrope",
        "short_factor": factors.tolist(),
        "long_factor": factors.tolist(),
        "original_max_position_embeddings": facts.count("context_length"),
        "factor": 1.0,
        "attention_factor": 1.0,
    }


def _llama3(theta: float, rotated: int, factor: float) -> Tensor:
    """(rotated / 2,): what Llama 3's scaling divides each frequency by."""
    turns = TRAINED / theta ** (torch.arange(0, rotated, 2) / rotated) / (2 * torch.pi)
    smooth = ((turns - LOW) / (HIGH - LOW)).clamp(0, 1)
    return 1 / ((1 - smooth) / factor + smooth)


def _factors(facts: Facts, name: str, rotated: int) -> Tensor:
    """(rotated / 2,): a table of factors."""
    table = facts.table(f"{name}.weight")
    if table.numel() != rotated // 2 or not bool((torch.isfinite(table) & (table > 0)).all()):
        raise facts.wrong(f"its tensor {name} is no table of {rotated // 2} factors")
    return table.flatten()
