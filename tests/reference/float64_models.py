"""Small random models in float64, the tokens that they read, and what transformers says of them.

transformers' decoders compute norms and the eager softmax in float32 even with float64 weights.
`exact` lifts that by letting ``torch.float32`` mean float64 while the model runs; the rotary tables
stay the float32 that they are.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from llama_transcription import Weights
from llama_transcription import weights_of as weights_of_state
from transformers import PreTrainedModel

from longctx.core.contracts.memory import Place

# Tokens recur nowhere: equal keys, and so ties that rounding may turn over, have tests by name.
ORDER = np.random.default_rng(7).permutation(400).tolist()
WIDE = Place(dtype=torch.float64)


@contextmanager
def exact() -> Iterator[None]:
    """Lets transformers' explicit float32 steps run in float64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float32", torch.float64)
        yield


def float64_model(
    make_model: Callable[..., PreTrainedModel], name: str = "llama-default", **changes: Any
) -> PreTrainedModel:
    """A model of `make_model` in float64 that knows all tokens of `ORDER`."""
    return make_model(name, torch.float64, **{"vocab_size": len(ORDER)} | changes)


def weights_of(model: PreTrainedModel) -> Weights:
    """The transcriptions' weights of a transformers model."""
    state, config = dict(model.state_dict()), model.config
    if config.tie_word_embeddings:
        del state["lm_head.weight"]  # as in a saved file
    names = ["num_hidden_layers", "num_attention_heads", "num_key_value_heads"]
    names += ["hidden_size", "rms_norm_eps"]
    numbers = {name: getattr(config, name) for name in names}
    numbers["head_dim"] = model.model.layers[0].self_attn.head_dim
    numbers["rope_theta"] = config.rope_parameters["rope_theta"]
    numbers["sliding_window"] = getattr(config, "sliding_window", None)
    return weights_of_state(state, numbers)


def own_logits(model: PreTrainedModel, ids: list[int]) -> np.ndarray:
    """The logits of transformers' own eager attention after each token, (T, vocabulary)."""
    model.set_attn_implementation("eager")
    with torch.no_grad(), exact():
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def largest_difference(found: Iterable[np.ndarray], expected: Iterable[np.ndarray]) -> float:
    """Of arrays in pairs, as many on both sides; nan where one of them has it."""
    return np.max([np.abs(a - b).max() for a, b in zip(found, expected, strict=True)])


def same_to_the_bit(found: Iterable[np.ndarray], expected: Iterable[np.ndarray]) -> bool:
    """Of arrays in pairs, as many on both sides."""
    return all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
