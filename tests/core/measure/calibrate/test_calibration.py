"""A whole calibration of a small random model: what it writes, and how it goes on."""

import json
import os
import re
import stat
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from longctx.core import methods
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import prepare
from longctx.core.measure.calibrate import (
    calibration,
    copying,
    span_search,
    tapping,
    tasks,
    writing,
)
from longctx.core.measure.calibrate.calibration_plan import Amounts, CalibrationPlan
from longctx.core.measure.calibrate.choosing import choose
from longctx.core.measure.calibrate.profile_file import HEADER
from longctx.core.measure.calibrate.ranks import MAXSIM, MEASURES, MNR
from longctx.core.measure.calibrate.report import as_markdown
from longctx.core.measure.calibrate.span_search import Shape
from longctx.core.profile import profile

AMOUNTS = Amounts(samples=2, haystacks=1, needles=2, trials=3)
LAYERS, HEADS, GROUPS = 3, 4, 2  # of the random model
FIT = dict(
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
    words = " ".join(tasks.prose().paragraphs[:200])
    return make_model_folder(tmp_path_factory.mktemp("calibrated") / "wide", words, 1500)


@pytest.fixture
def setup(folder, models_loaded_once) -> Setup:
    file = folder / "wide.yaml"
    values = yaml.safe_load((folder / "profile.yaml").read_text("utf-8"))
    values["methods"].pop("ltri", None)  # blocks of a few tokens, into which no needle fits
    file.write_text(yaml.safe_dump(values | {"window": 4096}), "utf-8")
    return Setup(model=str(folder), profile=str(file), device="cpu", dtype="fp32", threads=1)


def with_methods(setup: Setup, **methods) -> Setup:
    """The same with other sections of methods in the profile."""
    file = Path(setup.profile)
    values = yaml.safe_load(file.read_text("utf-8"))
    file.write_text(yaml.safe_dump({**values, "methods": methods}), "utf-8")
    return setup


@pytest.fixture(autouse=True)
def searched(monkeypatch) -> list[tuple]:
    """The search for spans is not the subject; how often it was asked for, and how."""
    asked = []

    def search(engine, shape, samples, trials, seed, on_progress):
        asked.append((samples, trials, seed, shape))
        on_progress(1, 1)
        return FIT

    monkeypatch.setattr(span_search, "search", search)
    return asked


@pytest.fixture
def wanted(tmp_path) -> CalibrationPlan:
    return CalibrationPlan(tmp_path / "mine.yaml", AMOUNTS, length=700, seed=5)


def test_it_writes_a_profile_that_loads_and_tables_of_every_head(
    setup, wanted, searched, monkeypatch
):
    told = []
    found = calibration.run(setup, wanted, lambda *each: told.append(each))
    heads = HEADS + 2 * GROUPS + HEADS + 1
    assert len(found.rows) == len(MEASURES) * 2 * LAYERS * heads
    assert all(0 < row.mean <= 1 and row.error is not None for row in found.rows)
    assert len(found.heads) == 4
    assert len({*found.heads}) == 4
    assert (found.needles, len(found.copying)) == (tasks.NEEDLES, LAYERS * HEADS)
    assert searched == [(2, 3, 5, Shape(128, 128, 4, 12, "row"))]
    assert told[0] == ("ranks of heads", 0, 4, "samples", 0)
    assert [each[0] for each in told[-2:]] == ["copy scores", "spans"]

    made = profile.find(str(wanted.out))
    before = profile.find(setup.profile)
    assert made.name == "mine"
    assert made.models == (setup.model,)
    assert (made.prompt, made.max_new_tokens, made.window) == (before.prompt, 8, 4096)
    reform = {**before.methods["reform"], "heads": [list(head) for head in found.heads]}
    assert made.methods["reform"] == reform
    assert made.methods["reattention"] == before.methods["reattention"]
    engine = prepare(replace(setup, profile=str(wanted.out)))
    assert engine.options.heads == found.heads

    table = json.loads((wanted.folder / "table.json").read_text("utf-8"))
    assert table["heads"] == [list(head) for head in found.heads]
    assert len(table["rows"]) == len(found.rows)
    assert (wanted.folder / "table.md").read_text("utf-8") == as_markdown(found)
    drawn = ElementTree.fromstring((wanted.folder / "heatmap.svg").read_text("utf-8"))
    told = [element.text or "" for element in drawn.iter("{http://www.w3.org/2000/svg}title")]
    measured = [text for text in told if re.search(r", layer \d+, head \d+: [\d.e-]+$", text)]
    assert len(measured) == len(found.rows) + len(found.copying)


def test_a_stopped_run_goes_on_where_it_was(setup, wanted, monkeypatch, searched):
    read, count = tapping.read, []

    def stopping(*values):
        if len(count) == 3:
            raise KeyboardInterrupt
        count.append(values)
        return read(*values)

    monkeypatch.setattr(tapping, "read", stopping)
    with pytest.raises(KeyboardInterrupt):
        calibration.run(setup, wanted)
    assert not wanted.out.exists()

    def counting(*values):
        count.append(values)
        return read(*values)

    monkeypatch.setattr(tapping, "read", counting)
    found = calibration.run(setup, wanted)
    assert len(count) == 4  # none of the three was read again
    again = calibration.run(setup, wanted)
    assert len(count) == 4
    assert len(searched) == 1
    assert again.rows == found.rows
    assert again.copying == found.copying
    other = calibration.run(setup, replace(wanted, out=wanted.out.with_name("other.yaml")))
    assert other.rows == found.rows  # as if it had never been stopped
    more = replace(wanted, amounts=replace(AMOUNTS, samples=3))
    assert calibration.run(setup, more).samples == 3
    assert len(count) == 4 + 4 + 2


def test_another_measure_chooses_among_what_was_measured(setup, wanted, monkeypatch):
    by_windows = calibration.run(setup, wanted)
    monkeypatch.setattr(tapping, "read", None)  # nothing is read again
    as_published = calibration.run(setup, replace(wanted, rank_by=MNR))
    assert (by_windows.rank_by, as_published.rank_by) == (MAXSIM, MNR)
    assert as_published.rows == by_windows.rows
    for found in (by_windows, as_published):
        assert found.heads == choose(found.rows, LAYERS, found.rank_by)
    made = profile.find(str(wanted.out)).methods["reform"]
    assert made["heads"] == [list(head) for head in as_published.heads]


@pytest.mark.usefixtures("measured_once")
def test_what_was_measured_otherwise_is_not_gone_on_with(setup, wanted, monkeypatch):
    monkeypatch.setattr(calibration, "VERSION", 1)  # before ranks had a measure
    calibration.run(setup, wanted)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="calibration was 1 there, and is 2 now"):
        calibration.run(setup, wanted)


@pytest.mark.usefixtures("measured_once")
def test_what_an_earlier_run_has_finished_is_told_of_and_not_counted_as_done(setup, wanted):
    calibration.run(setup, wanted)
    told = []
    more = replace(wanted, amounts=Amounts(samples=3, haystacks=2, needles=2, trials=3))
    calibration.run(setup, more, lambda *each: told.append(each))
    assert told == [
        *[("ranks of heads", done, 6, "samples", 4) for done in (4, 5, 6)],
        *[("copy scores", done, 2, "haystacks", 1) for done in (1, 2)],
    ]


def test_the_reader_is_no_method_or_decode_policy_of_a_report(setup, wanted, caplog):
    def stop(*told):
        raise KeyboardInterrupt

    caplog.set_level("INFO", "longctx")
    with pytest.raises(KeyboardInterrupt):
        calibration.run(setup, wanted, stop)
    told = {}
    for record in caplog.records:
        told |= getattr(record, "facts", {})
    assert (told["model"]["name"], told["profile"]) == (setup.model, "random")
    assert (told["method"], told["decode"]) == (None, None)


@pytest.mark.usefixtures("measured_once")
def test_another_seed_is_no_run_to_go_on_with(setup, wanted):
    calibration.run(setup, wanted)
    with pytest.raises(UsageError, match="seed was 5 there, and is 6 now"):
        calibration.run(setup, replace(wanted, seed=6))


def test_retrieval_heads_come_with_the_fitted_spans(setup, wanted, monkeypatch):
    score = copying.copied
    monkeypatch.setattr(copying, "copied", lambda *values: score(*values) + 0.5)
    found = calibration.run(setup, wanted)
    assert [each.layer for each in found.retrieval_heads] == [0, 1, 2]
    made = profile.find(str(wanted.out)).methods["ltri"]
    assert made["heads"] == [[each.layer, each.head, each.score] for each in found.retrieval_heads]
    assert (made["theta"], made["phi"], made["lam"]) == (
        [0.9, 0.8, 0.7],
        [0.1, 0.2, 0.3],
        [20.0, 3.0, 2.0],
    )
    engine = prepare(replace(setup, profile=str(wanted.out), method="ltri"))
    assert engine.options.heads[0] == tuple(made["heads"][0])
    methods.load("ltri").Method(engine.options, engine.decoder.layers)


@pytest.mark.usefixtures("measured_once")
def test_without_retrieval_heads_there_are_no_options_for_them(setup, wanted, monkeypatch):
    monkeypatch.setattr(copying, "THRESHOLD", 1.1)
    found = calibration.run(setup, wanted)
    assert not found.retrieval_heads
    assert not found.heads_stay
    assert "ltri" not in profile.find(str(wanted.out)).methods


@pytest.mark.usefixtures("measured_once")
@pytest.mark.parametrize("heads", [[[1, 2, 0.5]], []])
def test_without_retrieval_heads_those_of_the_profile_stay(setup, wanted, monkeypatch, heads):
    monkeypatch.setattr(copying, "THRESHOLD", 1.1)
    found = calibration.run(with_methods(setup, ltri={"heads": heads}), wanted)
    assert found.heads_stay == bool(heads)
    assert profile.find(str(wanted.out)).methods["ltri"] == {"heads": heads}


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"ltri": {"ratio": "nonsense"}}, "ratio: expected one of row, column, row"),
        ({"ltri": {"block": 0}}, "block: expected 1 or more, got 0"),
        ({"ltri": {"local": 1000}}, "local: expected a multiple of block"),
        ({"ltri": [1]}, "options of method 'ltri' is list, not a mapping"),
        ({"ltri": {"first": 4000}}, "cannot search for spans in a window"),
        ({"ltri": {"block": 8, "local": 8, "chunk": 8}}, "no needle fits into a block of 8"),
        ({"reform": [1]}, "options of method 'reform' is list, not a mapping"),
        ({"reform": {"chunk": "many"}}, "cannot use 'chunk' in options of method 'reform'"),
        ({"streaming": {"budgte": 5}}, "unknown key 'budgte'"),
        ({"infllmm": {}}, "unknown method 'infllmm'"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_measured(
    setup, wanted, methods, message
):
    with pytest.raises(UsageError, match=message):
        calibration.run(with_methods(setup, **methods), wanted)
    assert not wanted.folder.exists()  # and a corrected profile starts with no other settings


def test_a_mistyped_usual_method_is_refused_too(setup, wanted):
    file = Path(setup.profile)
    file.write_text(file.read_text("utf-8") + "method: refrom\n", "utf-8")
    with pytest.raises(UsageError, match="unknown method 'refrom'"):
        calibration.run(setup, wanted)


@pytest.mark.usefixtures("measured_once")
def test_an_empty_section_is_as_if_it_were_not_there(setup, wanted, searched):
    changed = with_methods(setup, ltri=None, infllm=None, reform=None)
    found = calibration.run(changed, wanted)
    assert searched[0][3] == Shape(128, 128, 4, 12, "row")
    made = profile.find(str(wanted.out)).methods
    assert made["infllm"] == {}
    assert made["reform"]["heads"] == [list(head) for head in found.heads]


@pytest.mark.usefixtures("measured_once")
def test_spans_are_searched_for_by_the_options_of_the_profile(setup, wanted, searched):
    sizes = {"first": 64, "block": 64, "vectors": 9, "ratio": "row+column"}
    calibration.run(with_methods(setup, ltri=sizes), wanted)
    assert searched == [(2, 3, 5, Shape(64, 64, 4, 9, "row+column"))]


def test_where_the_profile_says_nothing_sizes_follow_from_the_window(setup, wanted, folder):
    file = folder / "bare.yaml"
    file.write_text("{name: bare, window: 2048, sampling: {top_k: 5}}", "utf-8")
    found = calibration.run(replace(setup, profile=str(file)), replace(wanted, length=1000))
    made = profile.find(str(wanted.out))
    assert made.prompt == profile.PromptTemplate(prefix="")
    assert made.sampling.top_k == 5
    sizes = {"chunk": 512, "budget": 512, "first": 64, "last": 64, "queries": 128, "gather": 1024}
    assert made.methods["reform"] == {**sizes, "heads": [list(head) for head in found.heads]}


def test_a_model_without_a_profile_and_with_a_window_too_short_is_refused(setup, wanted):
    with pytest.raises(UsageError, match="retrieval heads in a window"):
        calibration.run(replace(setup, profile=None), wanted)


def test_what_cannot_work_is_refused_before_anything_is_loaded(setup, wanted, tmp_path):
    def refused(changed: CalibrationPlan) -> str:
        with pytest.raises(UsageError) as error:
            calibration.run(replace(setup, model="nowhere"), changed)
        return str(error.value)

    assert refused(replace(wanted, rank_by="recall")).startswith("cannot rank heads by 'recall'")
    one = replace(wanted, amounts=replace(AMOUNTS, samples=1))
    assert refused(one).startswith("cannot rank by 1 samples")
    assert "no .yaml file" in refused(replace(wanted, out=tmp_path / "mine.json"))
    assert "there is no folder" in refused(replace(wanted, out=tmp_path / "a" / "b.yaml"))
    wanted.out.write_text("mine", "utf-8")
    assert "will not replace" in refused(wanted)
    wanted.folder.mkdir()
    assert "no profile that `longctx calibrate` wrote" in refused(wanted)
    assert wanted.out.read_text("utf-8") == "mine"
    wanted.out.write_text(f"{HEADER}name: mine\n", "utf-8")
    assert "nowhere" in refused(wanted)  # the model's turn: this file may be replaced


@pytest.mark.usefixtures("measured_once")
def test_a_profile_is_not_replaced_by_one_of_which_less_was_measured(setup, wanted, tmp_path):
    more = replace(wanted, amounts=Amounts(samples=3, haystacks=1, needles=2, trials=3))
    calibration.run(setup, more)
    before = wanted.out.read_bytes()
    with pytest.raises(UsageError, match="made with 3 samples, and this run is to have 2"):
        calibration.run(setup, wanted)
    fewer = replace(wanted, amounts=Amounts(samples=4, haystacks=1, needles=1, trials=3))
    with pytest.raises(UsageError, match="made with 2 needles, and this run is to have 1"):
        calibration.run(setup, fewer)
    assert wanted.out.read_bytes() == before
    wanted.out.unlink()
    assert calibration.run(setup, wanted).samples == 2  # nothing is lost


@pytest.mark.usefixtures("measured_once")
def test_a_file_that_cannot_be_written_is_named(setup, wanted):
    calibration.run(setup, wanted)
    (wanted.folder / writing.HEAT_MAP).unlink()
    (wanted.folder / writing.HEAT_MAP).mkdir()
    with pytest.raises(LongctxError, match=r"cannot write '.*heatmap\.svg': it is a folder"):
        calibration.run(setup, wanted)


@pytest.mark.usefixtures("measured_once")
def test_a_profile_on_standard_output_and_nothing_in_its_place(setup, wanted, capsysbinary):
    wanted.out.write_text("theirs")  # no calibration's: it would be refused, not replaced
    found = calibration.run(setup, replace(wanted, printed=True))
    told = capsysbinary.readouterr().out.decode()
    assert told.startswith(HEADER)
    assert profile.load(told, "it").name == "mine"
    assert wanted.out.read_text() == "theirs"
    assert (wanted.folder / "table.json").is_file()
    assert str(found.profile) == "-"


@pytest.mark.usefixtures("measured_once")
@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
def test_all_that_is_written_is_its_owners_alone(setup, wanted, tmp_path):
    before = os.umask(0)
    try:
        calibration.run(setup, wanted)
    finally:
        os.umask(before)
    assert stat.S_IMODE(wanted.folder.stat().st_mode) == 0o700
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {file.name for file in files} >= {"mine.yaml", "results.jsonl", "settings.json"}
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in files} == {
        file.name: 0o600 for file in files
    }
