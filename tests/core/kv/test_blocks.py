"""Blocks of keys and values in memory and on disk, what is known of them, and their own maps."""

import pytest
import torch
from row_list import RowList

from longctx.core.contracts.memory import HERE
from longctx.core.kv.block_index import Forms, Index, Known, RowForm
from longctx.core.kv.block_options import BlockOptions
from longctx.core.kv.blocks import KeptBlocks, block_rows
from longctx.core.kv.streaming_window import Near, at_one_distance, near_of, own_maps
from longctx.core.model.adapter import Layer
from longctx.core.model.rope import NoRope

SIZES = BlockOptions(first=3, local=8, block=4, chunk=4, retrieved=2, cached=3)
H, G, D = 4, 2, 8


def layer_of(**more):
    given = {"index": 0, "query_heads": H, "kv_heads": G, "head_dim": D, "scale": 0.4}
    return Layer(**(given | {"window": None, "rope": NoRope()} | more))


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def kept_of(tokens, prefix=2, dtype=torch.float32):
    """Keys and values of random tokens, and what a document has of them."""
    layer, sink = layer_of(), RowList()
    kept = KeptBlocks((layer,), dtype, HERE, SIZES)
    k, v = random(G, tokens, D), random(G, tokens, D) + 1
    kept.append(layer, k, v)
    sink.append("kv", kept.rows(prefix))
    return kept, sink, k.transpose(0, 1), v.transpose(0, 1)


# --- keys and values ---


def test_the_input_is_divided_into_first_tokens_blocks_and_local_window():
    assert block_rows(torch.tensor([0, 2]), SIZES).tolist() == [3, 4, 5, 6, 11, 12, 13, 14]
    kept, _, k, v = kept_of(25)
    kv = kept.layer(0)
    assert (SIZES.left(25), SIZES.start(25)) == (3, 15)
    assert torch.equal(kv.initial()[0], k[:3])
    assert torch.equal(kv.latest(15)[1], v[15:])
    keys, values = kv.blocks(torch.tensor([0, 2]))
    assert torch.equal(keys, torch.cat([k[3:7], k[11:15]]))
    assert torch.equal(values, torch.cat([v[3:7], v[11:15]]))


@pytest.mark.parametrize("prefix", [0, 2, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_what_is_restored_gives_the_same_rows(prefix, dtype):
    kept, sink, *_ = kept_of(27, prefix, dtype)
    restored = KeptBlocks((layer_of(),), dtype, HERE, SIZES)
    restored.restore(kept.snapshot(), sink, reading=False)
    ours, theirs = restored.layer(0), kept.layer(0)
    assert ours.on_disk.blocks == 4
    assert ours.length == theirs.length == 27
    for chosen in ([0, 1], [1, 3], []):
        index = torch.tensor(chosen, dtype=torch.int64)
        for pair in zip(ours.blocks(index), theirs.blocks(index), strict=True):
            assert torch.equal(*pair)
    for name, given in (("initial", ()), ("latest", (19,))):
        pairs = zip(getattr(ours, name)(*given), getattr(theirs, name)(*given), strict=True)
        assert all(torch.equal(*pair) for pair in pairs)


def test_blocks_that_leave_while_a_question_is_read_stay_in_memory():
    kept, sink, *_ = kept_of(27)
    restored = KeptBlocks((layer_of(),), torch.float32, HERE, SIZES)
    restored.restore(kept.snapshot(), sink, reading=False)
    forks = [restored.fork(), kept.fork()]
    k, v = random(G, 9, D), random(G, 9, D)
    ours, theirs = (fork.append(layer_of(), k, v) for fork in forks)
    chosen = torch.tensor([1, 4, 5])
    for pair in zip(ours.blocks(chosen), theirs.blocks(chosen), strict=True):
        assert torch.equal(*pair)
    assert sorted(ours.on_disk.cache.worth) == [1]
    ours.used(chosen, torch.tensor([0.5, 9.0, 9.0]))
    assert ours.on_disk.cache.worth == {1: 0.5}
    assert restored.layer(0).length == 27


def test_a_short_document_is_all_in_memory():
    kept, sink, k, _ = kept_of(10)
    restored = KeptBlocks((layer_of(),), torch.float32, HERE, SIZES)
    restored.restore(kept.snapshot(), sink, reading=False)
    assert restored.layer(0).on_disk is None
    assert torch.equal(restored.layer(0).latest(0)[0], k)


# --- what is known of blocks ---

FORMS = Forms(0, {"vectors": RowForm((2,))}, {"spans": RowForm((), torch.int64)}, 1, H)


def test_rows_of_a_fork_lie_behind_those_of_the_original():
    index = Index(FORMS.index, HERE)
    index.append({"vectors": torch.ones(60, 2)}, 60)
    fork = index.fork()
    for _ in range(2):
        fork.append({"vectors": torch.full((70, 2), 5.0)}, 70)
    assert (index.length, fork.length) == (60, 200)
    assert torch.equal(index.rows["vectors"], torch.ones(60, 2))
    assert (fork.rows["vectors"][60:] == 5).all()


def test_attention_received_is_added_up_until_a_block_leaves():
    known = Known(FORMS, SIZES, HERE)
    known.give(torch.ones(1, 6))
    known.give(torch.arange(9.0)[None])
    received, _ = known.leave(1)
    assert received.tolist() == [[[1, 2, 3, 4]]]
    known.give(torch.ones(1, 6))
    assert known.leave(1)[0].tolist() == [[[6, 7, 7, 8]]]


def test_a_block_is_noted_when_its_last_row_is_there():
    known, noted = Known(FORMS, SIZES, HERE), []

    def note(maps):
        noted.append(maps)
        return {"spans": maps.sum((1, 2, 3)).long()}

    rows = torch.eye(4).expand(H, 4, 4)  # of four tokens
    first = rows.clone()
    first[:, 3] = 0
    known.give(torch.ones(1, 7))
    known.add_maps(torch.stack([rows, first]), note)  # one whole block, and three tokens
    assert [len(maps) for maps in noted] == [1]
    known.give(torch.ones(1, 8))
    known.add_maps((rows - first)[None], note)  # the fourth
    assert torch.equal(noted[1], rows[None])
    assert known.leave(1)[1]["spans"].tolist() == [4 * H]
    assert known.saved()["notes.spans.0"].tolist() == [4 * H]


def test_what_is_known_is_restored():
    known = Known(FORMS, SIZES, HERE)
    known.give(random(1, 10))
    known.add_maps(random(3, H, 4, 4).tril(), lambda maps: {"spans": torch.arange(len(maps))})
    known.index.append({"vectors": random(3, 2)}, 3)
    saved, again = known.saved(), Known(FORMS, SIZES, HERE)
    assert {*saved} == {*known.names}
    assert saved["map.0"].shape == (H, 2, 4)
    again.restore(saved, SIZES.first + 3 * SIZES.block + 10)
    assert all(torch.equal(x, saved[name]) for name, x in again.saved().items())


# --- the window ---


def whole(layer, near_q, k, v, far_k, far_v):
    """Attention to [far | local] by one softmax, NoPE: (H, T, D), and its weights (H, T, F + W)."""
    T, W, F = near_q.shape[1], k.shape[1], far_k.shape[1]
    keys, values = (torch.cat(x, dim=1).repeat_interleave(2, 0) for x in ((far_k, k), (far_v, v)))
    logits = near_q @ keys.mT * layer.scale
    if layer.softcap:
        logits = torch.tanh(logits / layer.softcap) * layer.softcap
    later = torch.arange(W) > torch.arange(W - T, W)[:, None]
    logits[..., F:].masked_fill_(later, -torch.inf)
    if layer.sinks is not None:
        logits = torch.cat([logits, layer.sinks.view(H, 1, 1).expand(-1, T, 1)], dim=-1)
    weights = torch.softmax(logits, dim=-1)[..., : F + W]
    return weights @ values, weights


@pytest.mark.parametrize("T", [1, 5])
@pytest.mark.parametrize(
    "more", [{}, {"softcap": 2.0}, {"sinks": torch.tensor([0.5, -1.0, 2.0, 0.0])}], ids=str
)
def test_two_parts_are_one_attention(T, more):
    layer = layer_of(**more)
    q, k, v, far = random(H, T, D), random(G, 11, D), random(G, 11, D) + 1, random(2, G, 6, D)
    near = near_of(layer, q, k, v, 20)
    alone, weights = whole(layer, q, k, v, far[0][:, :0], far[1][:, :0])
    torch.testing.assert_close(near.out, alone)
    torch.testing.assert_close(near.given(per_head=True), weights.sum(1))
    torch.testing.assert_close(near.given(per_head=False), weights.sum((0, 1))[None])
    both = at_one_distance(near, q, *far, 8, 20)
    expected, weights = whole(layer, q, k, v, *far)
    torch.testing.assert_close(both.out, expected)
    torch.testing.assert_close(both.given(), weights.sum((0, 1))[:6])


@pytest.mark.parametrize("more", [{}, {"softcap": 2.0}], ids=str)
@pytest.mark.parametrize(("T", "offset", "blocks"), [(1, 2, 1), (5, 2, 2), (3, 0, 1), (11, 0, 3)])
def test_own_maps_are_parts_of_the_local_map(T, offset, blocks, more):
    layer = layer_of(**more)
    q, k, v = random(H, T, D), random(G, 11, D), random(G, 11, D)
    near: Near = near_of(layer, q, k, v, 20)
    maps, before = own_maps(near, 4)
    _, weights = whole(layer, q, k, v, k[:, :0], v[:, :0])
    assert (maps.shape, before) == ((blocks, H, 4, 4), offset)
    expected = torch.zeros(H, 12, 12)
    expected[:, 11 - T : 11, :11] = weights
    for number in range(blocks):
        at = slice(4 * (3 - blocks + number), 4 * (4 - blocks + number))
        torch.testing.assert_close(maps[number], expected[:, at, at])
