"""Vectors of texts: those of the published network, alone or in company, by torch and by numpy."""

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from longctx.core.dense import texts, weights
from longctx.core.dense.bert import Bert
from longctx.core.dense.question import question_vector

TEXTS = [
    "Who found the map?",
    "The keeper of the lighthouse was called Aldous Crane, and he found it under the stairs.",
    "def max_pool_size(n=50):\n    return n * 2\n",
    "",
    "word " * 400,
]


def published() -> BertModel:
    """The network of a library, with the shipped weights."""
    config = weights.config()
    sizes = BertConfig(
        vocab_size=len(weights.whole("embeddings.word_embeddings.weight")),
        hidden_size=config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        intermediate_size=config.inner,
        max_position_embeddings=config.positions,
        layer_norm_eps=config.epsilon,
    )
    model = BertModel(sizes, add_pooling_layer=False).eval()
    arrays = {name: torch.from_numpy(weights.whole(name)) for name in weights.names()}
    missing, unexpected = model.load_state_dict(arrays, strict=False)
    assert not [name for name in missing if not name.endswith("position_ids")]
    assert not [name for name in unexpected if not name.endswith("position_ids")]
    return model


@pytest.fixture
def exact(monkeypatch) -> None:
    """The encoder in float32."""
    texts._encoder.cache_clear()
    monkeypatch.setattr(texts, "choose_dtype", lambda name, device: torch.float32)
    yield
    texts._encoder.cache_clear()


def test_hidden_states_are_those_of_the_published_network():
    arrays = {name: torch.from_numpy(weights.whole(name)) for name in weights.names()}
    ids = torch.tensor([weights.tokenizer().encode(text).ids for text in TEXTS[1:2]])
    padded = torch.cat([ids, ids.new_full((1, 5), 7)], dim=1)
    with torch.inference_mode():
        wanted = published()(input_ids=ids).last_hidden_state
    found = Bert(weights.config(), arrays)(padded, torch.tensor([ids.shape[1]]))
    assert torch.allclose(found[:, : ids.shape[1]], wanted, atol=1e-4)


@pytest.mark.usefixtures("exact")
def test_a_question_has_the_same_vector_by_numpy():
    by_torch = texts.encoded(TEXTS, "cpu").numpy()
    for text, vector in zip(TEXTS, by_torch, strict=True):
        assert np.allclose(question_vector(text), vector, atol=1e-5), text
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_text_has_its_vector_in_any_company(monkeypatch, dtype):
    texts._encoder.cache_clear()
    monkeypatch.setattr(texts, "choose_dtype", lambda name, device: dtype)
    alone = torch.cat([texts.encoded([text], "cpu") for text in TEXTS])
    together = texts.encoded(TEXTS * 3, "cpu")
    texts._encoder.cache_clear()
    assert (alone.repeat(3, 1) - together).abs().max() < (1e-5 if dtype == torch.float32 else 1e-2)


def test_what_was_asked_for_is_nearest():
    passages = [
        "He drove the cattle to the market before dawn.",
        "The chart had been hidden in the tower by a cook, who sold it.",
        "Quarterly revenue rose by nine percent.",
    ]
    cosines = texts.encoded(passages, "cpu").numpy() @ question_vector("Where was the map kept?")
    assert cosines.argmax() == 1


def test_stored_vectors_are_near_the_exact_ones():
    exact = texts.encoded(TEXTS, "cpu")
    stored = texts.quantized(exact)
    assert (stored["vectors"].dtype, stored["scales"].dtype) == (np.int8, np.float16)
    again = stored["vectors"].astype(np.float32) * stored["scales"][:, None].astype(np.float32)
    assert np.abs((again * exact.numpy()).sum(1) - 1).max() < 2e-3


def test_no_texts_have_no_vectors():
    assert texts.encoded([], "cpu").shape == (0, weights.WIDTH)


def test_each_text_is_reported_once():
    counts = []
    texts.encoded(TEXTS * 40, "cpu", counts.append)
    assert sum(counts) == len(TEXTS) * 40
    assert len(counts) > 1
