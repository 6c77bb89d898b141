"""The benchmark on a toy shape: figures that can be, floors that are right, nothing left behind."""

import json
import tempfile
from types import SimpleNamespace

import pytest
import torch

from longctx.core.bench import ceilings, shapes
from longctx.core.bench.answering import ask
from longctx.core.bench.baselines import Recent
from longctx.core.bench.ceilings import Ceilings, measure
from longctx.core.bench.floors import floor_of, layer_flop, pairs, projection_flop
from longctx.core.bench.ingesting import ingest
from longctx.core.bench.shapes import SHAPES, Wanted, config_of, open_engine, options_of
from longctx.core.errors import UsageError
from longctx.core.model import Layer

TOY = {
    **SHAPES["tiny"],
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "head_dim": 8,
}
WANTED = Wanted("toy", device="cpu", dtype="fp32", threads=1)
FOUND = Ceilings(2e9, 1e9, {"flash": 1e9}, 1e10, None, None, 1e6, 1e8)


@pytest.fixture(autouse=True)
def toy(monkeypatch, tmp_path):
    """A shape that takes no time, ceilings that are known, and a folder that can be looked at."""
    monkeypatch.setitem(SHAPES, "toy", TOY)
    monkeypatch.setattr(ceilings, "measure", lambda *args: FOUND)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("os.fsync", lambda handle: None)


# --- reading ---


def test_readings_have_all_figures(tmp_path):
    report = ingest(WANTED, [256, 700], [(64, 64), (32, 64)], baselines=True)
    values = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert (values["schema_version"], values["bench"]) == (1, "ingest")
    assert values["machine"]["model"] == "toy (random weights)"
    assert [(r["tokens"], r["chunk"], r["budget"]) for r in values["readings"]] == [
        *((256, 64, 64), (700, 64, 64), (256, 32, 64), (700, 32, 64))
    ]
    for reading in values["readings"]:
        assert set(reading) == {
            *("tokens", "chunk", "budget", "seconds", "tokens_per_s", "checkpoint_s"),
            *("floor", "over_floor", "peak_memory", "state_bytes"),
        }
        assert reading["floor"]["matrix_s"] > 0
        assert reading["floor"]["attention_s"] > 0
        assert reading["floor"]["seconds"] >= reading["floor"]["disk_s"] > 0
        # ids, offsets, four heads of eight int8 and a float16, and a snapshot
        assert reading["state_bytes"] > reading["tokens"] * (12 + 4 * 10)
        rate = reading["tokens"] / reading["seconds"]
        assert reading["tokens_per_s"] == pytest.approx(rate, rel=0.05)
    assert [growth["tokens"] for growth in values["growth"]] == [2.734, 2.734]
    assert [(b["name"], b["tokens"], b["failed"]) for b in values["baselines"]] == [
        ("transformers, full attention", 256, ""),
        ("sinks and recent tokens", 256, ""),
        ("sinks and recent tokens", 256, ""),
    ]
    assert all(b["seconds"] > 0 for b in values["baselines"])
    assert list(tmp_path.iterdir()) == []


def test_without_saving_nothing_is_written(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("longctx.core.store.durable.write_file", lambda *a: pytest.fail("written"))
    report = ingest(
        WANTED, [200], [(64, 64)], save=False, on_note=lambda _: seen.extend(tmp_path.rglob("*"))
    )
    [reading] = report.readings
    assert (reading.state_bytes, reading.floor.disk_s) == (None, None)
    assert reading.floor.seconds == reading.floor.matrix_s + reading.floor.attention_s
    assert [path for path in seen if path.is_file()] == []


def test_out_of_memory_ends_full_attention_and_is_told(monkeypatch):
    monkeypatch.setattr("longctx.core.bench.baselines.FULL", (64, 128, 256))
    engine = open_engine(WANTED)

    def forward(module, args):
        if args[0].shape[1] > 64:
            raise torch.OutOfMemoryError("can't allocate memory")

    engine.decoder._base.embed_tokens.register_forward_pre_hook(forward)
    monkeypatch.setattr("longctx.core.bench.ingesting.open_engine", lambda wanted: engine)
    report = ingest(WANTED, [300], [(32, 64)], save=False, baselines=True)
    full = [b for b in report.baselines if b.chunk is None]
    assert [(b.tokens, b.failed) for b in full] == [(64, ""), (128, "out of memory")]
    assert (full[1].seconds, full[1].tokens_per_s) == (None, None)


def test_a_real_model_is_measured_with_its_profile(setup_random):
    wanted = Wanted(model=setup_random.model, profile=setup_random.profile, device="cpu")
    report = ingest(wanted, [100])
    assert (report.readings[0].chunk, report.readings[0].budget, report.depth) == (32, 24, 3)


# --- answering ---


def test_answers_have_all_figures(tmp_path):
    report = ask(WANTED, [400], [(64, 64)], gather=50)
    values = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert values["bench"] == "ask"
    assert [answer["cache"] for answer in values["answers"]][-2:] == ["warm", "same document"]
    for answer in values["answers"]:
        assert (answer["tokens"], answer["gathered"]) == (400, 50)
        assert 0 < answer["gather_s"] < answer["first_token_s"]
        assert answer["gather_floor_s"] > 0
        assert answer["decode_tokens_per_s"] > 0
        assert answer["decode_ceiling"] > 0
        assert (answer["open_s"] > 0) == (answer["cache"] != "same document")
    assert list(tmp_path.iterdir()) == []


# --- what is reckoned ---


@pytest.mark.parametrize("window", [None, 5, 40])
@pytest.mark.parametrize(("tokens", "chunk", "budget"), [(50, 8, 12), (7, 8, 12), (64, 16, 4)])
def test_pairs_are_those_of_a_mask(tokens, chunk, budget, window):
    found, cached = 0, 0
    for start in range(0, tokens, chunk):
        new = min(chunk, tokens - start)
        for query in range(cached, cached + new):
            found += min(query + 1, window or query + 1)
        cached = min(cached + new, budget if window is None else window)
    assert pairs(tokens, chunk, budget, window) == found


def test_the_floor_of_a_known_shape():
    """Llama 3.1 8B: 436.2 million operations for a token and layer, 50.3 for its projections."""
    config = config_of("llama-3.1-8b")
    layer = Layer(0, 32, 8, 128, 128**-0.5, None, None)
    assert layer_flop(config, layer) == 2 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    assert projection_flop(config, layer) == 2 * 4096 * 6144
    options = options_of(config, 8192, 8192)
    depth = 1 + max(layer for layer, _, _ in options.heads)
    assert depth == 22
    method = SimpleNamespace(chunk=8192, depth=depth)
    floor = floor_of(config, method, (layer,) * 32, 8192, 1 << 20, FOUND, None)
    assert floor.layers == 21
    assert floor.matrix_s == pytest.approx((21 * 436.2e6 + 50.3e6) * (1 << 20) / 2e9, rel=1e-3)
    chunks = 128 * (8192 * 8192 + 8192 * 8193 // 2) - 8192 * 8192
    assert floor.attention_flop == 21 * 4 * 4096 * chunks


@pytest.mark.parametrize("shape", list(SHAPES))
def test_shapes_are_configurations_that_can_be_run(shape):
    config = config_of(shape)
    assert config.model_type == SHAPES[shape]["model_type"]
    options = options_of(config, 1024, 1024)
    assert max(layer for layer, _, _ in options.heads) < config.num_hidden_layers
    with pytest.raises(UsageError, match=r"unknown shape 'no such'.*llama-3.1-8b"):
        config_of("no such")


def test_random_weights_run_as_the_models_own():
    """The rotary table and tied weights survive being made where they run."""
    from longctx.core.load import self_check

    model = open_engine(WANTED).decoder._model
    self_check(model)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert float(model.lm_head.weight.detach().std()) == pytest.approx(0.02, rel=0.2)


def test_a_recent_window_keeps_sinks_and_the_latest():
    decoder = open_engine(WANTED).decoder
    memory = Recent(16)
    for ids in torch.arange(40).split(8):
        decoder.read(ids, memory)
    whole = Recent(100)
    decoder.read(torch.arange(40), whole)
    kept, all_keys = memory._kept[0][0], whole._kept[0][0]  # layer 0's depend on the token alone
    torch.testing.assert_close(kept, torch.cat([all_keys[:, :4], all_keys[:, 28:]], dim=1))


def test_ceilings_are_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(ceilings, "RUN_S", 0.001)
    layer = Layer(0, 4, 2, 8, 1.0, None, None)
    found = measure(layer, "cpu", torch.float32, tmp_path)
    nowhere = measure(layer, "cpu", torch.float32, None)
    figures = (found.matmul_flops, found.attention_flops, found.copy_bytes_s)
    assert min(*figures, found.disk_write_bytes_s) > 0
    assert found.attention_flops == max(found.attention_by.values())
    assert nowhere.disk_write_bytes_s is nowhere.disk_read_bytes_s is None
    assert list(tmp_path.iterdir()) == []


def test_sizes_that_cannot_be_are_refused():
    assert shapes.sized(open_engine(WANTED).options, 64, 64).first == 16
    with pytest.raises(UsageError, match="unknown device"):
        ingest(Wanted("toy", device="abacus"))
