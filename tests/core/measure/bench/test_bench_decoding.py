"""`bench decode` on a toy shape: figures that can be, bounds that are right, one prompt for all."""

import json
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from longctx.core.common.errors import UsageError
from longctx.core.contracts.policy import PolicyOptions
from longctx.core.decode import policies as decoding
from longctx.core.decode.policies import dense
from longctx.core.decode.policies.dense import Options, Policy
from longctx.core.measure.bench import ceilings, generating, policies
from longctx.core.measure.bench.ceilings import Ceilings
from longctx.core.measure.bench.decoded import bound_s
from longctx.core.measure.bench.decoding import decode
from longctx.core.measure.bench.policies import Plain, filled, policy_of, steps_of
from longctx.core.measure.bench.shapes import SHAPES, Wanted, open_engine
from longctx.core.measure.bench.workbench import Workbench
from longctx.core.model.adapter import Decoder

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
FOUND = Ceilings(2e9, 1e9, {"flash": 1e9}, 1e10, None, None, 1e6, 1e8)
# four bytes of: q and o, k and v, three of the MLP, in four layers; and the output matrix
WEIGHTS = 4 * (4 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48) + 61 * 32)
ENTRY = 4 * 4 * 2 * 2 * 8  # bytes of keys and values of two heads of eight in four layers


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    """A shape that takes no time, and ceilings that are known."""
    monkeypatch.setitem(SHAPES, "toy", TOY)
    monkeypatch.setattr(ceilings, "measure", lambda *args: FOUND)


@pytest.fixture
def engine():
    return open_engine(WANTED)


@pytest.fixture
def bench(engine):
    return Workbench(engine, FOUND, lambda text: None)


def test_all_figures_are_there():
    notes = []
    report = decode(WANTED, [300, 40], ["dense"], 12, baselines=True, on_note=notes.append)
    values = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert (values["schema_version"], values["bench"]) == (1, "decode")
    names = [(row["name"], row["tokens"], row["failed"]) for row in values["decoded"]]
    beside = (
        "dense, layers of transformers",
        "generate of transformers, growing cache",
        "generate of transformers, static cache",
    )
    assert names == [(name, n, "") for n in (300, 40) for name in ("dense", *beside)]
    for row in values["decoded"]:
        assert row["answer"] == 12
        assert row["ready_s"] > 0
        assert row["tokens_per_s"] > 0
        ratio = row["bound_tokens_per_s"] / row["tokens_per_s"]
        assert row["over_bound"] == pytest.approx(ratio, rel=0.01)
        # All before the answer, those before the ones that are timed, and half of these.
        before = 2 * 8 if row["name"].startswith("generate") else 48
        assert row["attended"] == pytest.approx(row["tokens"] + before + 6, abs=2)
        bound = 1e10 / (WEIGHTS + row["attended"] * ENTRY)
        assert row["bound_tokens_per_s"] == pytest.approx(bound, rel=1e-3)
    assert [note for note in notes if note.endswith("with dense")] == [
        "decoding 12 tokens after 300 with dense",
        "decoding 12 tokens after 40 with dense",
    ]


def test_the_bound_is_what_a_token_reads(bench):
    assert bound_s(bench, 0, 0) == pytest.approx(WEIGHTS / 1e10)
    assert bound_s(bench, 100.5, 0) == pytest.approx((WEIGHTS + 100.5 * ENTRY) / 1e10)
    # The smallest and the largest key of a page are as large as one key and its value.
    assert bound_s(bench, 0, 7) == pytest.approx((WEIGHTS + 7 * ENTRY) / 1e10)


def test_layers_that_slide_attend_to_their_window(engine):
    prompt = filled(engine, 50, [decoding.USUAL], 10)
    for index in (1, 2):
        cache = prompt.caches[index]
        cache.layer = replace(cache.layer, window=20)
    policy = policy_of(engine, decoding.USUAL, prompt)
    for _ in range(3):
        policy.advance()
    assert policy.spent().attended == (52 + 20) / 2


@pytest.mark.parametrize(
    ("text", "scored"),
    [
        ("dense", 0),
        ("snapkv:budget=128", 0),
        ("recycled:budget=128,stride=12", 0),
        ("quest:budget=128", (300 + 54) / 16),
        ("quest", 0),  # all pages are attended to: none has to be scored
        ("raas:budget=512", (300 + 54) / 16),
        ("quest+raas:budget=128,answer_budget=64", 300 / 16 + 54 / 16),
    ],
)
def test_pages_that_are_scored_count(text, scored):
    [row] = decode(WANTED, [300], [text], 12).decoded
    assert row.failed == ""
    assert row.scored == pytest.approx(scored, abs=1.0)
    bound = 1e10 / (WEIGHTS + (row.attended + row.scored) * ENTRY)
    assert row.bound_tokens_per_s == pytest.approx(bound, rel=1e-3)


def test_recycled_steps_and_full_ones_are_in_the_bound():
    [row] = decode(WANTED, [1000], ["recycled:budget=64,stride=24"], 30).decoded
    assert row.answer == 48  # whole strides
    full, others = 1000 + 48 + 24, 23 * 65  # in the middle of what is timed
    assert row.attended == pytest.approx((full + others) / 24, abs=4)


# --- one prompt for all ---


def test_a_filled_prompt_is_as_one_that_was_read(engine):
    prompt = filled(engine, 70, [decoding.USUAL], 30)
    assert (prompt.length, prompt.capacity) == (70, 112)
    kept = prompt.caches[3].keys[:, :70].clone()
    assert kept.std() == pytest.approx(1, abs=0.2)
    first, second = (policy_of(engine, decoding.USUAL, prompt) for _ in range(2))
    ids = torch.tensor([5])
    outs = []
    for policy in (first, second):
        for _ in range(3):
            policy.begin_token()
            outs.append(engine.decoder.read(ids, policy))
            policy.end_token()
    assert torch.equal(outs[2], outs[5])  # the second begins where the prompt ends, as the first
    assert not torch.equal(outs[0], outs[2])
    assert torch.equal(prompt.caches[3].keys[:, :70], kept)


@dataclass(frozen=True)
class Striding(Options):
    """Dense decoding that says that it has strides, and looks at queries."""

    stride: int = 25
    observed = 3
    period = property(lambda self: self.stride)


class Letting(Policy):
    """It lets the prompt's caches go, and has scored pages."""

    seen: ClassVar[list] = []

    def __init__(self, options, prompt, window):
        super().__init__(options, prompt, window)
        Letting.seen.append((prompt.caches[0].queries.shape, window))
        self._caches = dict(prompt.caches)
        prompt.caches.clear()

    def scored(self):
        return 6.0


@pytest.fixture
def striding(monkeypatch):
    monkeypatch.setattr(Letting, "seen", [])
    module = SimpleNamespace(Options=Striding, Policy=Letting)
    load = decoding.load
    monkeypatch.setattr(decoding, "load", lambda name: module if name == "stride" else load(name))


def test_policies_take_nothing_from_one_another(striding):
    report = decode(WANTED, [5000], ["stride:stride=20", "dense", "stride"], 30)
    first, plain, second = report.decoded
    assert [row.answer for row in report.decoded] == [40, 30, 50]
    assert (first.options, plain.options, second.options) == ({"stride": 20}, {}, {"stride": 25})
    assert [row.failed for row in report.decoded] == ["", "", ""]
    # Two strides before those that are timed; the window is at least what is decoded.
    window = 5000 + 2 * 25 + 50 + 4  # to whole pages
    assert Letting.seen == [(torch.Size([4, 3, 8]), window)] * 2
    assert (first.scored, plain.scored) == (6.0, 0.0)
    assert first.bound_tokens_per_s == pytest.approx(
        1e10 / (WEIGHTS + (first.attended + 6) * ENTRY), rel=1e-4
    )


def test_whole_strides_are_timed(striding):
    assert steps_of(decoding.USUAL, 256) == (49, 256)
    assert steps_of(decoding.choose("stride:stride=50", {}), 256) == (101, 300)
    assert steps_of(decoding.choose("stride:stride=5", {}), 6) == (51, 10)


def test_a_plain_decoder_is_run_as_it_is(engine):
    plain = Plain(engine.decoder)
    outs = []
    prompt = filled(engine, 40, [decoding.USUAL], 10)
    for reader in (engine.decoder, plain):
        policy = policy_of(engine, decoding.USUAL, prompt)
        hidden = reader.read(torch.tensor([7]), policy)
        outs.append(reader.logits(hidden))
    assert torch.equal(*outs)
    assert not isinstance(plain, Decoder)  # by this the loop knows what it may replace


# --- what fails ---


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UsageError("cannot hold it", "the prompt is long", "Use another."), "cannot hold it: the"),
        (torch.OutOfMemoryError("no room"), "out of memory"),
    ],
)
def test_what_fails_is_told_and_the_rest_is_measured(monkeypatch, error, said):
    made = []

    def refused(options, prompt, window):
        made.append(prompt.length)
        if prompt.length > 100:
            raise error
        return Policy(options, prompt, window)

    monkeypatch.setattr(dense, "Policy", refused)
    long, short = decode(WANTED, [200, 50], ["dense"], 2).decoded
    assert made == [200, 50]
    assert long.failed.startswith(said)
    assert (long.tokens_per_s, long.attended, long.over_bound) == (None, None, None)
    assert short.failed == ""


def test_a_compiler_that_fails_is_told(monkeypatch):
    def refused(*args):
        raise AssertionError("no compiler\nand more")

    monkeypatch.setattr(generating, "_generate", refused)
    rows = decode(WANTED, [50], ["dense"], 2, baselines=True).decoded
    assert [row.failed for row in rows] == ["", "", *["AssertionError: no compiler"] * 2]


def test_other_errors_are_not_hidden(monkeypatch):
    def broken(*args):
        raise RuntimeError("a mistake")

    monkeypatch.setattr(policies, "policy_of", broken)
    with pytest.raises(RuntimeError, match="a mistake"):
        decode(WANTED, [50], ["dense"], 2)


def test_generate_reads_one_token_at_a_time(monkeypatch, engine, bench):
    read = []
    forward = engine.decoder._model.forward

    def noting(*args, **named):
        read.append(named["input_ids"].shape)
        return forward(*args, **named)

    engine.decoder._model.forward = noting
    rows = list(generating.measure_generate(bench, 90, 10))
    assert [row.failed for row in rows] == ["", ""]
    assert {*read} == {(1, 1)}
    assert len(read) == 2 * (8 + 8 + 10)
    assert rows[0].attended == 90 + 16 + 5.5


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(UsageError, match=r"unknown decode policy 'no such'\. Known: dense"):
        decode(WANTED, [50], ["no such"])
    with pytest.raises(UsageError, match="options of decode policy 'dense'"):
        decode(WANTED, [50], ["dense:budget=5"])
    assert isinstance(decoding.USUAL.options, PolicyOptions)
