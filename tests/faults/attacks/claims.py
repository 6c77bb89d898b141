"""Locks and claims: those of the dead, and a writer that was stopped while another took over."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time

from attacks.world import SMALL, World, prose, require

OFTEN = "--threads", "1", "--checkpoint", "500"


def dead_locks(world: World, chance: random.Random, size: str) -> None:
    """What dead processes left locks nothing, whatever it says, and `gc` deletes it."""
    before = world.whole()
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    host = socket.gethostname()
    for _ in range(20 if size == SMALL else 200):
        name, place = chance.choice([*before]), chance.choice(("documents", "unfinished"))
        folder = world.library / "locks" / place / name
        folder.mkdir(parents=True, exist_ok=True)
        pid = chance.choice((dead.pid, 1, 0, -1, 2**31))
        holder = {"pid": pid, "host": host, "exclusive": chance.random() < 0.5}
        said = chance.choice((json.dumps(holder).encode(), b"", b"{", chance.randbytes(40), None))
        file = folder / f"{pid}-{chance.randbytes(4).hex()}.lock"
        file.touch()
        if said is not None:
            file.with_suffix(".json").write_bytes(said)
        if place == "unfinished" and chance.random() < 0.5:
            claim = {"pid": dead.pid, "host": host, "mark": "0" * 16}
            (folder / f"{chance.randrange(1, 9)}.claim").write_text(json.dumps(claim))
    world.need("find", "keeper", "--all", "--gather-by", "bm25")
    for name in chance.sample([*before], 2):
        world.need("rm", name, "--yes")
    require(world.whole().items() <= before.items(), "a document has changed")
    world.clean()


def stopped_writer(world: World, chance: random.Random, size: str) -> None:
    """A writer that stood still while another host took its claim over publishes nothing more."""
    before = world.whole()
    (world.sources / "new.txt").write_text(prose(200 if size == SMALL else 1000))
    reading = "ingest", world.sources / "new.txt", "--name", "new", *OFTEN
    unfinished = world.library / "unfinished" / "new" / "manifest.json"
    with world.start(*reading) as slow:
        until = time.monotonic() + 60
        while not unfinished.exists() and slow.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(chance.random() / 10)
        slow.send_signal(signal.SIGSTOP)
        published = "new" in world.digests()
        if not published:
            _unseen(world)
            world.need(*reading)
        whole = world.whole()
        slow.send_signal(signal.SIGCONT)
        _, err = slow.communicate(60)
    require("Traceback" not in err, err)
    late = slow.returncode == 11 and "no longer written here" in err
    require(late or (published and slow.returncode == 0), f"{slow.returncode}: {err}")
    require(world.whole() == whole and before.items() <= whole.items(), "a document has changed")
    world.clean()


def _unseen(world: World) -> None:
    """The locks as another host sees them, and claims as old as after two minutes."""
    for file in (world.library / "locks").rglob("*.*"):
        if file.suffix in (".lock", ".json"):
            file.unlink()
        elif file.suffix == ".claim":
            then = time.time() - 120
            os.utime(file, (then, then))
