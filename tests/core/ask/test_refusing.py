"""The answer that the text has none: from which probability on it is given."""

import pytest
import torch

from longctx.core.ask.refusing import PHRASE, is_refusal, reluctant
from longctx.core.common.errors import UsageError
from longctx.core.model.files import open_model_files
from longctx.core.profile.reading import Reading


@pytest.fixture(scope="module")
def tokenizer():
    return open_model_files("tiny").tokenizer


def logits_with(tokenizer, likely: float) -> tuple[torch.Tensor, list[int]]:
    """Logits under which the phrase begins with a probability, halved over its two spellings."""
    encode = tokenizer.backend_tokenizer.encode
    spelled = (encode(text, add_special_tokens=False).ids[0] for text in (PHRASE, f" {PHRASE}"))
    firsts = sorted({*spelled})
    weights = torch.full((1, 8192), (1 - likely) / (8192 - len(firsts)))
    weights[:, firsts] = likely / len(firsts)
    return weights.log(), firsts


@pytest.mark.parametrize(
    ("answer", "refused"),
    [("not in the text", True), ("Not in the document.\n", True), ("It is not in the text", False)],
)
def test_a_refusal_is_a_phrase_and_nothing_more(answer, refused):
    assert is_refusal(answer) == refused


@pytest.mark.parametrize("likely", [0.3, 0.84, 0.86, 0.99])
def test_the_phrase_is_ruled_out_below_the_probability_and_nothing_else_changes(tokenizer, likely):
    logits, firsts = logits_with(tokenizer, likely)
    change = reluctant(tokenizer, 0.85)
    assert change is not None
    changed = change(logits)
    if likely > 0.85:
        assert torch.equal(changed, logits)
        return
    assert changed[:, firsts].isneginf().all()
    others = [token for token in range(8192) if token not in firsts]
    assert torch.equal(changed[:, others], logits[:, others])
    assert int(changed.argmax()) not in firsts


def test_a_profile_that_says_nothing_changes_nothing(tokenizer):
    assert reluctant(tokenizer, Reading().refusal) is None


@pytest.mark.parametrize("value", [-0.1, 1.5])
def test_it_is_a_probability(value: float):
    with pytest.raises(UsageError, match="refusal"):
        Reading(refusal=value)
