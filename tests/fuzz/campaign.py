"""A campaign of fuzzing: many cases, over processes, within limits, gone on with when begun again.

    python tests/fuzz/campaign.py run --cases 1000000 --jobs 16 --journal FOLDER
    python tests/fuzz/campaign.py commands --cases 20000 --jobs 16 --journal FOLDER
    python tests/fuzz/campaign.py case manifests:4711 --save FOLDER

`run` tries what is read in process, `commands` the real `ask`, `find`, `list` and `verify`, `case`
one case again. Blocks of cases that are done stand in `FOLDER/journal.jsonl`; the same command goes
on after them. What failed is kept in `FOLDER/failures`. Each worker may take so much memory and
time and no more; one that hangs or dies is killed, told, and replaced. Leaves with 1 if anything
failed.
"""

import argparse
import base64
import json
import mmap
import os
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "reference"))

BLOCK, SMALL_BLOCK = 500, 20  # cases that are journaled together: in process, of commands
HANGS = 40.0  # seconds after which a case's process is killed
ROOM, MORE_ROOM = 1 << 30, 2 << 30  # bytes that a case may take, in process and of a command
ALIKE = 3  # failures of one kind whose files are kept
LARGEST = 1 << 17  # bytes of a failure's files that are kept
WARM = 8  # cases of a target that a process tries unwatched: they import what they need
LARGE = "longctx.core.engine.setup"  # brings torch, which takes more room than a case may
SLOT = struct.Struct("<qd")  # the case that a worker is at, and since when; -1: none


@dataclass(frozen=True)
class Block:
    """Cases [first, last) of a target; those of `skip` have failed before, with their processes."""

    target: str
    first: int
    last: int
    skip: tuple[tuple[int, str], ...] = ()

    @property
    def key(self) -> str:
        """What the journal calls it."""
        return f"{self.target}:{self.first}:{self.last}"


# --- the worker ---


def work(seed: int, scratch: Path, library: Path | None, slot: int, report: int) -> None:
    """Tries blocks that come on standard input, one a line, and reports each on `report`."""
    import fuzz_running
    import fuzz_targets

    import_module(LARGE)
    own = scratch / f"worker-{slot}-{os.getpid()}"
    own.mkdir()
    rooms = fuzz_targets.Rooms(own, library)
    guard = fuzz_running.Guard([own], rooms.temporary)
    with (scratch / "slots").open("r+b") as file, os.fdopen(report, "w") as out:
        at = partial(SLOT.pack_into, mmap.mmap(file.fileno(), 0), slot * SLOT.size)
        warm: set[str] = set()
        for line in sys.stdin:
            block = Block(**json.loads(line))
            try:
                if block.target not in warm:
                    warm.add(block.target)
                    _warm_up(rooms, block.target)
                guard.limit_memory(_room(block.target))
                result = _tried(block, seed, rooms, guard, at)
            except Exception:  # a fault of the campaign: standard error is taken
                result = {"broken": traceback.format_exc()}
            print(json.dumps(result), file=out, flush=True)


def _room(name: str) -> int:
    """Bytes that a case of a target may take."""
    from fuzz_targets import TARGETS

    return MORE_ROOM if TARGETS[name].command else ROOM


def _warm_up(rooms: Any, name: str) -> None:
    import fuzz_targets

    target = fuzz_targets.TARGETS[name]
    for number in range(-WARM, 0):
        rng = fuzz_targets.drawn(name, number, 0)
        try:
            target.run(rooms, target.make(rooms, rng), rng)
        except Exception:
            continue  # it would be told of where it counts


def _tried(block: Block, seed: int, rooms: Any, guard: Any, at: Any) -> dict[str, Any]:
    """Tries a block's cases; what the journal says of it, with the failures' files."""
    import fuzz_running
    import fuzz_targets

    target, skipped = fuzz_targets.TARGETS[block.target], {number for number, _ in block.skip}
    failures, slowest, started = [], (0.0, block.first), time.process_time()
    fuzz_running.forget_peak()
    for number in range(block.first, block.last):
        if number in skipped:
            continue
        rng = fuzz_targets.drawn(block.target, number, seed)
        made = target.make(rooms, rng)
        at(number, time.monotonic())
        failure, seconds = fuzz_running.timed(
            partial(guard.run, partial(target.run, rooms, made, rng))
        )
        at(-1, 0.0)
        slowest = max(slowest, (seconds, number))
        if failure:
            files = _encoded(target.files(made))
            failures.append([number, failure.kind, failure.told, files])
    return {
        "block": block.key,
        "cpu_s": round(time.process_time() - started, 3),
        "slowest": [round(slowest[0], 3), slowest[1]],
        "peak_mb": round(fuzz_running.peak_mb()),
        "failures": failures,
    }


def _encoded(files: dict[str, bytes]) -> dict[str, str]:
    """Files as JSON can keep them; none where they are large, for a case can be made again."""
    if sum(map(len, files.values())) > LARGEST:
        return {}
    return {name: base64.b64encode(data).decode() for name, data in files.items()}


# --- the journal ---


class Journal:
    """The blocks that are done, in a folder.

    Args:
        folder: made if absent.
        seed: of all cases; a journal of another one is refused.
    """

    def __init__(self, folder: Path, seed: int):
        self.folder, self._file = folder, folder / "journal.jsonl"
        (folder / "failures").mkdir(parents=True, exist_ok=True)
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        whole = [line for line in lines if _is_whole(line)]
        if whole != lines:  # what is appended must not follow half a line
            self._file.write_text("".join(f"{line}\n" for line in whole))
        head, *entries = [json.loads(line) for line in whole] or [None]
        if head is None:
            self._append({"seed": seed})
        elif head != {"seed": seed}:
            sys.exit(f"{self._file} is of another seed: {head}")
        self.entries: list[dict[str, Any]] = entries
        self._kinds = Counter(kind for entry in entries for _, kind in entry["failures"])

    @property
    def done(self) -> set[str]:
        """The blocks that need not be tried again."""
        return {entry["block"] for entry in self.entries}

    def add(self, result: dict[str, Any]) -> None:
        """Keeps the result of a block, and the files of what failed in a new way."""
        target = result["block"].partition(":")[0]
        for number, kind, told, files in result["failures"]:
            kind = f"{target}: {kind}"
            self._kinds[kind] += 1
            if self._kinds[kind] <= ALIKE:
                self._keep(target, number, {"kind": kind, "told": told, "files": files})
        failures = [[number, f"{target}: {kind}"] for number, kind, _, _ in result["failures"]]
        entry = {**result, "failures": failures}
        self.entries.append(entry)
        self._append(entry)

    def _keep(self, target: str, number: int, told: dict[str, Any]) -> None:
        path = self.folder / "failures" / f"{target}-{number}.json"
        path.write_text(json.dumps({"case": f"{target}:{number}", **told}, indent=1) + "\n")

    def _append(self, entry: dict[str, Any]) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def print_table(self) -> int:
        """Prints what came of all blocks; the number of failures."""
        rows = {}
        for entry in self.entries:
            target, first, last = entry["block"].split(":")
            row = rows.setdefault(target, [0, 0, 0.0, 0, 0.0])
            row[0] += int(last) - int(first)
            row[1] += len(entry["failures"])
            row[2] = max(row[2], entry["slowest"][0])
            row[3] = max(row[3], entry["peak_mb"])
            row[4] += entry["cpu_s"]
        heads = ("cases", 10), ("failures", 10), ("slowest s", 11), ("peak MB", 9), ("a CPU s", 9)
        print("target    " + "".join(head.rjust(width) for head, width in heads))
        for target, (cases, failures, slowest, peak, seconds) in sorted(rows.items()):
            rate = cases / seconds if seconds else 0
            numbers = f"{cases:>10,}{failures:>10,}{slowest:>11.2f}{peak:>9,}{rate:>9.0f}"
            print(f"{target:<10}{numbers}")
        for kind, count in self._kinds.most_common():
            first = next(n for e in self.entries for n, k in e["failures"] if k == kind)
            print(f"  {count:,} x {kind} (such as {kind.partition(':')[0]}:{first})")
        print(
            f"{sum(row[0] for row in rows.values()):,} cases, {sum(self._kinds.values()):,} failed"
        )
        return sum(self._kinds.values())


def _is_whole(line: str) -> bool:
    """Whether a line is an entry; a killed campaign may leave half of one."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


# --- the campaign ---


@dataclass
class Worker:
    """A process that tries blocks.

    Attributes:
        slot: where it says which case it is at.
        process, results: the process, and the pipe on which it reports.
        block: what it is at; None: nothing.
    """

    slot: int
    process: subprocess.Popen
    results: Any
    block: Block | None = None


@dataclass
class Campaign:
    """Blocks, and the processes that try them.

    Attributes:
        waiting: blocks to be tried, the next one last.
        until: when no other block is begun, on the monotonic clock.
    """

    journal: Journal
    seed: int
    scratch: Path
    library: Path | None
    waiting: list[Block]
    until: float
    _slots: mmap.mmap = field(init=False)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def run(self, jobs: int) -> None:
        """Tries all blocks with so many processes."""
        (self.scratch / "slots").write_bytes(SLOT.pack(-1, 0.0) * jobs)
        with (self.scratch / "slots").open("r+b") as file:
            self._slots = mmap.mmap(file.fileno(), 0)
        try:
            for slot in range(min(jobs, len(self.waiting))):
                self._start(slot)
            while self._workers():
                for key, _ in self._selector.select(0.5):
                    self._read(key.data)
                for worker in self._workers():
                    self._watch(worker)
        finally:
            for worker in self._workers():
                worker.process.kill()
                worker.process.wait()

    def _workers(self) -> list[Worker]:
        return [key.data for key in self._selector.get_map().values()]

    def _start(self, slot: int) -> None:
        SLOT.pack_into(self._slots, slot * SLOT.size, -1, 0.0)
        read, write = os.pipe()
        library = str(self.library) if self.library else ""
        words = [
            __file__,
            "work",
            str(self.seed),
            str(self.scratch),
            library,
            str(slot),
            str(write),
        ]
        process = subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.PIPE,
            pass_fds=[write],
            env=_environment(self.scratch),
            text=True,
        )
        os.close(write)
        worker = Worker(slot, process, os.fdopen(read))
        self._selector.register(worker.results, selectors.EVENT_READ, worker)
        self._next(worker)

    def _next(self, worker: Worker) -> None:
        """Gives a worker its next block, or sends it home."""
        worker.block = None
        if not self.waiting or time.monotonic() > self.until:
            worker.process.stdin.close()
            return
        worker.block = self.waiting.pop()
        worker.process.stdin.write(json.dumps(vars(worker.block)) + "\n")
        worker.process.stdin.flush()

    def _read(self, worker: Worker) -> None:
        line = worker.results.readline()
        if not line:
            self._ended(worker)
            return
        result = json.loads(line)
        if "broken" in result:
            sys.exit(f"a worker failed at {worker.block.key}:\n{result['broken']}")
        result["failures"] += [[number, why, why, {}] for number, why in worker.block.skip]
        self.journal.add(result)
        self._next(worker)

    def _watch(self, worker: Worker) -> None:
        """Kills a worker whose case does not end."""
        number, since = SLOT.unpack_from(self._slots, worker.slot * SLOT.size)
        if number >= 0 and time.monotonic() - since > HANGS:
            worker.process.kill()

    def _ended(self, worker: Worker) -> None:
        """A worker has gone: at its end, or by what it tried."""
        self._selector.unregister(worker.results)
        worker.results.close()
        code = worker.process.wait()
        shutil.rmtree(self.scratch / f"worker-{worker.slot}-{worker.process.pid}", True)
        if worker.block is None:
            return
        number, since = SLOT.unpack_from(self._slots, worker.slot * SLOT.size)
        if number < 0:
            sys.exit(f"a worker ended with {code} at {worker.block.key}, between cases")
        hung = time.monotonic() - since > HANGS
        why = f"did not end within {HANGS:g} s" if hung else f"its process ended with {code}"
        block = worker.block
        self.waiting.append(
            Block(block.target, block.first, block.last, (*block.skip, (number, why)))
        )
        self._start(worker.slot)


def _environment(scratch: Path) -> dict[str, str]:
    """That of the worker: nothing of the user's is read, and nothing written there."""
    named = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TORCHINDUCTOR_CACHE_DIR")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LONGCTX_")}
    quiet = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "OMP_NUM_THREADS": "1"}
    quiet["LONGCTX_DEFAULT_MODEL"] = "tiny"
    quiet["LONGCTX_ANSWER_MODEL"] = "own"
    return {**kept, **dict.fromkeys(named, str(scratch)), **quiet}


def blocks_of(targets: list[str], cases: int, shares: dict[str, int], size: int) -> list[Block]:
    """All blocks, in the order in which they are tried: those of all targets in turn."""
    total = sum(shares[name] for name in targets)
    counts = {name: -(-cases * shares[name] // total) for name in targets}
    if excess := sum(counts.values()) - cases:
        counts[targets[-1]] -= excess
    rows = [
        [Block(name, at, min(at + size, counts[name])) for at in range(0, counts[name], size)]
        for name in targets
    ]
    spread = [
        (index / len(row), number, block)
        for number, row in enumerate(rows)
        for index, block in enumerate(row)
    ]
    return [block for _, _, block in sorted(spread, key=lambda each: each[:2])]


def make_scratch() -> Path:
    """A folder in memory where there is one."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="longctx-fuzz-", dir=place))


def make_library(scratch: Path) -> Path:
    """The documents that are changed, made in a process of its own."""
    folder = scratch / "made"
    folder.mkdir()
    words = [sys.executable, __file__, "library", str(folder)]
    subprocess.run(words, check=True, env=_environment(scratch), stderr=subprocess.DEVNULL)
    return folder / "library"


def campaign(options: argparse.Namespace, known: list[str], size: int) -> int:
    """Runs a campaign; the exit code."""
    from fuzz_targets import TARGETS

    targets = options.targets.split(",") if options.targets else known
    if unknown := set(targets) - TARGETS.keys():
        sys.exit(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    until = time.monotonic() + options.seconds
    journal, shares = Journal(options.journal, options.seed), {n: TARGETS[n].share for n in targets}
    blocks = [
        b for b in blocks_of(targets, options.cases, shares, size) if b.key not in journal.done
    ]
    scratch = make_scratch()
    try:
        needed = any(TARGETS[block.target].library for block in blocks)
        library = make_library(scratch) if needed else None
        Campaign(journal, options.seed, scratch, library, blocks[::-1], until).run(options.jobs)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    failed = journal.print_table()
    left = sum(block.last - block.first for block in blocks if block.key not in journal.done)
    if left:
        print(f"{left:,} cases are left: the same command goes on with them")
    return 1 if failed else 0


def one_case(options: argparse.Namespace) -> int:
    """Tries one case as a worker does, and says what came of it; the exit code."""
    from fuzz_targets import TARGETS

    target, _, number = options.case.partition(":")
    scratch = make_scratch()
    try:
        library = make_library(scratch) if TARGETS[target].library else None
        folder = options.save or scratch / "journal"
        block = Block(target, int(number), int(number) + 1)
        journal = Journal(folder, options.seed)
        Campaign(journal, options.seed, scratch, library, [block], time.monotonic() + 60).run(1)
        for path in (folder / "failures").glob(f"{target}-{number}.json"):
            print(json.loads(path.read_text())["told"])
        return 1 if journal.print_table() else 0
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ways = found.add_subparsers(dest="way", required=True)
    for way, cases in (("run", 1_000_000), ("commands", 20_000)):
        each = ways.add_parser(way)
        each.add_argument("--cases", type=int, default=cases)
        each.add_argument("--jobs", type=int, default=os.cpu_count())
        each.add_argument("--seed", type=int, default=1)
        each.add_argument("--journal", type=Path, required=True)
        each.add_argument("--targets", help="names with commas; by default all of this kind")
        each.add_argument("--seconds", type=float, default=1e9, help="begin no block after these")
    one = ways.add_parser("case")
    one.add_argument("case", metavar="TARGET:NUMBER")
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--save", type=Path, help="a folder for its files")
    ways.add_parser("library").add_argument("folder", type=Path)
    worker = ways.add_parser("work")
    for name, kind in (("seed", int), ("scratch", Path), ("library", str), ("slot", int)):
        worker.add_argument(name, type=kind)
    worker.add_argument("report", type=int)
    return found


def main() -> int:
    """The exit code."""
    options = parser().parse_args()
    if options.way == "work":
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the campaign ends it
        library = Path(options.library) if options.library else None
        work(options.seed, options.scratch, library, options.slot, options.report)
        return 0
    if options.way == "library":
        from fuzz_library import make_library as make

        make(options.folder)
        return 0
    if options.way == "case":
        return one_case(options)
    from fuzz_targets import COMMANDS, IN_PROCESS

    if options.way == "commands":
        return campaign(options, COMMANDS, SMALL_BLOCK)
    return campaign(options, IN_PROCESS, BLOCK)


if __name__ == "__main__":
    sys.exit(main())
