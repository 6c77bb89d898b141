"""A whole calibration of a small random model: what it writes, and how it goes on."""

import json
from dataclasses import replace

import pytest
import yaml

from longctx.core import methods, profile
from longctx.core.calibrate import copying, needles, run, span_search, tapping, tasks, writing
from longctx.core.calibrate.report import as_markdown
from longctx.core.calibrate.run import Amounts, Wanted
from longctx.core.calibrate.span_search import SpanFit
from longctx.core.errors import UsageError
from longctx.core.setup import Setup, prepare

AMOUNTS = Amounts(samples=2, haystacks=1, needles=2, trials=3)
LAYERS, HEADS, GROUPS = 3, 4, 2  # of the random model
FIT = SpanFit(
    theta=(0.9, 0.8, 0.7),
    phi=(0.1, 0.2, 0.3),
    lam=(20.0, 3.0, 2.0),
    f1=(0.5, 0.25, None),
    f1_error=(0.1, 0.1, None),
    reference_f1=(0.4, 0.2, None),
    vectors=((1.0,), (2.0,), ()),
)


@pytest.fixture(scope="module")
def folder(make_model_folder, tmp_path_factory):
    """The random model, with a tokenizer that knows the words of needles, and a wide window."""
    words = " ".join(tasks.prose()[:200])
    return make_model_folder(tmp_path_factory.mktemp("calibrated") / "wide", words, 1500)


@pytest.fixture
def setup(folder, models_loaded_once) -> Setup:
    file = folder / "wide.yaml"
    values = yaml.safe_load((folder / "profile.yaml").read_text("utf-8"))
    file.write_text(yaml.safe_dump(values | {"window": 4096, "threshold": 0.7}), "utf-8")
    return Setup(model=str(folder), profile=str(file), device="cpu", dtype="fp32", threads=1)


@pytest.fixture(autouse=True)
def searched(monkeypatch) -> list[tuple]:
    """The search for spans is not the subject; how often it was asked for, and how."""
    asked = []

    def search(engine, samples, trials, seed, on_progress, shape):
        asked.append((samples, trials, seed, shape))
        on_progress(1, 1)
        return FIT

    monkeypatch.setattr(span_search, "search", search)
    return asked


@pytest.fixture(autouse=True)
def undrawn(monkeypatch) -> None:
    """Drawing takes longer than all else, and one test is enough for it."""
    monkeypatch.setattr(writing, "can_draw", lambda: False)


@pytest.fixture
def wanted(tmp_path) -> Wanted:
    return Wanted(tmp_path / "mine.yaml", AMOUNTS, length=1200, seed=5)


def test_it_writes_a_profile_that_loads_and_tables_of_every_head(
    setup, wanted, searched, monkeypatch
):
    told = []
    monkeypatch.setattr(writing, "can_draw", lambda: True)
    found = run.run(setup, wanted, lambda *each: told.append(each))
    heads = HEADS + 2 * GROUPS + HEADS + 1
    assert len(found.rows) == 2 * LAYERS * heads
    assert all(0 < row.mean <= 1 and row.error is not None for row in found.rows)
    assert len(found.heads) == 4
    assert len({*found.heads}) == 4
    assert (found.needles, len(found.copying)) == (needles.NEEDLES, LAYERS * HEADS)
    assert searched == [(2, 3, 5, span_search.Shape())]
    assert told[0] == ("ranks of heads", 0, 4, "samples")
    assert [each[0] for each in told[-2:]] == ["copy scores", "spans"]

    made = profile.find(str(wanted.out), "any")
    before = profile.find(setup.profile, "any")
    assert made.name == "mine"
    assert made.models == (setup.model,)
    assert (made.prompt, made.max_new_tokens, made.window) == (before.prompt, 8, 4096)
    assert made.threshold is None  # of other heads' scores
    reform = {**before.methods["reform"], "heads": [list(head) for head in found.heads]}
    assert made.methods["reform"] == reform
    assert made.methods["reattention"] == before.methods["reattention"]
    engine = prepare(replace(setup, profile=str(wanted.out)))
    assert engine.options.heads == found.heads

    table = json.loads((wanted.folder / "table.json").read_text("utf-8"))
    assert table["heads"] == [list(head) for head in found.heads]
    assert len(table["rows"]) == len(found.rows)
    assert (wanted.folder / "table.md").read_text("utf-8") == as_markdown(found)
    assert (wanted.folder / "heatmap.png").read_bytes().startswith(b"\x89PNG")


def test_a_stopped_run_goes_on_where_it_was(setup, wanted, monkeypatch, searched):
    read, count = tapping.read, []

    def stopping(*values):
        if len(count) == 3:
            raise KeyboardInterrupt
        count.append(values)
        return read(*values)

    monkeypatch.setattr(tapping, "read", stopping)
    with pytest.raises(KeyboardInterrupt):
        run.run(setup, wanted)
    assert not wanted.out.exists()

    def counting(*values):
        count.append(values)
        return read(*values)

    monkeypatch.setattr(tapping, "read", counting)
    found = run.run(setup, wanted)
    assert len(count) == 4  # none of the three was read again
    again = run.run(setup, wanted)
    assert len(count) == 4
    assert len(searched) == 1
    assert again.rows == found.rows
    assert again.copying == found.copying
    other = run.run(setup, replace(wanted, out=wanted.out.with_name("other.yaml")))
    assert other.rows == found.rows  # as if it had never been stopped
    more = replace(wanted, amounts=replace(AMOUNTS, samples=3))
    assert run.run(setup, more).samples == 3
    assert len(count) == 4 + 4 + 2


def test_another_seed_is_no_run_to_go_on_with(setup, wanted):
    run.run(setup, wanted)
    with pytest.raises(UsageError, match="seed was 5 there, and is 6 now"):
        run.run(setup, replace(wanted, seed=6))


def test_retrieval_heads_come_with_the_fitted_spans(setup, wanted, monkeypatch):
    score = copying.copied
    monkeypatch.setattr(copying, "copied", lambda *values: score(*values) + 0.5)
    found = run.run(setup, wanted)
    assert [each.layer for each in found.retrieval_heads] == [0, 1, 2]
    made = profile.find(str(wanted.out), "any").methods["ltri"]
    assert made["heads"] == [[each.layer, each.head, each.score] for each in found.retrieval_heads]
    assert (made["theta"], made["phi"], made["lam"]) == (
        [0.9, 0.8, 0.7],
        [0.1, 0.2, 0.3],
        [20.0, 3.0, 2.0],
    )
    engine = prepare(replace(setup, profile=str(wanted.out), method="ltri"))
    assert engine.options.heads[0] == tuple(made["heads"][0])
    methods.load("ltri").Method(engine.options, engine.decoder.layers)


def test_without_retrieval_heads_there_are_no_options_for_them(setup, wanted, monkeypatch):
    monkeypatch.setattr(copying, "THRESHOLD", 1.1)
    found = run.run(setup, wanted)
    assert not found.retrieval_heads
    assert "ltri" not in profile.find(str(wanted.out), "any").methods


def test_where_the_profile_says_nothing_sizes_follow_from_the_window(setup, wanted, folder):
    file = folder / "bare.yaml"
    file.write_text("{name: bare, window: 2048, sampling: {top_k: 5}}", "utf-8")
    found = run.run(replace(setup, profile=str(file)), replace(wanted, length=1000))
    made = profile.find(str(wanted.out), "any")
    assert made.prompt == profile.Prompt(prefix="")
    assert made.sampling.top_k == 5
    sizes = {"chunk": 512, "budget": 512, "first": 64, "last": 64, "gather": 1024}
    assert made.methods["reform"] == {**sizes, "heads": [list(head) for head in found.heads]}


def test_a_model_without_a_profile_and_with_a_window_too_short_is_refused(setup, wanted):
    with pytest.raises(UsageError, match="retrieval heads in a window"):
        run.run(replace(setup, profile=None), wanted)


def test_what_cannot_work_is_refused_before_anything_is_loaded(setup, wanted, tmp_path):
    def refused(changed: Wanted) -> str:
        with pytest.raises(UsageError) as error:
            run.run(replace(setup, model="nowhere"), changed)
        return str(error.value)

    one = replace(wanted, amounts=replace(AMOUNTS, samples=1))
    assert refused(one).startswith("cannot rank by 1 samples")
    assert "no .yaml file" in refused(replace(wanted, out=tmp_path / "mine.json"))
    assert "there is no folder" in refused(replace(wanted, out=tmp_path / "a" / "b.yaml"))
    wanted.out.write_text("mine", "utf-8")
    assert "will not replace" in refused(wanted)
    assert wanted.out.read_text("utf-8") == "mine"
