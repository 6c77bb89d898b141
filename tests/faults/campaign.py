"""Campaigns against the library: thousands of crashes, faults and races, each with its judgement.

    python tests/faults/campaign.py kills --count 1000 --seed 1 --jobs 16 --journal kills.jsonl

`kills`: SIGKILL before or within a random write, renaming, sync or the like. `flips`: a bit of a
file of the library is another one. `power`: every state that a disk may hold after a power cut,
at every sync. `faults`: every operation fails once with EIO and, from it on, with ENOSPC; and
memory is short. `pairs`: every ordered pair of commands at once. With a journal, cases that are in
it are not done again. Ends with 1 if any failed; `--case NAME` does one again.
"""

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "reference")]

from crash import layer  # noqa: E402
from crash.cases import TOGETHER, chosen  # noqa: E402
from crash.scenes import KILLED, SCENES, Stage  # noqa: E402

ROOMS = [*range(0, 64, 2), *range(64, 512, 16)]  # MiB of memory beside what a process has
SHARES = 32  # parts in which the states of a scene are tried


class Worker:
    """A process of `crash.worker`, begun again if it dies.

    Args:
        work: the folder of this campaign, with `model`, `stage` and the layer.
        number: of the worker.
    """

    def __init__(self, work: Path, number: int):
        self._work, self._number = work, number
        self._begin()

    def _begin(self) -> None:
        work = self._work
        paths = [str(HERE), str(HERE.parent / "reference"), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "LD_PRELOAD": str(layer.make(work)),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": "1",
        }
        scratch = work / f"worker{self._number}"
        command = [sys.executable, "-m", "crash.worker", work / "stage", work / "model", scratch]
        with (work / f"worker{self._number}.err").open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        if self._process.stdout.readline() != "ready\n":
            why = (work / f"worker{self._number}.err").read_text(errors="replace")[-3000:]
            self.end()
            raise SystemExit(f"no worker: {why}")

    def do(self, case: dict) -> dict:
        """Does a case."""
        try:
            self._process.stdin.write(f"{json.dumps(case)}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            return json.loads(answer)
        self.end()
        code = self._process.returncode
        self._begin()
        return {"case": case, "failed": f"the worker died with {code}", "seconds": 0.0}

    def end(self) -> None:
        """Lets it end."""
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


# --- the cases of a campaign: their names, and what they are ---


def kills(stage: Stage, count: int, seed: int) -> Iterator[tuple[str, dict]]:
    """Random moments of random commands."""
    for index in range(count):
        chance = chosen(seed, index)
        what = {"scene": chance.choice(KILLED), "at": chance.random()}
        yield str(index), {"kind": "kill", **what, "within": chance.random() < 0.5}


def flips(stage: Stage, count: int, seed: int) -> Iterator[tuple[str, dict]]:
    """Random bits of random files."""
    for index in range(count):
        yield str(index), {"kind": "flip", "index": index, "seed": seed}


def power(stage: Stage, count: int, seed: int) -> Iterator[tuple[str, dict]]:
    """All states of all commands, with `count` random ones at each sync."""
    for name in KILLED:
        for share in range(SHARES):
            case = {"kind": "power", "scene": name, "random": count, "seed": seed}
            yield f"{name}/{share}", {**case, "share": share, "shares": SHARES}


def faults(stage: Stage, count: int, seed: int) -> Iterator[tuple[str, dict]]:
    """Every operation of every command, and too little memory."""
    for name in KILLED:
        scene = SCENES[name]
        for error, on, kinds in (("EIO", False, layer.CHANGES), ("ENOSPC", True, layer.GROWS)):
            for number in range(stage.operations(scene, kinds)):
                case = {"kind": "fault", "scene": name, "error": error, "on": on}
                yield f"{name}/{error}/{number}", {**case, "number": number}
        for room in ROOMS:
            yield f"{name}/memory/{room}", {"kind": "memory", "scene": name, "room": room << 20}
    for name in ("rm", "gc"):
        yield f"{name}/full", {"kind": "full", "scene": name}


def pairs(stage: Stage, count: int, seed: int) -> Iterator[tuple[str, dict]]:
    """Every ordered pair, `count` times."""
    names = [(one, other) for one in TOGETHER for other in TOGETHER]
    for round_ in range(count):
        for index, both in enumerate(names):
            case = {"kind": "pair", "pair": both, "seed": seed, "index": round_ * 10_000 + index}
            yield f"{both[0]}+{both[1]}/{round_}", case


CAMPAIGNS = {"kills": kills, "flips": flips, "power": power, "faults": faults, "pairs": pairs}
COUNTS = {"kills": 1000, "flips": 10_000, "power": 3, "faults": 1, "pairs": 2}


def prepare(work: Path) -> None:
    """Makes the model; the first worker makes the rest."""
    if (work / "model").exists():
        return
    spec = importlib.util.spec_from_file_location("shared", HERE.parent / "conftest.py")
    shared = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shared)
    shared.build_model_folder(work / "building-model", shared.WORDS, vocab_size=400)
    (work / "building-model").rename(work / "model")


def run(cases: list[tuple[str, dict]], work: Path, jobs: int, note) -> list[dict]:
    """Does cases in so many workers; `note` gets each that is done."""
    waiting, done, gate = iter(cases), [], threading.Lock()

    def live(number: int) -> None:
        worker = Worker(work, number)
        while True:
            with gate:
                name, case = next(waiting, (None, None))
            if name is None:
                return worker.end()
            found = {"name": name, **worker.do(case)}
            with gate:
                done.append(found)
                note(found)

    threads = [threading.Thread(target=live, args=(number,)) for number in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def table(done: list[dict]) -> str:
    """How many cases there were of each sort, how many failed, and how long they took."""
    groups: dict[str, list[dict]] = defaultdict(list)
    for found in done:
        case = found["case"]
        sort = case.get("scene") or found.get("file") or "+".join(case.get("pair", ["all"])[:1])
        groups[sort].append(found)
    lines = [f"{'':16}{'cases':>8}{'failed':>8}{'seconds':>10}"]
    for sort, some in [*sorted(groups.items()), ("all", done)]:
        cases = sum(found.get("states", 1) for found in some)
        failed = sum(found.get("failed_states", bool(found["failed"])) for found in some)
        seconds = sum(found["seconds"] for found in some)
        lines.append(f"{sort:16}{cases:8,}{failed:8,}{seconds:10,.0f}")
    caught = [found["caught"] for found in done if "caught" in found]
    if caught:
        lines.append(
            f"caught: {sum(caught):,}; in bytes that are not used: {caught.count(False):,}"
        )
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("campaign", choices=CAMPAIGNS)
    parser.add_argument("--count", type=int, help="cases; power: random states at each sync; "
                        "pairs: rounds")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--journal", type=Path, help="cases that are done, one JSON line each")
    parser.add_argument("--case", help="the name of one, as a failure tells it")
    parser.add_argument("--state", help="with --case, of `power`: one state, as 115:2")
    given = parser.parse_args()
    if why := layer.available():
        raise SystemExit(f"no layer can be made: {why}")
    work = Path(tempfile.mkdtemp(prefix="longctx-campaign-"))
    try:
        return campaign(given, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def campaign(given: argparse.Namespace, work: Path) -> int:
    """Does a campaign, or what is left of it; the exit code."""
    prepare(work)
    Worker(work, 0).end()  # builds the stage
    stage = Stage(work / "stage", work / "model")
    count = COUNTS[given.campaign] if given.count is None else given.count
    wanted = dict(CAMPAIGNS[given.campaign](stage, count, given.seed))
    key = f"{given.campaign} {given.seed}"
    before = []
    if given.case:
        wanted = {given.case: {**wanted[given.case], "state": given.state}}
    elif given.journal and given.journal.exists():
        lines = [json.loads(line) for line in given.journal.read_text().splitlines()]
        before = [line for line in lines if line["campaign"] == key and line["name"] in wanted]
        for line in before:
            wanted.pop(line["name"], None)
    started = time.monotonic()

    def note(found: dict) -> None:
        if found["failed"]:
            print(f"FAILED {found['name']}: {found['failed']}", flush=True)
            print(f"  again: {given.campaign} --seed {given.seed} --count {count} "
                  f"--case {found['name']}", flush=True)  # fmt: skip
        if given.journal and not given.case:
            with given.journal.open("a") as out:
                print(json.dumps({"campaign": key, **found}), file=out)

    done = before + run(list(wanted.items()), work, min(given.jobs, len(wanted) or 1), note)
    print(table(done))
    seconds = time.monotonic() - started
    print(f"{given.campaign}, seed {given.seed}: {seconds:,.0f} s, {given.jobs} at once")
    return 1 if any(found["failed"] for found in done) else 0


if __name__ == "__main__":
    sys.exit(main())
