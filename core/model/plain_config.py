"""The configuration of a model that `plain.py` runs, and whether it runs it. Imports no torch.

Every setting must be listed here: one that is not may change what a model computes.
"""

import json
from collections.abc import Mapping
from typing import Any

from longctx.core.common import libraries

KIND = "llama"
# Settings of a configuration that say how a model computes; and those that do not.
SIZES = frozenset(
    (
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
        *("num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps"),
        *("rope_parameters", "tie_word_embeddings", "attention_bias", "mlp_bias", "hidden_act"),
        *("max_position_embeddings", "model_type", "pretraining_tp", "pad_token_id"),
    )
)
OTHERS = frozenset(
    (
        *("architectures", "attention_dropout", "bos_token_id", "chunk_size_feed_forward"),
        *("dtype", "eos_token_id", "id2label", "initializer_range", "is_encoder_decoder"),
        *("label2id", "output_attentions", "output_hidden_states", "problem_type"),
        *("return_dict", "transformers_version", "unk_token_id", "use_cache"),
    )
)
RUN_BY = "longctx.core.model.plain"  # in the key of a check that is remembered


class PlainConfig:
    """A configuration of the usual form; its attributes are named as in transformers."""

    def __init__(self, values: Mapping[str, Any]):
        vars(self).update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def to_dict(self) -> dict[str, Any]:
        """What it says."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def to_json_string(self, use_diff: bool = False) -> str:
        """What it says, always whole, and that it is run by this module."""
        return json.dumps({**self.to_dict(), "run_by": RUN_BY}, sort_keys=True)

    def full(self) -> Any:
        """The same as a configuration of transformers."""
        return libraries.transformers().AutoConfig.for_model(**self.to_dict())


def fits(values: Mapping[str, Any]) -> bool:
    """Whether a configuration, as a whole dict, is of the form that this module computes."""
    rope, pad = values.get("rope_parameters"), values.get("pad_token_id")
    return (
        values.get("model_type") == KIND
        and SIZES <= set(values) <= SIZES | OTHERS
        and isinstance(rope, dict)
        and set(rope) == {"rope_theta", "rope_type"}
        and rope["rope_type"] == "default"
        and values["hidden_act"] == "silu"
        and values["pretraining_tp"] == 1
        and (pad is None or 0 <= pad < values["vocab_size"])  # else transformers refuses it
    )
