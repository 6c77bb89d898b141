"""How many cores other programs leave to this one.

One thread too many costs more than it gives: at every step of a model each thread waits for the
slowest, and one without a core of its own waits for its turn. So a command that asks notes what the
cores have done before it imports libraries, and compares before it computes: by then it was busy on
one core for half a second or more. Whoever notes nothing gets PyTorch's choice; so do commands that
read, since bytes of a state are the same only with the same number of threads. Knows nothing of
models.
"""

import os
from contextlib import suppress

SOME = 0.2  # core-seconds of accounts that can be compared; they come in hundredths
MOSTLY = 0.7  # of the time that a core must have been idle
Accounts = dict[int, tuple[int, int]]  # by core: idle ticks, all ticks
_noted: Accounts = {}


def note() -> None:
    """Notes what the cores have done so far."""
    _noted.update(_accounts())


def idle() -> int | None:
    """The cores that this process may use and that are free for it, at least 1.

    Returns:
        None if nothing was noted, or the platform does not tell.
    """
    return left(_noted, _accounts())


def left(before: Accounts, now: Accounts) -> int | None:
    """The same from two accounts, between which this process was busy on one core."""
    spent = [
        (now[core][0] - before[core][0], now[core][1] - before[core][1])
        for core in now.keys() & before.keys()
    ]
    every = sum(all_ticks for _, all_ticks in spent)
    if every < SOME * _ticks():
        return None
    unused = len(spent) * sum(ticks for ticks, _ in spent) / every
    return max(1, min(len(spent), 1 + int(unused + 1 - MOSTLY)))  # one has been busy with us


def _ticks() -> int:
    """Ticks of a second in these accounts."""
    return os.sysconf("SC_CLK_TCK")


def _accounts() -> Accounts:
    """Idle ticks and all ticks of each core that this process may use; none if not told."""
    found: Accounts = {}
    with (
        suppress(OSError, ValueError, AttributeError),
        open("/proc/stat", encoding="ascii") as file,
    ):
        mine = os.sched_getaffinity(0)
        for line in file:
            name, *ticks = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in mine:
                counts = [*map(int, ticks[:8])]  # later ones are counted in these already
                found[int(name[3:])] = counts[3] + counts[4], sum(counts)
    return found
