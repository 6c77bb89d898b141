"""Prompts that are read side by side are what they are when each is read by itself."""

import pytest
import torch

from longctx.core.kv import packed
from longctx.core.kv.packed import groups, read_packed
from longctx.core.kv.prompt import Prompt, prompt_bytes
from longctx.core.model.adapter import Decoder
from longctx.core.model.split import SplitDecoder

LENGTHS = (7, 20, 1, 33, 12)
IDS = torch.randint(0, 61, (sum(LENGTHS),), generator=torch.Generator().manual_seed(5))
QUESTION = torch.tensor([3, 1, 4, 1, 5])


# One each with windows, experts, sinks, and frequencies that depend on the length.
@pytest.mark.parametrize(
    "name", ["llama-default", "gemma2", "qwen3_moe", "gpt_oss", "llama-dynamic"]
)
@pytest.mark.parametrize("most", [30, 1024])
def test_each_prompt_is_as_when_it_is_read_alone(make_model, monkeypatch, name, most):
    monkeypatch.setattr(packed, "MOST", most)
    decoder, texts = Decoder(make_model(name)), IDS.split(LENGTHS)
    expected = []
    for ids in texts:
        prompt = Prompt(64)
        first = decoder.read(ids, prompt)[-1]
        expected.append((first, decoder.read(QUESTION, prompt)[-1]))
    for other in (decoder, SplitDecoder(decoder, ("cpu", "cpu"))):
        prompts = [Prompt(64) for _ in texts]
        first = read_packed(other, texts, prompts)
        then = read_packed(other, [QUESTION] * len(texts), prompts)
        assert [prompt.length for prompt in prompts] == [n + len(QUESTION) for n in LENGTHS]
        close(first, torch.stack([one for one, _ in expected]))
        close(then, torch.stack([one for _, one in expected]))


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_passes_are_bounded_and_in_order():
    cut = [[*some] for some in groups(LENGTHS, 30)]
    assert cut == [[0, 1, 2], [3], [4]]  # one that is longer is read alone
    assert [*groups([], 30)] == []


@pytest.mark.parametrize("name", ["llama-default", "llama-dynamic"])
def test_the_bytes_of_a_prompt_are_known_before_it_is_read(make_model, name):
    decoder, prompt = Decoder(make_model(name)), Prompt(70)
    decoder.read(QUESTION, prompt)
    caches = prompt.caches.values()
    held = [x for c in caches for x in (c.keys, c.values, c._plain) if x is not None]
    assert prompt.held_bytes == sum(x.nbytes for x in held)
    assert prompt_bytes(decoder.layers, 70, held[0].itemsize) == prompt.held_bytes
