"""Runs a decode policy over a prompt and the tokens of an answer, for tests."""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import torch
from decoded import step
from transformers import PreTrainedModel

from longctx.core.ask.recompute import recompute
from longctx.core.contracts.policy import Policy, PolicyOptions
from longctx.core.model.adapter import Decoder


def begin(
    model: PreTrainedModel, module: ModuleType, options: PolicyOptions, ids: list[int], answer: int
) -> tuple[Decoder, Policy, torch.Tensor]:
    """The model, a policy over a prompt that was read, and its last hidden state (1, E)."""
    decoder, prompt = Decoder(model), torch.tensor(ids)
    cache, hidden = recompute(decoder, prompt[:0], prompt[:0], prompt, answer, options.observed)
    return decoder, module.Policy(options, cache, 1 << 20), hidden


def run(
    model: PreTrainedModel,
    module: ModuleType,
    options: PolicyOptions,
    ids: list[int],
    answer: list[int],
    after: Callable[[Policy], None] = lambda policy: None,
) -> tuple[np.ndarray, Policy]:
    """Logits (1 + tokens, vocabulary) after a prompt and each token of an answer, and the policy.

    `after` gets the policy after the prompt and after each token.
    """
    decoder, policy, hidden = begin(model, module, options, ids, len(answer))
    found = [decoder.logits(hidden)[0].numpy()]
    after(policy)
    for token in answer:
        found.append(step(decoder, policy, token))
        after(policy)
    return np.array(found), policy
