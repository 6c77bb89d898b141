"""The answer that the text has none: given only if the model is sure enough of it, or words say so.

A model that learnt to say so says it too often where a question is worded unlike the text. How
likely the phrase is tells right answers from wrong ones well, and a profile says from where on it
counts (docs/benchmarks/accuracy.md, "Answers").
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

PHRASE = "not in the text"
_PHRASES = (PHRASE, "not in the document")  # models learnt either


def is_refusal(answer: str) -> bool:
    """Whether an answer says that the text has none, and nothing more."""
    return answer.strip().removesuffix(".").casefold() in _PHRASES


def reluctant(tokenizer: Any, least: float) -> Callable[[Tensor], Tensor] | None:
    """A change of the first token's logits that rules the phrase out if it is not likely enough.

    With it goes any other answer that begins with the same word.

    Args:
        tokenizer: of the model that answers.
        least: probability of the phrase's first token from which it may be given; 0: always.

    Returns:
        From logits (1, vocabulary) to such logits, without waiting for the device; None: no change.
    """
    if not least:
        return None
    firsts = first_tokens(tokenizer)

    def change(logits: Tensor) -> Tensor:
        likely = torch.softmax(logits.float(), -1)[:, firsts].sum(-1, keepdim=True)
        changed = logits.clone()
        changed[:, firsts] = -torch.inf
        return torch.where(likely < least, changed, logits)

    return change


def first_tokens(tokenizer: Any) -> list[int]:
    """The tokens that the phrase may begin with, with a space before it or without."""
    encode = tokenizer.backend_tokenizer.encode
    spelled = (encode(text, add_special_tokens=False).ids for text in (PHRASE, f" {PHRASE}"))
    return sorted({ids[0] for ids in spelled if ids})
