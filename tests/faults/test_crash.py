"""A few cases of each campaign, and that the layer and the model of the disk see what happens.

`tests/faults/campaign.py` tries thousands.
"""

import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

from campaign import Worker, faults, kills, pairs  # noqa: E402
from crash.disk import Disk, cuts, put, tree_of  # noqa: E402
from crash.layer import Record, available, read_journal  # noqa: E402
from crash.scenes import SCENES, Stage  # noqa: E402

layered = pytest.mark.skipif(bool(available()), reason=available() or "there is a layer")


@pytest.fixture(scope="session")
def work(model_folder, tmp_path_factory) -> Path:
    """The folder of a campaign."""
    work = tmp_path_factory.mktemp("campaign")
    shutil.copytree(model_folder, work / "model")
    return work


@pytest.fixture(scope="session")
def worker(work) -> Iterator[Worker]:
    worker = Worker(work, 0)
    yield worker
    worker.end()


@pytest.fixture(scope="session")
def stage(work, worker) -> Stage:
    return Stage(work / "stage", work / "model")


@pytest.fixture
def do(worker) -> Callable[..., dict]:
    """Does a case, which must not fail."""

    def do(**case: object) -> dict:
        found = worker.do(case)
        assert not found["failed"], found["failed"]
        return found

    return do


def sample(cases: Iterator[tuple[str, dict]], count: int) -> list[dict]:
    """Some cases, always the same."""
    return random.Random(7).sample([case for _, case in cases], count)


# --- the model of the disk ---


def record(kind: str, path: str, **more) -> Record:
    """An operation on a file, whose handle is its path's length."""
    plain = {"error": 0, "flags": 0, "offset": 0, "length": 0, "other": None, "data": b""}
    return Record(**{"kind": kind, "handle": len(path), "path": path, **plain, **more})


def states(*records: Record, tree: dict | None = None, seeds: int = 100) -> list[dict]:
    """What the disk may hold at the end."""
    promised = [{}] * (len(records) + 1)
    return [cut.tree for cut in cuts(tree or {}, list(records), promised, seeds) if cut.over]


NEW = record("create", "new"), record("write", "new", data=b"a" * 1024)
SYNCED = record("sync", "new")
FOLDER = record("open_read", ""), record("sync", "")


def test_nothing_is_left_of_a_file_whose_folder_was_not_synced():
    assert {} in states(*NEW, SYNCED)
    assert states(*NEW, SYNCED, *FOLDER) == [{"new": b"a" * 1024}]


def test_a_file_that_was_not_synced_is_there_in_part():
    sizes = {len(state["new"]) for state in states(*NEW, *FOLDER)}
    assert sizes == {0, 512, 1024}
    kept = {state["new"] for state in states(*NEW, *FOLDER)}
    assert b"\0" * 512 + b"a" * 512 in kept


def test_a_renaming_happens_as_a_whole_or_not_at_all():
    moved = record("rename", "old", other="new")
    found = states(moved, tree={"old": b"x", "new": b"y"})
    assert sorted(map(sorted, found)) == [["new"], ["new", "old"]]
    assert states(moved, *FOLDER, tree={"old": b"x", "new": b"y"}) == [{"new": b"x"}]


def test_changes_of_one_name_keep_their_order():
    found = states(record("unlink", "a"), record("mkdir", "a"), tree={"a": b"x"})
    assert [*map(repr, found)].count("{}") == 1
    assert {repr(state) for state in found} == {"{}", "{'a': b'x'}", "{'a': None}"}


# --- the layer ---


@layered
@pytest.mark.parametrize("name", list(SCENES))
def test_the_layer_sees_all_that_a_command_does(stage, name):
    """Done again on the model of a disk, it gives every byte; also what safetensors has written."""
    scene = SCENES[name]
    disk = Disk(tree_of(stage.base(scene.base)))
    for done in read_journal(stage.journal(scene), stage.root(scene)):
        disk.apply(done)
    assert disk.seen() == tree_of(stage.left(scene))


def test_a_state_can_be_put_on_the_disk(tmp_path):
    tree = {"a": None, "a/b": b"x", "c": b""}
    put(tree, tmp_path / "root")
    assert tree_of(tmp_path / "root") == tree


# --- the library ---


@layered
@pytest.mark.parametrize(
    ("name", "shares"),
    [("first", 200), ("append", 200), ("replace", 200), ("import", 40), ("rename", 2), ("rm", 2)],
)
def test_a_power_cut_loses_nothing_that_was_finished_or_saved(do, name, shares):
    assert do(kind="power", scene=name, random=1, seed=1, share=1, shares=shares)["states"]


@layered
@pytest.mark.parametrize("name", ["first", "ingest", "append", "import", "export", "retitle"])
def test_what_a_command_has_done_outlives_a_power_cut(do, stage, name):
    """The disk has nothing but what was synced by its end."""
    scene = SCENES[name]
    end = sum(1 for _ in read_journal(stage.journal(scene), stage.root(scene)))
    found = do(kind="power", scene=name, random=0, seed=1, state=f"{end}:0")
    assert found["states"] == 1


@layered
def test_a_checkpoint_outlives_a_power_cut(do, stage):
    """The first sync after a checkpoint is where its folder's name may have been lost."""
    done = list(read_journal(stage.journal(SCENES["ingest"]), stage.root(SCENES["ingest"])))
    named = [i for i, r in enumerate(done) if (r.other or "").endswith("new/manifest.json")]
    place = next(i for i, r in enumerate(done) if r.kind == "sync" and i > named[1] + 4)
    assert do(kind="power", scene="ingest", random=0, seed=1, state=f"{place}:0")["states"] == 1


@layered
def test_kills_by_the_layer(do, stage):
    for case in sample(kills(stage, 100, 2), 4):
        do(**case)


@layered
def test_operations_that_fail(do, stage):
    cases = [case for _, case in faults(stage, 1, 1) if case["kind"] == "fault"]
    hit = [do(**case)["hit"] for case in random.Random(7).sample(cases, 4)]
    assert sum(hit) > 2


@layered
@pytest.mark.parametrize("room", [2, 24, 120])
def test_too_little_memory(do, room):
    do(kind="memory", scene="append", room=room << 20)


@layered
@pytest.mark.parametrize("name", ["rm", "gc"])
def test_what_deletes_works_on_a_full_disk(do, name):
    do(kind="full", scene=name)


@layered
def test_flipped_bits(do):
    caught = [do(kind="flip", index=index, seed=1)["caught"] for index in range(4)]
    assert any(caught)


@layered
def test_two_commands_at_once(do, stage):
    for case in sample(pairs(stage, 1, 2), 3):
        do(**case)
