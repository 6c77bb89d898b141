"""A needle test as a whole: it reads, asks, reports, stops and goes on."""

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.engine.choice import Setup
from longctx.core.measure.niah import needle_test as niah
from longctx.core.measure.niah.report import HaystackRead, NeedleReport, Trial
from longctx.core.measure.runner import Asked, How

SETUP = Setup(dtype="fp32", threads=1)


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where temporary folders are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def answering(monkeypatch):
    """In place of a model, one that says what it is told to; returns the names of what it read."""
    read = []

    def say(wrong: str = "", stop_at: int | None = None):
        @contextmanager
        def opened(case, setup, gathers_by, on_progress):
            if len(read) == stop_at:
                raise KeyboardInterrupt
            read.append(case.name)
            tokens = int(case.name.split("/")[0])
            engine = SimpleNamespace(method_name="reform")
            yield SimpleNamespace(tokens=tokens, seconds=0.5), SimpleNamespace(engine=engine)

        def ask(session, query, how):
            answer = query.answers[0] if query.kind != wrong else "nobody knows"
            return Asked(query.kind, query.question, query.answers, answer, 1.0, {}, {})

        monkeypatch.setattr(niah, "opened", opened)
        monkeypatch.setattr(niah, "ask", ask)
        return read

    return say


# --- with the bundled model ---


def test_needles_are_found(temporary, tmp_path):
    told, trials = [], []
    watch = niah.NeedleWatch(
        on_progress=lambda plan, progress: told.append((plan.name, progress.tokens)),
        on_trial=lambda plan, number, trial, kept: trials.append((number, trial)),
    )
    wanted = niah.NeedleTest((900,), depths=2, seed=2, how=How(gather=300), out=tmp_path / "out")
    report = niah.run(SETUP, wanted, watch)
    assert [(t.kind, t.depth, t.answer, t.gathered) for t in report.asked] == [
        (kind, depth, trial.expected, True)
        for (kind, depth), (_, trial) in zip(
            [("passkey", 0), ("number", 0), ("passkey", 1), ("number", 1)], trials, strict=True
        )
    ]
    assert report.passed
    assert told[-1] == ("900/0", 900)
    assert [number for number, _ in trials] == [1, 2, 3, 4]
    assert report.asked[0].tokens["document"] == 900
    assert report.asked[0].timings["total_s"] > 0
    assert report.tokens_per_s > 0
    left = [path.name for path in temporary.iterdir()]  # torch makes one of its own when it must
    assert [name for name in left if not name.startswith("torchinductor_")] == []
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == json.loads(
        json.dumps(report.as_dict())
    )
    drawn = ElementTree.fromstring((tmp_path / "out" / "heatmap.svg").read_text("utf-8"))
    texts = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:2] == ["default: 100.0% answered (tiny, reform)", "plainly worded needles"]
    assert texts.count("100%") == 3  # a depth, and both cells


def test_what_a_recalling_method_attends_to_counts_as_gathered():
    wanted = niah.NeedleTest((700,), depths=1, variant="passkey")
    setup = Setup(method="reattention", dtype="fp32", threads=1)
    report = niah.run(setup, wanted)
    assert report.settings["method"] == "reattention"
    assert [trial.gathered for trial in report.asked] == [True]


# --- going on, and stopping ---


def test_a_run_goes_on_where_it_stopped(answering, tmp_path):
    wanted = niah.NeedleTest((900, 1200), depths=2, trials=2, out=tmp_path)
    read = answering(stop_at=3)
    with pytest.raises(KeyboardInterrupt):
        niah.run(SETUP, wanted)
    assert not (tmp_path / "report.json").exists()
    answering()
    trials = []
    watch = niah.NeedleWatch(
        on_trial=lambda plan, number, trial, kept: trials.append((trial, kept))
    )
    report = niah.run(SETUP, wanted, watch)
    assert read == ["900/0", "900/1", "1200/0", "1200/1"]
    assert list(report.asked) == [trial for trial, _ in trials]
    kept = [was for _, was in trials]  # three haystacks were finished
    assert kept == [True] * (len(kept) // 4 * 3) + [False] * (len(kept) // 4)
    assert len(report.reads) == 4


def test_more_lengths_and_trials_may_come_later(answering, tmp_path):
    read = answering()
    niah.run(SETUP, niah.NeedleTest((900,), depths=2, out=tmp_path))
    report = niah.run(SETUP, niah.NeedleTest((900, 1200), depths=2, trials=2, out=tmp_path))
    assert read == ["900/0", "900/1", "1200/0", "1200/1"]
    assert report.settings["lengths"] == (900, 1200)
    with pytest.raises(UsageError, match="seed was 0 there, and is 1 now"):
        niah.run(SETUP, niah.NeedleTest((900,), depths=2, seed=1, out=tmp_path))


def test_strict_reads_a_haystack_for_each_needle(answering):
    read = answering()
    report = niah.run(SETUP, niah.NeedleTest((600,), depths=2, strict=True))
    assert read == [f"600/0/{number}" for number in range(4)]
    assert all(len(each.trials) == 1 for each in report.reads)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_nothing_is_left_after_an_error(temporary, monkeypatch, error):
    def fail(library, paths, setup, on_progress, vectors):
        library.mkdir()
        assert Path(paths[0]).read_text()
        raise error

    monkeypatch.setattr("longctx.core.measure.runner.ingest", fail)
    with pytest.raises(error):
        niah.run(SETUP, niah.NeedleTest((600,), depths=1))
    assert list(temporary.iterdir()) == []


def test_another_count_of_tokens_read_is_an_error(monkeypatch):
    @contextmanager
    def opened(case, setup, gathers_by, on_progress):
        yield SimpleNamespace(tokens=601, seconds=1.0), None

    monkeypatch.setattr(niah, "opened", opened)
    with pytest.raises(LongctxError, match="read 601 tokens of a haystack of 600"):
        niah.run(SETUP, niah.NeedleTest((600,), depths=1))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (niah.NeedleTest((16_000, 50)), "too short"),
        (niah.NeedleTest((900, 900)), "each must be there once"),
        (niah.NeedleTest(depths=0), "0 depths"),
        (niah.NeedleTest(needles=0), "0 needles"),
        (niah.NeedleTest(trials=0), "0 trials"),
        (niah.NeedleTest(variant="none"), "no variant"),
        (niah.NeedleTest(needles=40), "can be told apart"),
        (niah.NeedleTest(haystack=Path("no-such-file")), "No such file"),
    ],
)
def test_wrong_wishes_are_refused_before_anything_is_read(answering, wanted, message):
    read = answering()
    with pytest.raises(UsageError, match=message):
        niah.run(SETUP, wanted)
    assert not read


# --- reports ---


@pytest.mark.parametrize(
    ("variant", "bar", "passed"),
    [(None, None, False), (None, 0.5, True), ("mixed", None, False), ("mixed", 0.8, True)],
)
def test_the_bar_decides(answering, variant, bar, passed):
    answering(wrong="passkey")
    wanted = niah.NeedleTest((3000,), depths=7, variant=variant, bar=bar)
    assert niah.run(SETUP, wanted).passed is passed


def trial(kind: str, length: int, depth: float, answered: bool, gathered: bool) -> Trial:
    return Trial(kind, length, 0, depth, 7, "What?", "1", "1", answered, gathered, {}, {})


def test_report_counts_by_kind_and_cell():
    trials = (
        trial("passkey", 600, 0.0, True, True),
        trial("number", 600, 0.0, False, True),
        trial("passkey", 600, 1.0, True, False),
        trial("number", 600, 1.0, False, False),
    )
    settings = {"lengths": (600,), "depths": (0.0, 1.0), "bar": 1.0}
    report = NeedleReport(settings, (HaystackRead("600/0", 600, 0.5, 0.1, trials),))
    values = report.as_dict()
    assert not report.passed
    assert (values["schema_version"], values["asked"], values["answered"]) == (2, 4, 2)
    assert [(kind["kind"], kind["answered"], kind["gathered"]) for kind in values["kinds"]] == [
        ("passkey", 2, 1),
        ("number", 0, 1),
    ]
    assert [(cell["length"], cell["depth"], cell["rate"]) for cell in values["cells"]] == [
        (600, 0.0, 0.5),
        (600, 1.0, 0.5),
    ]
    assert report.shares() == [[0.5], [0.5]]
    assert values["tokens_per_s"] == 1200
    assert values["haystacks"][0]["needles"] == 4
    assert values["settings"]["bar"] == 1.0
    assert values["interval"] == [0.15, 0.85]
    assert values["trials"][0]["question"] == "What?"
