"""What a model is called and shaped like decides its profile."""

import dataclasses
from itertools import product

import pytest

from longctx.core import methods
from longctx.core.common.errors import UsageError
from longctx.core.model.adapter import layers_of, register
from longctx.core.model.architectures import adapter_of
from longctx.core.profile import profile
from longctx.core.profile.described import HEADS, Described, Shape, full_layers

CODER = Shape("qwen2", 28, 1536, 12, 2)
QWEN = Shape("qwen2", 28, 3584, 28, 4)  # of two shipped profiles
OTHER = Shape("llama", 28, 1536, 12, 2)


def described(shape: Shape, *names: str, **more) -> Described:
    full = tuple(range(shape.num_hidden_layers))
    return Described(names, shape, full, **{"window": 4096, **more})


def found(*given) -> str | None:
    made = profile.made_for(described(*given))
    return made and made.name


def test_every_shipped_profile_says_its_shape_and_has_heads_in_it():
    for each in profile.shipped():
        assert each.shape, each.name
        options = profile.build(
            methods.load(each.method).Options, each.methods[each.method], each.name
        )
        options.require_heads(described(each.shape))


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b-instruct"])
def test_a_name_and_a_shape_that_fit_get_the_profile(name):
    assert found(QWEN, name) == "qwen2.5-7b"
    assert found(QWEN, "my-folder", name) == "qwen2.5-7b"


def test_a_model_of_another_shape_never_gets_it_whatever_it_is_called():
    assert found(OTHER, "qwen/qwen2.5-7b-instruct", "tiny", "qwen2.5-coder-1.5b-instruct") is None
    assert found(CODER, "qwen/qwen2.5-7b-instruct") == "qwen2.5-coder-1.5b"  # by its shape


def test_a_shape_alone_is_enough_where_one_profile_has_it_and_not_where_two_have():
    assert found(CODER, "a-fine-tune") == "qwen2.5-coder-1.5b"
    assert found(QWEN, "a-fine-tune") is None
    # That the same model has a second profile, for its name alone, makes it no other's.
    assert found(Shape("mistral", 40, 5120, 32, 8), "a-fine-tune") == "mistral-nemo"


def test_shapes_are_those_of_the_configurations(make_model, architecture):
    model = make_model(architecture)
    register()
    if architecture == "gpt_neox":  # the key that all of these tests' models are given is not its
        del model.config.num_key_value_heads
    layers = layers_of(model.base_model, adapter_of(model.config))
    shape = Shape.of(model.config)
    assert shape.model_type == model.config.model_type
    assert shape.num_hidden_layers == len(layers)
    assert {(x.query_heads, x.kv_heads) for x in layers} == {
        (shape.num_attention_heads, shape.num_key_value_heads)
    }
    full = tuple(layer.index for layer in layers if layer.window is None)
    assert full_layers(model.config) == full


WINDOWS = (64, 256, 1000, 2048, 4096, 8192, 32768, 131072, 1 << 20)


@pytest.mark.parametrize("name", methods.names())
def test_options_by_rule_fit_every_model(name):
    for layers, window in product((1, 2, 3, 10, 28, 80), WINDOWS):
        require_fit(name, layers, window)


def require_fit(name: str, layers: int, window: int) -> None:
    model = described(Shape("llama", layers, 64, 4, 1), "m", window=window)
    kind = methods.load(name).Options
    parts = {part: methods.load(part).Options.by_rule(model, window) for part in kind.parts}
    options = profile.build(kind, parts or kind.by_rule(model, window), name)
    assert options.fitted(window) == options  # nothing is left to be cut
    options.require_heads(model)
    for each in [getattr(options, part) for part in kind.parts] or [options]:
        gathered = getattr(each, "gather", None)
        assert gathered is None or 1 <= gathered < window


def test_a_rule_gives_heads_wherever_a_method_needs_some():
    model = described(CODER)
    heads = {name for name in methods.names() if HEADS in _fields(name)}
    assert heads == {"reform", "ltri"}
    for name in heads:
        assert methods.load(name).Options.by_rule(model, 4096)[HEADS]


def _fields(name: str) -> set[str]:
    return {field.name for field in dataclasses.fields(methods.load(name).Options)}


def test_no_layer_with_a_sliding_window_is_to_vote():
    model = dataclasses.replace(described(CODER), full_layers=(3, 9, 15, 27))
    rule = methods.load("ltri").Options.by_rule(model, 4096)
    assert [layer for layer, _, _ in rule[HEADS]] == [9, 15]
    low = dataclasses.replace(model, full_layers=(1, 2))
    assert [h[0] for h in methods.load("ltri").Options.by_rule(low, 4096)[HEADS]] == [2]
    none = dataclasses.replace(model, full_layers=())
    options = methods.load("ltri").Options(**methods.load("ltri").Options.by_rule(none, 4096))
    with pytest.raises(UsageError, match="only layers with full attention"):
        options.fitted(4096)
