"""The campaign: a few cases of each target here, and that it goes on, tells and counts."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import closing
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import fuzz_commands
import fuzz_library
import fuzz_reading
import fuzz_targets
import fuzz_tensors
import pytest

HERE = Path(__file__).parent
spec = spec_from_file_location("campaign", HERE / "campaign.py")
campaign = module_from_spec(spec)
sys.modules["campaign"] = campaign  # dataclasses look there
spec.loader.exec_module(campaign)
CASES, COMMANDS = 40, 6  # of each target


@pytest.fixture(scope="module")
def rooms(tmp_path_factory):
    """A process's folders, and documents to change."""
    made, own = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("rooms")
    before = tempfile.tempdir
    with closing(fuzz_targets.Rooms(own, fuzz_library.make_library(made))) as rooms:
        yield rooms
    tempfile.tempdir = before


@pytest.mark.parametrize("name", fuzz_targets.TARGETS)
def test_some_cases_of_each_target(rooms, name):
    target = fuzz_targets.TARGETS[name]
    for number in range(COMMANDS if target.command else CASES):
        rng = fuzz_targets.drawn(name, number, 1)
        target.run(rooms, target.make(rooms, rng), rng)
    assert not list(rooms.temporary.iterdir())


@pytest.mark.parametrize("name", fuzz_targets.IN_PROCESS)
def test_a_case_is_the_same_again(rooms, name):
    target = fuzz_targets.TARGETS[name]

    def files(number: int) -> dict[str, bytes]:
        return target.files(target.make(rooms, fuzz_targets.drawn(name, number, 1)))

    assert files(3) == files(3)
    assert len({json.dumps({k: v.hex() for k, v in files(n).items()}) for n in range(9)}) > 4


@pytest.mark.parametrize("place", ["book memory", "book embeddings", "kept memory", "kept kv"])
@pytest.mark.parametrize("more", [[], ["--json"], ["--temperature", "0.7", "--seed", "1"]])
def test_an_answer_from_numbers_that_are_none_is_refused(rooms, place, more):
    """Such an answer was empty, or ended in a fault of ours where JSON was wanted."""
    name, group = place.split()
    case = fuzz_tensors.without_numbers(rooms.shelf, name, group)
    by = ["--gather-by", "method"] if name == "book" else []  # it reads all that is kept
    words = ["ask", "What is the code?", "--doc", name, *by, *fuzz_commands.COMPUTE, *more]
    with rooms.shelf.with_case(case):
        code, _, err = fuzz_commands.run([*words, "--library", str(rooms.shelf.library)])
    assert (code, "Ingest the document again" in err) == (13, True), err


def test_documents_are_whole_again_after_a_case(rooms):
    before = {path: path.read_bytes() for path in rooms.shelf.library.rglob("*-*")}
    for number in range(9):
        rng = fuzz_targets.drawn("tensors", number, 2)
        fuzz_reading.read_case(rooms.shelf, fuzz_tensors.tensor_case(rooms.shelf, rng), rng)
    assert {path: path.read_bytes() for path in rooms.shelf.library.rglob("*-*")} == before


def test_bytes_that_are_drawn_from_lead_to_cases(rooms):
    for data in (b"", b"\1" * 40, bytes(range(256))):
        fuzz_targets.from_bytes(rooms, "manifests", data)


PROGRAM = """
import os, sys, time, warnings
sys.path[:0] = {paths!r}
import campaign, fuzz_targets
from longctx.core.common.errors import UsageError

def told(rooms, made, rng):
    raise UsageError("no")

def fails(rooms, made, rng):
    kind = rng.randrange(10)
    if kind == 0:
        raise KeyError("x")
    if kind == 1:
        warnings.warn("careful")
    if kind == 2:
        print("hello", file=sys.stderr)
    if kind == 3:
        open({outside!r}, "w").close()
    if kind == 4:
        (rooms.temporary / "left").touch()
    if kind == 5:
        bytearray(1 << 40)
    if kind == 6:
        os.write(1, b"from C")
    if kind == 9:
        raise UsageError("")
    if kind == 8:
        assert rooms is None

def dies(rooms, made, rng):
    if rng.randrange(15) == 0:
        os._exit(3)

def loops(rooms, made, rng):
    rare = rng.randrange(8) == 0
    while rare:
        pass

def stands(rooms, made, rng):
    time.sleep(60 * (rng.randrange(10) == 0))

campaign.__file__, campaign.BLOCK, campaign.HANGS = __file__, 20, 2.0
for run in (told, fails, dies, loops, stands):
    make, files = lambda rooms, rng: rng.random(), lambda made: dict(case=b"%r" % made)
    fuzz_targets.TARGETS[run.__name__] = fuzz_targets.Target(1, make, run, files)
import fuzz_running
fuzz_running.Guard.__init__.__defaults__ = (0.2,)
campaign.WARM, campaign.LARGE = 0, "json"  # these targets compute nothing
sys.exit(campaign.main())
"""


@pytest.fixture
def program(tmp_path):
    """The campaign with targets that fail."""
    paths = [str(HERE), str(HERE.parent / "reference")]
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(paths=paths, outside=str(tmp_path / "outside")))

    def run(*words: str) -> tuple[int, str]:
        command = [sys.executable, str(file), *words]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
        return done.returncode, done.stdout + done.stderr

    return run


def failures(journal: Path) -> dict[str, int]:
    """How often each kind of failure is in a journal."""
    lines = (journal / "journal.jsonl").read_text().splitlines()
    kinds = [kind for line in lines[1:] for _, kind in json.loads(line)["failures"]]
    return {kind: kinds.count(kind) for kind in kinds}


@pytest.mark.slow
def test_every_way_to_fail_is_told_and_every_case_counts(program, tmp_path):
    words = ["--cases", "100", "--jobs", "2", "--journal", str(tmp_path / "journal")]
    code, said = program("run", *words, "--targets", "told,fails,dies,loops,stands")
    assert code == 1, said
    found = failures(tmp_path / "journal")
    assert found.keys() == {
        "fails: KeyError in program.py:fails",
        "fails: AssertionError in program.py:fails",
        "fails: warned",
        "fails: printed to 1",
        "fails: printed to 2",
        "fails: did open",
        "fails: left files",
        "fails: over the limit of memory in program.py:fails",
        "fails: an error that says nothing",
        "dies: its process ended with 3",
        "loops: over 0.2 s in program.py:loops",
        "stands: did not end within 2 s",
    }
    assert f"100 cases, {sum(found.values())} failed" in said
    kept = json.loads(next((tmp_path / "journal/failures").glob("fails-*.json")).read_text())
    assert kept.keys() == {"case", "kind", "told", "files"}
    again, said = program("case", kept["case"])
    assert again == 1
    assert kept["kind"] in said


@pytest.mark.slow
def test_a_campaign_goes_on_where_it_was_stopped(program, tmp_path):
    journal = tmp_path / "journal" / "journal.jsonl"
    words = ["run", "--cases", "100", "--jobs", "1", "--targets", "told"]
    words += ["--journal", str(journal.parent)]
    code, said = program(*words, "--seconds", "0")
    assert (code, "100 cases are left" in said) == (0, True), said
    assert program(*words)[0] == 0
    whole = journal.read_text().splitlines()
    journal.write_text("\n".join(whole[:-1]) + "\n" + whole[-1][:20])  # killed while it wrote
    code, said = program(*words)
    assert (code, "100 cases, 0 failed" in said) == (0, True), said
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    blocks = [entry["block"] for entry in entries[1:]]
    assert sorted(blocks) == sorted(f"told:{at}:{at + 20}" for at in range(0, 100, 20))


def test_a_journal_of_another_seed_is_refused(tmp_path):
    campaign.Journal(tmp_path, 1)
    campaign.Journal(tmp_path, 1)
    with pytest.raises(SystemExit, match="another seed"):
        campaign.Journal(tmp_path, 2)


def test_the_cases_of_a_campaign_are_shared_out(tmp_path):
    blocks = campaign.blocks_of(["a", "b"], 1000, {"a": 3, "b": 1}, 100)
    assert len({block.key for block in blocks}) == len(blocks)
    counts = {name: 0 for name in "ab"}
    for block in blocks:
        counts[block.target] += block.last - block.first
    assert counts == {"a": 750, "b": 250}
    assert {block.target for block in blocks[:4]} == {"a", "b"}
