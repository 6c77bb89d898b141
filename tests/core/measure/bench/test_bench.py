"""The benchmark on a toy shape: figures that can be, floors that are right, nothing left behind."""

import json
import tempfile
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from longctx.core.common import device
from longctx.core.common.errors import UsageError
from longctx.core.contracts.method import Capabilities
from longctx.core.engine.setup import Engine
from longctx.core.measure.bench import answering, ceilings, gpu_time
from longctx.core.measure.bench.answering import ask
from longctx.core.measure.bench.baselines import Recent
from longctx.core.measure.bench.ceilings import Ceilings, measure
from longctx.core.measure.bench.floors import (
    Pairs,
    evicting_pairs,
    floor_of,
    layer_flop,
    pairs_of,
    projection_flop,
    selecting_pairs,
)
from longctx.core.measure.bench.ingesting import ingest
from longctx.core.measure.bench.reading import NAME, make_state
from longctx.core.measure.bench.shapes import SHAPES, Wanted, config_of, open_engine, options_of
from longctx.core.measure.bench.stretches import Stretch, between, measure_at
from longctx.core.measure.bench.workbench import sized
from longctx.core.methods.reform import Method as Reform
from longctx.core.model.adapter import Layer
from longctx.core.store.library import Library
from longctx.kernels.door import topk_scan

TOY = {
    **SHAPES["tiny"],
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "head_dim": 8,
}
WANTED = Wanted(shape="toy", device="cpu", dtype="fp32", threads=1)
# First 32, last 256 and seven spans of 32: chunks of 288 at first, then 256, a window of 512.
SHORT = {**TOY, "max_position_embeddings": 512}
KEEPING = replace(WANTED, shape="short", method="reattention")
FOUND = Ceilings(2e9, 1e9, {"flash": 1e9}, 1e10, None, None, 1e6, 1e8)


@pytest.fixture(autouse=True)
def toy(monkeypatch, tmp_path):
    """A shape that takes no time, ceilings that are known, and a folder that can be looked at."""
    monkeypatch.setitem(SHAPES, "toy", TOY)
    monkeypatch.setitem(SHAPES, "short", SHORT)
    monkeypatch.setattr(ceilings, "measure", lambda *args: FOUND)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("os.fsync", lambda handle: None)
    monkeypatch.setattr(answering, "ANSWER", 12)


# --- reading ---


def test_readings_have_all_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(Engine, "can_leave_out", lambda self, method, tokens: False)
    report = ingest(WANTED, [256, 700], [(64, 64), (32, 64)], baselines=True)
    values = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert (values["schema_version"], values["bench"]) == (1, "ingest")
    machine = values["machine"]
    assert (machine["model"], machine["method"]) == ("toy (random weights)", "reform")
    assert (machine["kv_dtype"], machine["memory_limit"]) == (None, None)
    assert [(r["tokens"], r["chunk"], r["budget"]) for r in values["readings"]] == [
        *((256, 64, 64), (700, 64, 64), (256, 32, 64), (700, 32, 64))
    ]
    for reading in values["readings"]:
        assert set(reading) == {
            *("tokens", "chunk", "budget", "seconds", "tokens_per_s", "checkpoint_s"),
            *("floor", "over_floor", "peak_memory", "state_bytes", "spread"),
        }
        assert reading["floor"]["matrix_s"] > 0
        assert reading["floor"]["attention_s"] > 0
        assert reading["floor"]["seconds"] >= reading["floor"]["disk_s"] > 0
        # ids, offsets, four heads of eight int8 and a float16, and a snapshot
        assert reading["state_bytes"] > reading["tokens"] * (6 + 4 * 10)
        rate = reading["tokens"] / reading["seconds"]
        assert reading["tokens_per_s"] == pytest.approx(rate, rel=0.05)
    assert [growth["tokens"] for growth in values["growth"]] == [2.734, 2.734]
    assert [(b["name"], b["tokens"], b["failed"]) for b in values["baselines"]] == [
        ("transformers, full attention", 256, ""),
        ("sinks and recent tokens", 256, ""),
        ("sinks and recent tokens", 256, ""),
    ]
    assert all(b["seconds"] > 0 for b in values["baselines"])
    left = [path.name for path in tmp_path.iterdir()]  # torch makes one of its own when it must
    assert [name for name in left if not name.startswith("torchinductor_")] == []


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
    monkeypatch.setattr("longctx.core.measure.bench.baselines.FULL", (64, 128, 256))
    engine = open_engine(WANTED)

    def forward(module, args):
        if args[0].shape[1] > 64:
            raise torch.OutOfMemoryError("can't allocate memory")

    engine.decoder._base.embed_tokens.register_forward_pre_hook(forward)
    monkeypatch.setattr("longctx.core.measure.bench.workbench.open_engine", lambda wanted: engine)
    report = ingest(WANTED, [300], [(32, 64)], save=False, baselines=True)
    full = [b for b in report.baselines if b.chunk is None]
    assert [(b.tokens, b.failed) for b in full] == [(64, ""), (128, "out of memory")]
    assert (full[1].seconds, full[1].tokens_per_s) == (None, None)


def test_a_real_model_is_measured_with_its_profile(setup_random):
    wanted = Wanted(model=setup_random.model, profile=setup_random.profile, device="cpu")
    report = ingest(wanted, [100])
    assert (report.readings[0].chunk, report.readings[0].budget, report.depth) == (32, 24, 3)


@pytest.mark.parametrize("method", ["reattention", "both"])
def test_everything_that_is_read_can_be_kept(method, tmp_path):
    wanted = replace(KEEPING, method=method)
    whole = ingest(wanted, [700], [(128, None)], baselines=True)
    [reading], recent = whole.readings, whole.baselines[-1]
    assert (reading.chunk, reading.budget, reading.floor.layers) == (128, None, 3)
    assert whole.machine.kv_dtype == "auto"
    # keys and values of four layers with two heads of eight numbers in four bytes
    assert reading.state_bytes > 700 * 4 * 2 * 2 * 8 * 4
    assert (recent.chunk, recent.budget) == (128, 512)
    coded = ingest(replace(wanted, kv_dtype="int8"), [700])
    assert (coded.readings[0].chunk, coded.machine.kv_dtype) == (256, "int8")
    saved = reading.state_bytes - coded.readings[0].state_bytes
    assert saved == pytest.approx(700 * 4 * 2 * 2 * (8 * 3 - 2), rel=0.03)
    assert list(tmp_path.iterdir()) == []


def test_chunks_are_measured_over_a_filled_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("longctx.core.measure.bench.stretches.CHUNKS", 3)
    monkeypatch.setattr("longctx.core.store.durable.write_file", lambda *a: pytest.fail("written"))
    scanned = []

    def noting(q, keys, *more):
        scanned.append(len(keys))
        return topk_scan(q, keys, *more)

    monkeypatch.setattr("longctx.core.kv.keys.topk_scan", noting)
    report = measure_at(KEEPING, [2000, 900], [(64, None)])
    values = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    [curve] = values["curves"]
    assert (curve["chunk"], curve["first_tokens"]) == (64, 288)
    assert [(s["after"], s["tokens"]) for s in curve["stretches"]] == [
        *((288, 192), (900, 192), (2000, 192))
    ]
    # Of the longest: two chunks that do not count, and three that do.
    assert scanned[-3:] == [2000 + 5 * 64 - 288] * 3  # the last layer scans nothing
    assert len(scanned) == 3 * (2 * 5 + 2 * 5)
    whole = curve["whole"]
    assert whole["tokens"] == 2000
    assert whole["seconds"] > curve["first_s"] > 0
    assert whole["floor"]["scan_flop"] == 3 * 2 * 32 * selecting_pairs(2000, 288, 64, 512).scanned


def test_the_time_of_a_document_is_that_between_its_stretches():
    speeds = [(100, 10.0), (300, 5.0), (1300, 2.0)]  # tokens before, tokens a second
    stretches = [Stretch(after, 8, 8 / speed, speed, None) for after, speed in speeds]
    assert between(stretches) == pytest.approx(200 * 0.15 + 1000 * 0.35)
    assert between(stretches[:1]) == 0


# --- answering ---


def test_answers_have_all_figures(tmp_path):
    report = ask(replace(WANTED, runs=2), [400], [(64, 64)], gather=50)
    values = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert values["bench"] == "ask"
    assert [answer["cache"] for answer in values["answers"]][-2:] == ["warm", "same document"]
    for answer in values["answers"]:
        assert (answer["tokens"], answer["gathered"]) == (400, 50)
        assert (answer["method"], answer["chunk"], answer["budget"]) == ("reform", 64, 64)
        assert 0 < answer["gather_s"] < answer["first_token_s"]
        least, most = answer["spread"]["first_token_s"]
        assert least == answer["first_token_s"] <= most
        assert answer["gather_floor_s"] > 0
        assert answer["decode_tokens_per_s"] > 0
        assert answer["decode_ceiling"] > 0
        assert (answer["open_s"] > 0) == (answer["cache"] != "same document")
    assert list(tmp_path.iterdir()) == []


def test_answers_over_all_that_was_kept(tmp_path):
    report = ask(replace(KEEPING, method="both"), [900], [(128, None)], gather=50)
    warm = [(a.method, a.gathered_by) for a in report.answers if a.cache == "warm"]
    assert warm == [("reform", "method"), ("reform", "hybrid"), ("reattention", "method")]
    recalled = [answer for answer in report.answers if answer.gather_floor_s is None]
    assert [answer.cache for answer in recalled][-2:] == ["warm", "same document"]
    for answer in recalled:
        assert (answer.method, answer.chunk, answer.budget) == ("reattention", 128, None)
        assert 0 < answer.gathered <= 50
        # keys and values of four layers with two heads of eight numbers in four bytes
        assert answer.state_bytes > 900 * 4 * 2 * 2 * 8 * 4
        # as many of them as the window holds, and the keys of all that is not always in it
        weights = 4 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48) + 61 * 32
        moved = 4 * weights + 512 * 512 + (900 - 288) * 256
        assert answer.decode_ceiling == pytest.approx(1e10 / moved, rel=1e-4)
    assert list(tmp_path.iterdir()) == []


def test_answers_without_a_state(tmp_path, monkeypatch):
    monkeypatch.setattr("longctx.core.store.durable.write_file", lambda *a: pytest.fail("written"))
    for method in ("reattention", "both"):
        [short, long] = ask(replace(KEEPING, method=method), [600, 900], save=False).answers
        assert (short.cache, short.method) == ("in memory", "reattention")
        assert (short.tokens, long.tokens, long.state_bytes) == (600, 900, None)
        assert 0 < long.gather_s < long.first_token_s
        assert long.decode_ceiling < short.decode_ceiling
    with pytest.raises(UsageError, match="'reform' cannot answer without a state"):
        ask(WANTED, [400], save=False)


@pytest.mark.parametrize("method", ["streaming", "h2o", "tova"])
def test_answers_are_measured_where_something_is_searched(method):
    with pytest.raises(UsageError, match="are not measured here"):
        ask(replace(WANTED, method=method), [400])


def test_a_baseline_is_measured_while_it_reads(tmp_path):
    [reading] = ingest(replace(WANTED, method="streaming"), [400], [(64, 64)]).readings
    assert reading.state_bytes > 0
    assert reading.floor.attention_s > 0


@pytest.mark.parametrize("kv_dtype", ["auto", "int8"])
def test_a_made_state_is_one_that_can_be_taken_up(kv_dtype, tmp_path):
    engine = open_engine(replace(KEEPING, kv_dtype=kv_dtype))
    library = Library.open(tmp_path / "library", create=True)
    make_state(library, engine, 5000)
    document = library.document(NAME)
    assert (document.manifest.tokens, document.manifest.status) == (5000, "complete")
    method = engine.new_method(document.snapshot(), document)
    asked = method.recall()
    engine.decoder.read(torch.arange(32), asked)
    votes = asked.scores(5000).raw
    # Layers, heads, keys of each: the 32 tokens of a chunk count as one.
    assert votes.sum() == pytest.approx(4 * 4 * 4)
    places = votes.nonzero()[:, 0]  # all over the document, and not in the first copies of a few
    assert len(places) > 600
    assert 0.4 < (places < 2400).float().mean() < 0.6


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
    assert evicting_pairs(tokens, chunk, budget, window) == found


@pytest.mark.parametrize("tokens", [7, 30, 43, 100])
def test_pairs_of_selections_are_those_of_a_mask(tokens):
    attended, scanned, chunks = 0, 0, [30, *[8] * 20]
    read = 0
    while read < tokens:
        new = min(chunks.pop(0), tokens - read)
        read += new
        for query in range(new):
            attended += min(read, 48) - (new - 1 - query)
            scanned += max(0, read - 30)
    found = selecting_pairs(tokens, near=30, chunk=8, window=48)
    assert found == Pairs(attended, scanned)


def test_layers_that_slide_select_nothing():
    options = options_of(config_of("short"), "reattention")
    assert pairs_of(options, 900, None) == selecting_pairs(900, 288, 256, 512)
    assert pairs_of(options, 900, 100) == Pairs(100 * 101 // 2 + 800 * 100)


def test_the_floor_of_a_known_shape():
    """Llama 3.1 8B: 436.2 million operations for a token and layer, 50.3 for its projections."""
    config = config_of("llama-3.1-8b")
    layer = Layer(0, 32, 8, 128, 128**-0.5, None, None)
    assert layer_flop(config, layer) == 2 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    assert projection_flop(config, layer) == 2 * 4096 * 6144
    options = options_of(config, "reform")
    depth = 1 + max(layer for layer, _, _ in options.heads)
    assert depth == 22
    method = SimpleNamespace(options=options, depth=depth, capabilities=Reform.capabilities)
    floor = floor_of(config, method, (layer,) * 32, 1 << 20, FOUND, None)
    assert floor.layers == 21
    assert floor.matrix_s == pytest.approx((21 * 436.2e6 + 50.3e6) * (1 << 20) / 2e9, rel=1e-3)
    chunks = 128 * (8192 * 8192 + 8192 * 8193 // 2) - 8192 * 8192
    assert floor.attention_flop == 21 * 4 * 4096 * chunks
    assert (floor.scan_flop, floor.scan_s) == (0, 0)
    twice = replace(FOUND, narrow_flops=4e9)
    narrow = floor_of(config, method, (layer,) * 32, 1 << 20, twice, None)
    assert narrow.matrix_s == pytest.approx(floor.matrix_s / 2)
    assert narrow.attention_s == floor.attention_s


def test_the_floor_of_a_known_shape_that_keeps_everything():
    """Llama 3.2 1B: 16 layers of 60.8 million weights; each token scans all but 4,128 keys."""
    config = config_of("llama-3.2-1b")
    layer = Layer(0, 32, 8, 64, 64**-0.5, None, None)
    options = options_of(config, "reattention")
    method = SimpleNamespace(options=options, depth=16, capabilities=Capabilities())
    tokens = 4128 + 2000 * 512
    floor = floor_of(config, method, (layer,) * 16, tokens, FOUND, 10**6)
    assert floor.layers == 16
    assert floor.matrix_s == pytest.approx(16 * 121.6e6 * tokens / 2e9, rel=1e-3)
    scanned = 512 * sum(512 * n for n in range(1, 2001))
    assert floor.scan_flop == 16 * 2 * 2048 * scanned
    assert floor.scan_s == floor.scan_flop / 2e9
    full = 2000 * 512 * (8192 - 512) + 2000 * 512 * 513 // 2 + 4128 * 4129 // 2
    missing = 512 * sum(8192 - 4128 - 512 * n for n in range(1, 8))  # before there are so many
    assert floor.attention_flop == 16 * 4 * 2048 * (full - missing)
    assert floor.disk_s == 1.0
    assert floor.seconds == floor.matrix_s + floor.attention_s + floor.scan_s


@pytest.mark.parametrize("shape", list(SHAPES))
def test_shapes_are_configurations_that_can_be_run(shape):
    config = config_of(shape)
    assert config.model_type == SHAPES[shape]["model_type"]
    options = options_of(config, "reform")
    assert max(layer for layer, _, _ in options.heads) < config.num_hidden_layers
    both = options_of(config, "both", "int8")
    assert both.reform == options
    assert both.reattention == options_of(config, "reattention", "int8")
    assert both.reattention.window <= config.max_position_embeddings
    assert both.reattention.kv_dtype == "int8"
    with pytest.raises(UsageError, match=r"unknown shape 'no such'.*llama-3.1-8b"):
        config_of("no such")


def test_random_weights_run_as_the_models_own():
    """The rotary table and tied weights survive being made where they run."""
    from longctx.core.model.load import self_check

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
    assert found.narrow_flops is None
    monkeypatch.setattr(ceilings, "scaled_product", lambda *_: None)  # a CPU's is slow
    assert measure(layer, "cpu", torch.float32, None, "fp8").narrow_flops > 0
    figures = (found.matmul_flops, found.attention_flops, found.copy_bytes_s)
    assert min(*figures, found.disk_write_bytes_s) > 0
    assert found.attention_flops == max(found.attention_by.values())
    assert nowhere.disk_write_bytes_s is nowhere.disk_read_bytes_s is None
    assert list(tmp_path.iterdir()) == []


def test_a_gpus_time_is_that_of_one_call_in_the_middle_round(monkeypatch):
    now, calls = [0.0], iter([99, 99, 99, *(7, 9), *(1, 1), *(4, 6), *(50, 50), *(2, 2)])

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = now[0]

        def elapsed_time(self, end):
            return end.at - self.at  # milliseconds

    def spend(some):
        now[0] += some

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", spend)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: spend(1000))
    assert gpu_time.seconds(lambda: spend(next(calls)), 2) == pytest.approx(0.005)
    assert next(calls, None) is None


def test_sizes_are_those_of_the_part_that_reads():
    config = config_of("short")
    reform = sized(options_of(config, "reform"), 64)
    assert (reform.chunk, reform.budget, reform.first, reform.queries) == (64, 64, 16, 64)
    assert sized(reform, None, 32).chunk == 32
    both = options_of(config, "both")
    other = sized(both, 64)
    assert (other.reattention.chunk, other.reform) == (64, both.reform)
    assert sized(both) == both


@pytest.mark.parametrize(
    ("size", "wanted", "said"),
    [
        ((None, None), {"device": "abacus"}, "unknown device"),
        ((None, 64), {"method": "reattention"}, "--budget is not for this method"),
        ((300, None), {"method": "both"}, "chunk 300 and budget None: expected .*chunk <= local"),
        ((None, None), {"method": "full"}, "'full' cannot be measured"),
        ((None, None), {"kv_dtype": "int8"}, "--kv-dtype is not for the method 'reform'"),
        ((None, None), {"gpu_memory": 10**9}, "cannot limit the memory of the device 'cpu'"),
    ],
)
def test_what_cannot_be_measured_is_refused(size, wanted, said):
    with pytest.raises(UsageError, match=said):
        ingest(Wanted(**{"shape": "short", "device": "cpu", **wanted}), [100], [size])


def test_places_that_cannot_be_filled_are_refused():
    with pytest.raises(UsageError, match="--at is not for the method 'reform'"):
        measure_at(WANTED, [900])
    with pytest.raises(UsageError, match="after 288 tokens: a document begins with a chunk of 288"):
        measure_at(KEEPING, [900, 288])


# --- memory ---


def test_memory_that_nothing_uses_is_known(monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda name: 50)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda name: 37)
    assert (device.idle_memory("cuda:0"), device.idle_memory("cpu")) == (13, 0)


def test_a_limit_of_memory_is_what_is_free(monkeypatch):
    limits = []
    monkeypatch.setattr(device, "_limits", {})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda name: (70, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda name: 15)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    total = SimpleNamespace(total_memory=100)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda name: total)
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda *given: limits.append(given)
    )
    assert (device.free_memory("cuda"), device.memory_limit("cuda")) == (70, None)
    device.limit_memory("cuda", 40)
    assert limits == [(0.4, 0)]
    assert (device.free_memory("cuda:0"), device.memory_limit("cuda")) == (25, 40)
    assert device.free_memory("cuda:1") == 70
    device.limit_memory("cuda:0", 10)
    assert device.free_memory("cuda") == 0
    device.limit_memory("cuda", 200)
    assert (limits[-1], device.free_memory("cuda")) == ((1.0, 0), 70)
