"""Documents read by several processes: the library that one process makes, whoever is killed."""

import os
import random
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.ingest import fleet
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.fleet import read_with_workers
from longctx.core.ingest.job import NOBODY, Job, Observer
from longctx.core.ingest.many import Each, named_sources, read_each
from longctx.core.sources.rules import Rules
from longctx.core.store.manifest import Manifest

WORDS = ("the", "keeper", "wrote", "in", "his", "book", "that", "a", "boat", "came", "home")


@pytest.fixture
def job(tmp_path, setup_random) -> Job:
    """Forty files of different lengths."""
    folder = tmp_path / "top"
    folder.mkdir()
    chance = random.Random(0)
    for number in range(40):
        (folder / f"{number}.txt").write_text(" ".join(chance.choices(WORDS, k=100 + 15 * number)))
    return Job(tmp_path / "one", [str(folder)], setup_random, cadence=Cadence(tokens=64))


def written(library: Path) -> dict[str, bytes]:
    """Every file of the documents of a library."""
    folder = library / "documents"
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.slow
def test_two_workers_and_kills_make_what_one_process_makes(job, tmp_path):
    read_each(job)
    pids, killed = set[int](), list[int]()
    chance = random.Random(1)

    def progress(told, document):
        workers = [each.process.pid for each in made[0]._workers if each.process.pid not in killed]
        pids.update(workers)
        if len(killed) < 3 and chance.random() < 0.05:
            killed.append(chance.choice(workers))
            os.kill(killed[-1], signal.SIGKILL)

    made = []
    init = fleet._Fleet.__init__

    def kept(self, *given):
        made.append(self)
        init(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet._Fleet, "__init__", kept)
        done = read_with_workers(
            replace(job, library=tmp_path / "two"), 2, 0, Observer(progress=progress)
        )
    assert not done.failed
    assert len(killed) == 3
    assert len(pids) > 2
    assert {each.name for each in done.documents} == {f"top-{n}.txt" for n in range(40)}
    assert written(tmp_path / "two") == written(tmp_path / "one")


@pytest.mark.slow
def test_a_file_that_kills_its_reader_fails_alone(job, tmp_path):
    made = []
    init = fleet._Fleet.__init__

    def kept(self, *given):
        made.append(self)
        init(self, *given)

    def progress(told, document):
        if document == "top-39.txt":
            for each in made[0]._workers:
                if each.name == document:
                    each.process.kill()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet._Fleet, "__init__", kept)
        done = read_with_workers(job, 2, 0, Observer(progress=progress))
    assert len(done.documents) == 39
    [failed] = done.failed
    assert failed.source.endswith("39.txt")
    assert "ended 3 times" in failed.message


@pytest.mark.slow
def test_ctrl_c_saves_what_the_workers_have_read(job):
    def progress(told, document):
        if told.tokens > 200:
            raise KeyboardInterrupt

    result = Each()
    with pytest.raises(KeyboardInterrupt):
        read_with_workers(job, 2, 0, Observer(progress=progress), result)
    begun = [path for path in (job.library / "unfinished").iterdir() if path.name.startswith("top")]
    assert any(Manifest.read(path).tokens for path in begun)
    assert len(result.documents) < 40
    done = read_with_workers(job, 2, 0, NOBODY)
    assert any(each.reused_tokens and each.status == "complete" for each in done.documents)
    assert len(done.documents) == 40


def test_shards_are_disjoint_and_all(job):
    whole = named_sources(job.paths, Rules())
    parts = [named_sources(job.paths, Rules(), (number, 3)) for number in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(whole)
    assert sum(map(len, parts)) == len(whole)
    assert max(map(len, parts)) < len(whole)


def test_standard_input_is_refused(job):
    with pytest.raises(UsageError, match="standard input"):
        read_with_workers(replace(job, paths=["-"]), 2)
