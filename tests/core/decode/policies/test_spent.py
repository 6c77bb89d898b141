"""What answers are said to have attended to; that all policies say the same of the same: see
`test_contract.py`."""

import pytest
import torch
from decoded import ORDER, WIDE, step
from row_list import RowList

from longctx.core.contracts.memory import Place
from longctx.core.decode.policies import choose, load
from longctx.core.engine.encode import encode
from longctx.core.kv.prompt import Prompt
from longctx.core.methods import reattention
from longctx.core.model.adapter import Decoder

PROMPT, STEPS = 20, 12  # the windows of 24 fill up while the answer grows
NAMES = ["llama-default", "gemma3", "mistral-window"]
EXPECTED = {
    "llama-default": PROMPT + (STEPS + 1) / 2,
    "mistral-window": sum(min(PROMPT + n, 24) for n in range(1, STEPS + 1)) / STEPS,
}
EXPECTED["gemma3"] = sum(EXPECTED.values()) / 2


def after(decoder, text):
    """A policy after an answer to a prompt."""
    chosen = choose(text, {})
    prompt = Prompt(PROMPT + chosen.options.reserve(STEPS), chosen.options.observed)
    decoder.read(torch.tensor(ORDER[:PROMPT]), prompt)
    policy = load(chosen.name).Policy(chosen.options, prompt, WIDE)
    for token in ORDER[PROMPT : PROMPT + STEPS]:
        step(decoder, policy, token)
    return policy


@pytest.mark.parametrize("name", NAMES)
def test_layers_with_windows_attend_to_those(make_model, name):
    spent = after(Decoder(make_model(name, vocab_size=400)), "dense").spent()
    assert spent.attended == pytest.approx(EXPECTED[name])


def test_recycled_holds_no_more_copies_than_there_are_tokens(make_model):
    total = PROMPT + STEPS
    for name, text, copies in (
        ("llama-default", "recycled", total),
        ("llama-default", "recycled:budget=15", 15),
        ("mistral-window", "recycled", 0),
    ):
        spent = after(Decoder(make_model(name, vocab_size=400)), text).spent()
        assert spent.held == total + copies


def test_pages_are_scored_in_layers_with_full_attention(make_model):
    """Two of four."""
    for text in ("quest:budget=32", "raas:budget=128", "quest+raas:budget=32"):
        whole, half, none = (
            after(Decoder(make_model(name, vocab_size=400)), text).scored() for name in NAMES
        )
        assert (half, none) == (whole / 2, 0)


@pytest.mark.parametrize("policy", ["dense", "recycled:stride=2"])
@pytest.mark.parametrize("name", NAMES)
def test_over_what_was_kept_all_layers_count_too(make_model, name, policy):
    decoder, chosen = Decoder(make_model(name, vocab_size=400)), choose(policy, {})
    wide = reattention.Options(first=4, local=60, chunk=12, top_k=2, voted=5, span=4, gather=40)
    method = reattention.Method(wide, decoder.layers, Place())
    ids = torch.tensor(ORDER)
    list(encode(decoder, method, ids[:3], [ids[3:12]], RowList()))
    memory = method.recall()
    decoder.read(ids[12:PROMPT], memory)
    memory.begin_answer()
    policy = load(chosen.name).Recalling(chosen.options, memory, WIDE)
    for token in ORDER[PROMPT : PROMPT + STEPS]:
        step(decoder, policy, token)
    assert policy.spent().attended == pytest.approx(EXPECTED[name])
