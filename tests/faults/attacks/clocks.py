"""Clocks that are wrong, and jump between commands; files with times that cannot be."""

import os
import random

from attacks.world import SMALL, World, prose, require

YEAR = 365 * 86_400
WORDS = "find", "keeper", "--all", "--gather-by", "bm25"
TIMES = (0, 1, -YEAR, 60 * YEAR, 250 * YEAR)  # seconds since 1970 that files have


def wrong(world: World, chance: random.Random, size: str) -> None:
    """Commands end as ever, and documents stay whole."""
    before = world.whole()
    growing = world.folder / "grow.txt"
    growing.write_text(prose(20))
    world.need("ingest", growing, "--threads", "1", before=_shifted(chance))
    rounds = 1 if size == SMALL else 4
    for number in range(rounds):
        _disturb(world, chance)
        with growing.open("a") as file:
            file.write(prose(10, number + 1))
        words = "ingest", growing, "--append", "grow", "--threads", "1"
        world.need(*words, before=_shifted(chance))
        _disturb(world, chance)
        for reads in (("list",), ("show", "grow"), WORDS):
            world.need(*reads, before=_shifted(chance))
        world.need("gc", before=_shifted(chance))
        require(before.items() <= world.whole().items(), "a document has changed")
    world.need("rm", "grow", "--yes", before=_shifted(chance))
    require(world.whole() == before, "a document has changed")
    world.clean()


def _shifted(chance: random.Random) -> str:
    """Code after which a process has another time, which steps back now and then."""
    shift = chance.choice((-50, -1, 1, 30)) * YEAR + chance.random()
    return "\n".join(
        (
            "import itertools, time",
            "real, steps = time.time_ns, itertools.cycle((0, -7_200, 3_600))",
            f"now = lambda: max(0, real() + int(({shift!r} + next(steps)) * 1e9))",
            "time.time_ns, time.time = now, lambda: now() / 1e9",
        )
    )


def _disturb(world: World, chance: random.Random) -> None:
    """Gives files and folders of the library, and sources, times of all ages."""
    for path in [*world.library.rglob("*"), world.folder / "grow.txt"]:
        if chance.random() < 0.5 and path.exists():
            time = chance.choice(TIMES)
            os.utime(path, (time, time))
