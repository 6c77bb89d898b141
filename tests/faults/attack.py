"""Attacks on `longctx` in real processes: kills, full and read-only disks, wrong clocks, clients.

    python tests/faults/attack.py --rounds 20 --seed 1
    python tests/faults/attack.py rm pull --rounds 500

Prints for each attack how many rounds there were, how many failed, and what was skipped and why.
Ends with 1 if any failed; `--first N --rounds 1` does round N again.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "reference")]

from attacks import ATTACKS  # noqa: E402
from attacks.world import LARGE, Skipped, World, Wrong  # noqa: E402


def attack(name: str, number: int, seed: int, template: World, place: Path, size: str) -> str:
    """Does a round of an attack; why it failed, empty if it did not.

    Raises:
        Skipped: the machine lacks what it needs.
    """
    try:
        ATTACKS[name](World(place, template), random.Random(f"{seed} {name} {number}"), size)
    except Wrong as wrong:
        return str(wrong)
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return ""


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="ATTACK", help=f"of {', '.join(ATTACKS)}")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if unknown := {*given.names} - {*ATTACKS}:
        parser.error(f"no such attack: {', '.join(sorted(unknown))}")
    work, failed = Path(tempfile.mkdtemp(prefix="longctx-attack-")), 0
    try:
        template = World(work / "template").build()
        print(f"{'':12}{'rounds':>8}{'failed':>8}{'seconds':>10}")
        for name in given.names or ATTACKS:
            failed += rounds(name, given, template, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if failed else 0


def rounds(name: str, given: argparse.Namespace, template: World, work: Path) -> int:
    """Does all rounds of an attack, and prints its line; how many failed."""
    started, failed, skipped = time.monotonic(), 0, ""
    for number in range(given.first, given.first + given.rounds):
        try:
            why = attack(name, number, given.seed, template, work / "round", LARGE)
        except Skipped as error:
            skipped = f"  skipped: {error}"
            break
        if why:
            failed += 1
            print(f"FAILED {name} {number}: {why}\n  again: attack.py {name} --seed {given.seed} "
                  f"--first {number} --rounds 1", flush=True)  # fmt: skip
    seconds = time.monotonic() - started
    done = 0 if skipped else given.rounds
    print(f"{name:12}{done:8,}{failed:8,}{seconds:10,.0f}{skipped}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
