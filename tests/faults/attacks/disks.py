"""Disks that are full, or that cannot be written: real file systems in memory."""

import contextlib
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from attacks.world import SMALL, Skipped, World, prose, require

READ = ("--threads", "1", "--checkpoint", "500")
WORDS = ("--gather-by", "bm25")


@contextlib.contextmanager
def _disk(place: Path, size: int) -> Iterator[None]:
    """A file system of so many bytes.

    Raises:
        Skipped: none may be mounted here.
    """
    place.mkdir()
    done = _mount("-t", "tmpfs", "-o", f"size={size}", "none", place)
    if done.returncode:
        raise Skipped(f"no disk can be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def _mount(*args: object) -> subprocess.CompletedProcess:
    if shutil.which("mount") is None or os.geteuid() != 0:
        raise Skipped("a disk can be mounted by root alone")
    return subprocess.run(["mount", *map(str, args)], capture_output=True, text=True, check=False)


def _moved(world: World) -> Path:
    """Makes the disk the place of the library."""
    disk = world.folder / "disk"
    shutil.copytree(world.library, disk / "library")
    world.library = disk / "library"
    return disk


def full(world: World, chance: random.Random, size: str) -> None:
    """Nothing finished is lost, `rm` and `gc` make room, and the reading goes on with more."""
    before = world.whole()
    used = sum(file.stat().st_size for file in world.library.rglob("*"))
    text = prose(100 if size == SMALL else 400)  # as a stream, which nothing can be estimated of
    reading = "ingest", "-", "--name", "long", *READ
    with _disk(world.folder / "disk", used + (1 << 20)):
        disk = _moved(world)
        _fill(disk / "others", chance.randrange(1 << 14, 1 << 19))
        done = world.run(*reading, given=text)
        if done.returncode:
            told = done.stderr
            require(done.returncode == 1 and "bytes free" in told, f"{done.returncode}: {told}")
        require(world.whole().items() >= before.items(), "a document has changed")
        _fill(disk / "rest", 0)
        world.need("find", "keeper", *WORDS, "--doc", "d1.txt")
        world.need("rm", "d0.txt", "--yes")
        world.need("gc")
        (disk / "others").unlink()
        (disk / "rest").unlink()
        require(not _mount("-o", f"remount,size={64 << 20}", disk).returncode, "no remount")
        world.need(*reading, given=text)
        after = world.whole()
        require({*after} == {*before} - {"d0.txt"} | {"long"}, f"there are {after}")
        world.clean()


def _fill(file: Path, room: int) -> None:
    """Takes all of a disk but so many bytes."""
    status = os.statvfs(file.parent)
    with file.open("wb") as out, contextlib.suppress(OSError):
        out.write(bytes(max(0, status.f_bavail * status.f_frsize - room)))
        out.flush()


def read_only(world: World, chance: random.Random, size: str) -> None:
    """All of it can be read; what would change it says why it cannot, and changes nothing."""
    with _disk(world.folder / "disk", 64 << 20):
        disk = _moved(world)
        before = world.whole()
        require(not _mount("-o", "remount,ro", disk).returncode, "no remount")
        for reads in (
            ("list",),
            ("verify",),
            ("find", "keeper", "--gather-by", "bm25"),
            ("show", "d2.txt"),
        ):
            world.need(*reads)
        new = world.folder / "new.txt"
        new.write_text(prose(10, chance.randrange(1000)))
        writes = [("rm", "d1.txt", "--yes"), ("rename", "d1.txt", "other"), ("gc",)]
        writes += [("ingest", new, *READ), ("ingest", new, "--append", "d1.txt", *READ)]
        for words in writes[:3] if size == SMALL else writes:
            world.need(*words, code=1, said="(?i)read-only")
        require(not _mount("-o", "remount,rw", disk).returncode, "no remount")
        require(world.whole() == before, "a document has changed")
        world.need("rm", "d1.txt", "--yes")
        world.clean()
