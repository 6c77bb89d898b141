"""Sampling options and stop strings, as a user or a profile may set them.

Only the values, each checked when given; `decode.py` uses them. Imports no model library, so that
a wrong value is reported before one is loaded.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from longctx.core.common.errors import UsageError

COLDEST = 1e-4  # logits divided by much less overflow


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen, and what ends the answer; None defers to the profile.

    Attributes:
        max_new_tokens: length limit of the answer.
        temperature: 0, the default, always takes the most likely token.
        top_p: share of probability to sample from, with a temperature above 0.
        top_k: number of tokens to sample from, with a temperature above 0.
        min_p: least probability of a sampled token, as a share of the most likely one's, with a
            temperature above 0.
        repetition_penalty: above 1 makes every token that the model has seen less likely, those of
            the document and the question included.
        seed: makes sampling repeatable; a different one each time by default.
        stop: texts before which the answer ends.

    Raises:
        UsageError: a value is out of range.
    """

    max_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise UsageError(
                f"cannot generate {self.max_new_tokens} tokens",
                "",
                "Give --max-new-tokens 1 or more.",
            )
        # Written so that NaN is out of every range.
        _require("temperature", self.temperature, _is_warmth, f"0, or {COLDEST} or more")
        _require("top-p", self.top_p, lambda p: 0 < p <= 1, "above 0 and at most 1")
        _require("top-k", self.top_k, lambda k: k >= 1, "1 or more")
        _require("min-p", self.min_p, lambda p: 0 <= p <= 1, "from 0 to 1")
        _require(
            "repetition-penalty", self.repetition_penalty, lambda r: 0 < r < math.inf, "above 0"
        )
        _require("seed", self.seed, lambda s: 0 <= s < 1 << 63, "from 0 to 2^63 - 1")
        if "" in (self.stop or ()):
            raise UsageError("cannot stop at an empty text", "--stop ''", "Give a text to stop at.")

    def over(self, defaults: "Sampling") -> "Sampling":
        """These choices, with the defaults for any that are None."""
        chosen = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(defaults, **{k: v for k, v in chosen.items() if v is not None})


def _is_warmth(temperature: float) -> bool:
    return temperature == 0 or COLDEST <= temperature < math.inf


def _require(name: str, value: Any, fits: Any, range_: str) -> None:
    if value is not None and not fits(value):
        raise UsageError(
            f"cannot use {name} {value}", "it is out of range", f"Give --{name} {range_}."
        )
