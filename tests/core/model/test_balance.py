"""Layers over devices: stages that take equal time, within what each device may hold."""

from itertools import combinations, pairwise

import pytest

from longctx.core.engine.staying import always
from longctx.core.model.adapter import Decoder
from longctx.core.model.balance import Reading, balanced, costs_of
from longctx.core.model.split import SplitDecoder, _above


@pytest.mark.parametrize(
    ("costs", "limits", "counts"),
    [
        ([1] * 5, [5, 5], [3, 2]),
        ([1] * 4, [4, 4], [2, 2]),
        ([1] * 2, [9, 9, 9], [1, 1, 0]),
        ([1] * 5, [1, 9], [1, 4]),
        ([4, 1, 1, 1, 1], [9, 9], [1, 4]),  # by what they take, not by their number
        ([*[1] * 21, 0.1], [32] * 4, [6, 5, 5, 6]),  # of the last one only a part runs
        ([], [3, 3], [0, 0]),
    ],
)
def test_how_layers_are_split(costs, limits, counts):
    assert balanced(costs, limits) == counts


def test_no_other_split_has_a_faster_slowest_stage():
    costs = [3, 1, 4, 1, 5, 9, 2, 6]
    ends = [(0, *cut, len(costs)) for cut in combinations(range(1, len(costs)), 2)]
    least = min(max(sum(costs[a:b]) for a, b in pairwise(e)) for e in ends)
    counts = balanced(costs, [8, 8, 8])
    starts = [sum(counts[:n]) for n in range(4)]
    parts = [sum(costs[a:b]) for a, b in pairwise(starts)]
    assert max(parts) == least
    with pytest.raises(ValueError, match="do not fit"):
        balanced(costs, [2, 2, 3])


def test_what_a_layer_takes(make_model):
    """A window, and only the projections of the last layer, take less; experts by their share."""
    decoder = Decoder(make_model("llama-default"))
    full = costs_of(decoder, decoder._base.layers, Reading(3, 16, 32))
    part = costs_of(decoder, decoder._base.layers, Reading(3, 16, 32, last_in_part=True))
    assert len(full) == 3
    assert full[0] == full[2] > part[2] > 0
    assert full[:2] == part[:2]
    config, layer = decoder.config, decoder.layers[0]
    matrices = sum(x.numel() for x in decoder._base.layers[0].parameters() if x.ndim == 2)
    assert full[0] == matrices + 2 * layer.query_heads * layer.head_dim * (32 + 8)
    assert config.hidden_size * (layer.query_heads + 2 * layer.kv_heads) * layer.head_dim == part[2]


def test_layers_that_a_method_does_not_run_get_the_room_that_is_left(make_model):
    assert _above([1, 1], [2, 3], 2) == [1, 1]
    assert _above([3, 1], [4, 4], 3) == [1, 2]
    decoder = Decoder(make_model("llama-default"))
    layer = sum(weight.nbytes for weight in decoder._base.layers[0].parameters())
    whole = sum(weight.nbytes for weight in decoder._model.parameters())
    parted = SplitDecoder(decoder, ["cpu", "cpu:0"], whole - 2 * layer)  # ends and two layers
    assert parted.limits[0] == 2
    parted.spread(Reading(2), always)
    assert parted.places == ["cpu", "cpu:0", "cpu", "cpu:0"]
