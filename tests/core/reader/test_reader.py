"""The reader: its network against the published one, and what it points at."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from longctx.core.common.errors import LongctxError
from longctx.core.reader import choosing, weights
from longctx.core.reader.choosing import choose, key
from longctx.core.reader.mpnet import MPNet
from longctx.core.reader.pointing import Pointed, ToRead, reader

TEXTS = [
    "The lighthouse at Skerry Point was kept by Ingrid Halvorsen from 1871 to 1902.",
    "Her brother Tobias repaired boats in the harbour and sold rope for nine shillings a coil.",
    "The great storm of 14 November 1893 broke the lantern, which cost 212 pounds to replace.",
    "Nothing else is known of the parish, except that its church was rebuilt twice.",
]


def made(layers: int, width: int, heads: int):
    """A small MPNet of transformers' with weights by chance, and the same one of ours."""
    from transformers import MPNetConfig, MPNetModel

    torch.manual_seed(0)
    config = MPNetConfig(
        vocab_size=97,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        layer_norm_eps=1e-5,
    )
    theirs = MPNetModel(config, add_pooling_layer=False).eval()
    own = {name: value.detach() for name, value in theirs.state_dict().items()}
    own["encoder.relative_attention_bias.weight"].normal_()
    head = {"head.weight": torch.randn(2, width), "head.bias": torch.randn(2)}
    return theirs, head, MPNet(layers, heads, own | head)


def test_its_network_is_the_published_one():
    theirs, head, ours = made(3, 32, 4)
    ids = torch.randint(3, 97, (2, 300))
    mask = torch.ones_like(ids)
    mask[1, 170:] = 0
    with torch.no_grad():
        states = theirs(ids, attention_mask=mask).last_hidden_state
    wanted = torch.nn.functional.linear(states, head["head.weight"], head["head.bias"])
    got = ours(ids, torch.tensor([300, 170]))
    assert torch.allclose(got[0], wanted[0], atol=1e-4)
    assert torch.allclose(got[1, :170], wanted[1, :170], atol=1e-4)


def test_it_points_at_the_answer_and_not_elsewhere():
    passages = [ToRead(text) for text in TEXTS]
    for question, answer in (
        ("Who kept the lighthouse?", "Ingrid Halvorsen"),
        ("How much did the lantern cost?", "212 pounds"),
        ("What did Tobias sell?", "rope"),
    ):
        read = reader("cpu").point(question, passages)
        best = choose(question, TEXTS, np.zeros(len(TEXTS)), read)[0].places[0]
        assert answer in TEXTS[best.passage][best.start : best.end]


def test_the_company_of_a_passage_changes_nothing():
    question = "Who kept the lighthouse?"
    alone = reader("cpu").point(question, [ToRead(TEXTS[0])])
    beside = reader("cpu").point(question, [ToRead(text) for text in [*TEXTS[1:], TEXTS[0]] * 3])
    own = [one for one in beside if one.passage == 3]
    assert [(one.start, one.end) for one in own] == [(one.start, one.end) for one in alone]
    assert [one.score for one in own] == pytest.approx([one.score for one in alone], abs=1e-3)


@pytest.mark.parametrize("text", ["", " \n", "...", "\u4e2d\u6587" * 900, "x" * 20_000])
def test_odd_passages_are_read(text):
    for one in reader("cpu").point("Who? " * 2000, [ToRead(text, "above"), ToRead(TEXTS[0])]):
        assert 0 <= one.start < one.end <= len([text, TEXTS[0]][one.passage])


def test_candidates_with_the_same_words_are_one(monkeypatch):
    weighed = {"score": 1.0, "margin": 0, "search": 0, "rank": 0, "said": -9.0, "agree": 1.0}
    config = replace(weights.config(), choice=weighed, likely=(0.0, 1.0, 0.0))
    monkeypatch.setattr(choosing, "config", lambda: config)
    texts = ["In Oslo.", "in \u201cOslo\u201d", "$ Bergen Who"]
    read = [
        Pointed(0, 3, 8, 1.0, 0),
        Pointed(1, 3, 9, 1.5, 0),
        Pointed(2, 2, 8, 2.0, 0),
        Pointed(2, 0, 1, 9.0, 0),
        Pointed(2, 9, 12, 5.0, 0),
    ]
    found = choose("who?", texts, np.zeros(3), read)
    said = [key(texts[p.passage][p.start : p.end]) for p in (c.places[0] for c in found)]
    assert said == ["oslo", "bergen", "who"]
    assert [one.passage for one in found[0].places] == [1, 0]
    assert found[0].score == pytest.approx(1.5 + np.log(2))
    assert sum(one.likely < 0.5 for one in found) == 3  # no one has half of the shares for sure


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_damaged_files_are_told_of(monkeypatch, tmp_path, name):
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    (tmp_path / name).write_bytes(b"{")
    read = {
        "config.json": weights.config.__wrapped__,
        "tokenizer.json": weights.tokenizer.__wrapped__,
    }
    with pytest.raises(LongctxError, match=name) as error:
        read.get(name, lambda: weights.loaded("cpu", torch.float32))()
    assert "--answer-by decode" in str(error.value)


def test_its_sizes_are_those_of_its_file():
    config = json.loads((weights.FOLDER / "config.json").read_text("utf-8"))
    assert set(config["choice"]) == {"score", "margin", "search", "rank", "said", "agree"}
    assert 0 < config["unsure"] < config["found"] < 1
