"""What a model's own files say of it, as far as profiles and methods ask: names, shape, window.

A configuration is read by its attributes: nothing here imports model code.
"""

from dataclasses import asdict, dataclass
from typing import Any, Self

HEADS = "heads"  # the option of a method that names heads of a model


@dataclass(frozen=True)
class Shape:
    """The sizes that say which heads there are, named as in a config.json.

    A fine-tuned model has the shape of what it was made from, and mostly its heads.
    """

    model_type: str
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int

    @classmethod
    def of(cls, config: Any) -> Self:
        """The shape in a transformers configuration."""
        heads = config.num_attention_heads
        return cls(
            config.model_type,
            config.num_hidden_layers,
            config.hidden_size,
            heads,
            getattr(config, "num_key_value_heads", None) or heads,
        )

    def differences(self, other: "Shape") -> list[str]:
        """What this shape and another one do not share, for people."""
        mine, theirs = asdict(self), asdict(other)
        return [f"{k} {mine[k]}, not {theirs[k]}" for k in mine if mine[k] != theirs[k]]


@dataclass(frozen=True)
class Described:
    """A model by its own files.

    Attributes:
        names: what it is called: by the user, by its folder, by its config.json.
        shape: its sizes.
        full_layers: indices of its layers without a sliding window.
        window: tokens that it was trained on.
        has_template: its tokenizer has a chat template.
    """

    names: tuple[str, ...]
    shape: Shape
    full_layers: tuple[int, ...]
    window: int
    has_template: bool = False


def full_layers(config: Any) -> tuple[int, ...]:
    """The layers without a sliding window of a transformers configuration."""
    count = config.num_hidden_layers
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if window is None or not getattr(config, "use_sliding_window", True):
        return tuple(range(count))
    if not kinds:
        return ()
    return tuple(i for i, kind in enumerate(kinds) if kind == "full_attention")
