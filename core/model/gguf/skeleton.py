"""The names and shapes of a model's parameters, from its configuration; no memory is taken."""

from typing import Any

import torch

from longctx.core.common import libraries


def shapes_of(config: Any) -> dict[str, torch.Size]:
    """The shape of each parameter of transformers' model, without a head tied to the embeddings.

    Args:
        config: a transformers configuration.
    """
    with torch.device("meta"):
        model = libraries.transformers().AutoModelForCausalLM.from_config(config)
    return {name: parameter.shape for name, parameter in model.named_parameters()}
