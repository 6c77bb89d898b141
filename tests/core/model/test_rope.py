"""Rotary embeddings: whether they are the kernels' rotation, and the tables that say so."""

import pytest
import torch

from longctx.core.kv.prompt import Rotation
from longctx.core.model.adapter import Decoder
from longctx.core.model.rope import NoRope, Rope
from longctx.kernels.selected_attention_ref import rotate_half

OTHERS = ("cohere2", "glm4", "gpt_oss")  # interleaved, interleaved in a part, half tables


def rotated_layers(make_model, name):
    return [layer for layer in Decoder(make_model(name)).layers if isinstance(layer.rope, Rope)]


def test_where_halves_turn_the_formula_is_the_rotation(architecture, make_model):
    layers = rotated_layers(make_model, architecture)
    assert layers
    for layer in layers:
        assert layer.rope.half_split == (architecture not in OTHERS)
        if not layer.rope.half_split:
            continue
        x = torch.randn(2, 40, layer.head_dim, generator=torch.Generator().manual_seed(1))
        cos, sin = layer.rope.tables(40, x)
        ours, theirs = rotate_half(x, cos[:40], sin[:40]), layer.rotate(x, slice(40), 40)
        assert torch.allclose(ours, theirs, atol=1e-6)
        assert not torch.allclose(ours, x, atol=0.1)


def test_a_rotation_is_taken_back(architecture, make_model):
    for layer in Decoder(make_model(architecture)).layers:
        x = torch.randn(2, 40, layer.head_dim, generator=torch.Generator().manual_seed(1))
        there = layer.rotate(x, slice(40), 90)
        assert torch.allclose(layer.rope.unrotate(there, slice(40), 90), x, atol=1e-5)


@pytest.mark.parametrize("name", ["llama-dynamic", "llama-longrope"])
def test_asking_leaves_the_frequencies_as_they_are(make_model, name):
    rope = rotated_layers(make_model, name)[0].rope
    x = torch.randn(2, 90, 8, generator=torch.Generator().manual_seed(1))
    before = rope.rotate(x, slice(90), 90)
    assert rope.half_split
    rope._tables.clear()
    assert torch.equal(rope.rotate(x, slice(90), 90), before)


@pytest.mark.parametrize("name", ["llama-dynamic", "llama-longrope"])
def test_a_window_of_one_place_has_a_basis(make_model, name):
    rope = rotated_layers(make_model, name)[0].rope
    assert rope.same_basis(1, 2)
    assert rope.same_basis(20, 1)
    assert not rope.same_basis(1, 90)


@pytest.mark.parametrize("name", ["llama-default", "cohere2"])
def test_what_rotates_single_tokens_holds_its_tables(make_model, name):
    layer = rotated_layers(make_model, name)[0]
    like = torch.randn(2, 1, layer.head_dim, generator=torch.Generator().manual_seed(1))
    rotation = Rotation(layer, 40, like)
    layer.rope._tables.clear()
    q = rotation.put(like, like, like, torch.tensor([7]), [])
    assert not layer.rope._tables  # nothing was made anew
    assert torch.allclose(q, layer.rotate(like, slice(7, 8), 40), atol=1e-6)


def test_the_tables_are_of_the_dtype_of_what_is_rotated(make_model):
    rope = rotated_layers(make_model, "llama-default")[0].rope
    cos, sin = rope.tables(20, torch.empty(0, dtype=torch.bfloat16))
    assert cos.dtype == sin.dtype == torch.bfloat16
    assert len(cos) >= 20


@pytest.mark.parametrize(
    "apply",
    [
        lambda q, k, cos, sin: (q, k),
        lambda q, k, cos, sin: (rotate_half(q.flip(-1), cos[0], sin[0]), k),
        lambda q, k, cos, sin: (rotate_half(q, cos[0], -sin[0]), k),  # backwards
    ],
    ids=["nothing", "mirrored", "backwards"],
)
def test_another_rotation_is_told(make_model, apply):
    module = Decoder(make_model("llama-default"))._base.rotary_emb
    assert not Rope(module, apply).half_split


def test_a_part_that_is_not_the_leading_one_is_told(make_model):
    def trailing(q, k, cos, sin):
        R = cos.shape[-1]
        return torch.cat([q[..., :-R], rotate_half(q[..., -R:], cos[0], sin[0])], dim=-1), k

    module = Decoder(make_model("llama-default"))._base.rotary_emb
    assert not Rope(module, trailing).half_split


def test_layers_without_rotation_have_no_tables():
    assert NoRope().half_split
    assert NoRope().tables(9, torch.empty(0)) == (None, None)
