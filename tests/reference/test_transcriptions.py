"""The transcriptions against transformers and against cases small enough to work out by hand."""

from typing import Any

import llama_transcription
import numpy as np
import pytest
import reform_transcription as reform
import torch
from float64_models import exact, weights_of
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY, WINDOW, HEADS, GROUP = 61, 7, 4, 2
FAMILIES = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "llama-tied": (LlamaForCausalLM, LlamaConfig, {"tie_word_embeddings": True}),
    "llama-wide-heads": (LlamaForCausalLM, LlamaConfig, {"head_dim": 12}),
    "llama-one-key-head": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 1}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 8}),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": WINDOW}),
}
TOKENS = np.random.default_rng(5).integers(0, VOCABULARY, 90).tolist()


def model_of(family: str) -> PreTrainedModel:
    """A random three-layer model in which every weight, biases and norms too, matters."""
    kind, config_kind, changes = FAMILIES[family]
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // GROUP,
        "max_position_embeddings": 256,
        "attn_implementation": "eager",
    }
    torch.manual_seed(11)
    model = kind(config_kind(**(sizes | changes))).double().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.add_(torch.randn_like(weight) * (0.2 if weight.ndim == 2 else 0.3))
            assert weight.std() > 0.1, name
    return model


def truth_of(model: PreTrainedModel, ids: list[int], taps: tuple[str, ...] = ()) -> Any:
    """transformers' output on `ids`, and per name in `taps` that module's output, (T, heads, D)."""
    tapped: dict[str, torch.Tensor] = {}
    hooks = [
        model.get_submodule(name).register_forward_hook(
            lambda _, __, output, name=name: tapped.update({name: output})
        )
        for name in taps
    ]
    with torch.no_grad(), exact():
        output = model(torch.tensor([ids]), use_cache=False, output_attentions=True)
    for hook in hooks:
        hook.remove()
    head_dim = model.model.layers[0].self_attn.head_dim
    return output, {name: t.reshape(len(ids), -1, head_dim).numpy() for name, t in tapped.items()}


def unit(x: np.ndarray) -> np.ndarray:
    """L2-normalise along the last dimension."""
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def settings_of(**changes: Any) -> reform.Settings:
    """Small settings that evict and select."""
    numbers: dict[str, Any] = {
        "chunk": 16,
        "budget": 12,
        "first": 2,
        "last": 3,
        "heads": ((1, "k", 0), (1, "v", 0), (1, "q", 2)),
        "gather": 20,
        "pool": 2,
        "queries": 5,
    }
    return reform.Settings(**(numbers | changes))


# ---- the plain transformer


@pytest.mark.parametrize("family", FAMILIES)
def test_full_logits_are_those_of_transformers(family: str) -> None:
    model = model_of(family)
    output, _ = truth_of(model, TOKENS[:41])
    ours = llama_transcription.full_logits(weights_of(model), TOKENS[:41])
    np.testing.assert_allclose(ours, output.logits[0].numpy(), rtol=0, atol=1e-9)


def test_a_weight_without_a_use_is_refused() -> None:
    state = dict(model_of("llama").state_dict())
    state["model.layers.0.self_attn.sinks"] = torch.zeros(HEADS)
    config = {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
    config |= {"head_dim": 8, "hidden_size": 32, "rms_norm_eps": 1e-6, "rope_theta": 1e4}
    with pytest.raises(ValueError, match="sinks"):
        llama_transcription.weights_of(state, config)


def test_rotation_turns_pairs_half_a_head_apart() -> None:
    cos, sin = np.array([0.0, 1.0, 0.0, 1.0]), np.array([1.0, 0.0, 1.0, 0.0])  # by 90 and by 0
    turned = llama_transcription.rotate(np.array([1.0, 2.0, 3.0, 4.0]), cos, sin)
    np.testing.assert_array_equal(turned, [-3.0, 2.0, 1.0, 4.0])


# ---- reading


@pytest.mark.parametrize(
    ("family", "budget", "tolerance"),
    [("qwen2", 90, 1e-9), ("qwen3", 90, 1e-9), ("mistral", 12, 1e-5)],
)
def test_embeddings_are_the_models_own_states_where_nothing_that_is_seen_is_evicted(
    family: str, budget: int, tolerance: float
) -> None:
    """A sliding window keeps all that its layers can see, whatever the budget.

    Its positions restart with every chunk, and float32 rotary tables are not quite relative: 1e-5.
    """
    model = model_of(family)
    end = "norm" if family == "qwen3" else "proj"
    places = (f"2.self_attn.q_{end}", f"0.self_attn.k_{end}", "2.self_attn.v_proj")
    names = tuple(f"model.layers.{place}" for place in places)
    _, states = truth_of(model, TOKENS, names)
    heads = ((2, "q", 3), (0, "k", 1), (2, "v", 0))
    settings = settings_of(heads=heads, budget=budget)
    reading = reform.read(weights_of(model), TOKENS, settings, prefix=7)
    assert len(reading.embeddings) == len(TOKENS) - 7
    for slot, (name, (_, _, head)) in enumerate(zip(names, heads, strict=True)):
        ours = np.array([token[slot] for token in reading.embeddings])
        np.testing.assert_allclose(ours, unit(states[name][7:, head]), rtol=0, atol=tolerance)


def heaviest(positions: list[int], mass: np.ndarray, settings: reform.Settings) -> list[int]:
    """Positions that stay, by one sort: pinned ones weigh infinitely much."""
    mass = mass.copy()
    mass[np.array(positions) < settings.first] = np.inf
    mass[-settings.last :] = np.inf
    order = np.argsort(-mass, kind="stable")[: settings.budget]
    return sorted(positions[i] for i in order)


@pytest.mark.parametrize("accumulate", [False, True])
def test_layer_0_keeps_what_transformers_attention_maps_say(accumulate: bool) -> None:
    """Layer 0's keys depend on the token alone: the model on [kept | chunk]'s ids is its window."""
    model, settings = model_of("llama"), settings_of(accumulate=accumulate)
    reading = reform.read(weights_of(model), TOKENS, settings)
    moved = 0
    for g in range(HEADS // GROUP):
        kept: list[int] = []
        carried = np.zeros(0)
        for number in range(len(TOKENS) // settings.chunk):
            start = number * settings.chunk
            window = kept + list(range(start, start + settings.chunk))
            output, _ = truth_of(model, [TOKENS[p] for p in window])
            maps = output.attentions[0][0, g * GROUP : (g + 1) * GROUP].numpy()  # (group, T, C)
            mass = maps[:, -settings.queries :].sum(axis=(0, 1))
            if accumulate:
                mass[: len(kept)] += carried
            kept = heaviest(window, mass, settings)
            assert reading.kept[number, 0, g] == kept
            carried = mass[[window.index(p) for p in kept]]
        moved += kept != reading.kept[number, 0, 1 - g]
    assert moved  # heads kept different sets


def test_accumulated_mass_changes_what_is_kept() -> None:
    weights = weights_of(model_of("llama"))
    per_chunk = reform.read(weights, TOKENS, settings_of()).kept
    running = reform.read(weights, TOKENS, settings_of(accumulate=True)).kept
    assert per_chunk.keys() == running.keys()
    assert per_chunk != running
    assert all(per_chunk[0, 0, g] == running[0, 0, g] for g in range(2))


def test_tapped_states_and_scores_are_those_of_a_model_run_on_the_kept_tokens() -> None:
    """With one key/value head, layer 1's input is the model run on [kept | chunk]'s ids."""
    model = model_of("llama-one-key-head")
    settings = settings_of(heads=((1, "k", 0), (1, "v", 0), (1, "q", 2)))
    names = tuple(f"model.layers.1.self_attn.{kind}_proj" for kind in "kvq")
    question, scored = [3, 1, 4, 1, 5], [False, True, True, True, False]
    reading = reform.read(weights_of(model), TOKENS, settings, prefix=4)

    def states(window: list[int], count: int) -> np.ndarray:
        _, found = truth_of(model, window, names)
        slots = zip(names, settings.heads, strict=True)
        return np.stack([unit(found[name][-count:, head]) for name, (_, _, head) in slots], axis=1)

    rows, kept = [], []
    for number, start in enumerate(range(0, len(TOKENS), settings.chunk)):
        part = TOKENS[start : start + settings.chunk]
        rows.append(states([TOKENS[p] for p in kept] + part, len(part)))
        kept = reading.kept.get((number, 0, 0), kept + list(range(start, len(TOKENS))))
    document = np.concatenate(rows)[4:]
    np.testing.assert_allclose(np.array(reading.embeddings), document, rtol=0, atol=1e-9)
    assert [position for position, _, _ in reading.cache[0][0]] == kept
    assert len(kept) == settings.budget + len(TOKENS) % settings.chunk

    asked = states([TOKENS[p] for p in kept] + question, len(question))[scored]
    cosines = np.einsum("jhd,ihd->jih", document, asked).mean(axis=-1)
    raw, pooled = reform.score(reading, weights_of(model), settings, question, scored)
    np.testing.assert_allclose(raw, cosines.max(axis=1), rtol=0, atol=0.02)  # int8
    assert raw.std() > 0.05
    padded = np.pad(raw, settings.pool, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * settings.pool + 1)
    np.testing.assert_array_equal(pooled, windows.max(axis=1))


def test_a_whole_chunk_at_the_end_is_evicted_and_a_tail_is_not() -> None:
    weights = weights_of(model_of("llama"))
    settings = settings_of()
    whole = reform.read(weights, TOKENS[:48], settings)
    tailed = reform.read(weights, TOKENS[:50], settings)
    assert max(number for number, _, _ in whole.kept) == 2
    assert whole.kept == tailed.kept
    for g in range(2):
        assert [entry[0] for entry in whole.cache[0][g]] == whole.kept[2, 0, g]
        assert [entry[0] for entry in tailed.cache[0][g]] == [*whole.kept[2, 0, g], 48, 49]


def test_nothing_above_the_highest_tapped_layer_runs_or_keeps_a_cache() -> None:
    reading = reform.read(weights_of(model_of("llama")), TOKENS, settings_of(heads=((0, "v", 1),)))
    assert reading.cache == []
    assert reading.kept == {}
    assert len(reading.embeddings) == len(TOKENS)


def test_eviction_by_hand() -> None:
    """Positions 0 and 1 are first; 12 is the chunk's last; 5 and 10 tie for the last place."""
    weights = weights_of(model_of("llama"))
    positions = [0, 1, 3, 5, 8, 9, 10, 11, 12]
    mass = np.array([0.0, 0.1, 0.2, 0.3, 0.9, 0.1, 0.3, 0.8, 0.0])
    settings = settings_of(chunk=5, budget=6, first=2, last=1)
    stay = reform.survivors(weights, positions, mass, settings)
    assert [positions[i] for i in stay] == [0, 1, 5, 8, 11, 12]
    within = settings_of(chunk=5, budget=9, first=2, last=1)
    assert reform.survivors(weights, positions, mass, within) == list(range(9))
    with pytest.raises(ValueError, match="budget"):
        reform.survivors(weights, positions, mass, settings_of(budget=3, first=2, last=3))


# ---- embeddings, gathering, answering


def test_quantisation_by_hand() -> None:
    values, scale = reform.quantise(np.array([127.0, -63.5, 2.5, 3.5, 0.0]) / 256)
    assert scale == np.float16(1 / 256)
    assert values.tolist() == [127, -64, 2, 4, 0]  # halves to even
    values, scale = reform.quantise(reform.normalised(np.zeros(3)))
    assert values.tolist() == [0, 0, 0]
    assert scale == 0


def test_a_scale_rounded_far_down_does_not_overflow() -> None:
    smallest = 2.0**-24  # of float16: 1.4 of it rounds to 1
    values, scale = reform.quantise(np.array([127, -127, 10]) * 1.4 * smallest)
    assert scale == smallest
    assert values.tolist() == [127, -127, 14]


def test_gather_breaks_a_plateau_by_the_raw_score_and_then_by_the_earlier_token() -> None:
    raw = np.array([0, 0, 0, 0, 5, 0, 1, 0, 0, 0, 0, 0], dtype=float)
    pooled = np.array([0, 0, 5, 5, 5, 5, 5, 1, 1, 0, 0, 0], dtype=float)
    settings = settings_of(first=1, last=1, gather=5)
    assert reform.gather(raw, pooled, settings, 0) == [0, 2, 4, 6, 11]


def test_gather_takes_everything_at_its_limit_and_not_one_token_above() -> None:
    zeros = np.zeros(12)
    assert reform.gather(zeros, zeros, settings_of(gather=12), 0) == list(range(12))
    assert reform.gather(zeros, zeros, settings_of(gather=11), 0) == [*range(8), 9, 10, 11]
    assert reform.gather(zeros, zeros, settings_of(gather=12, first=20), 3) == list(range(12))


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_an_answer_from_the_whole_document_is_the_models_own(family: str) -> None:
    model = model_of(family)
    weights = weights_of(model)
    prefix, document, question = TOKENS[:3], TOKENS[3:30], TOKENS[30:35]
    everything = list(range(len(document)))
    ours = reform.answer_logits(weights, prefix, document, everything, question)
    np.testing.assert_array_equal(ours, llama_transcription.full_logits(weights, TOKENS[:35])[-1])
    output, _ = truth_of(model, TOKENS[:35])
    np.testing.assert_allclose(ours, output.logits[0, -1].numpy(), rtol=0, atol=1e-9)
    fewer = reform.answer_logits(weights, prefix, document, everything[:-1], question)
    assert np.abs(fewer - ours).max() > 1e-3
