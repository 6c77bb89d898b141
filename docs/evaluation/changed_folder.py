"""What it costs to bring a folder's document up to date, beside reading all of it again.

    python docs/evaluation/changed_folder.py [--files N] [--edits N] [--bytes N] [--threads N]

The folder has the first lines of modules of Python's standard library. It is read with --units;
some files, spread over it, get a new line at their end; then the document is brought up to date,
and the folder read anew. Both results must have the same bytes, and each new line must be cited.
Seconds are those of the whole call after the model is loaded, with the word index; beside them is
the processor's time, which other work on the machine lengthens less.
"""

import argparse
import filecmp
import sysconfig
import tempfile
import time
from pathlib import Path

from longctx.core.ask.session import Session
from longctx.core.engine.choice import Setup
from longctx.core.engine.staying import weights_stay
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.ingested import Ingested

LEFT_OUT = {"site-packages", "test", "tests", "idlelib"}


def main() -> None:
    """Makes the folder, reads it three times, and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--edits", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=4000)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    setup = Setup(model="tiny", threads=given.threads)
    with tempfile.TemporaryDirectory() as place, weights_stay():
        folder, library = Path(place, "code"), Path(place, "library")
        files = make_folder(folder, given.files, given.bytes)
        read(library, folder, setup, "code", "first reading")
        added = edit(files, given.edits)
        update = read(library, folder, setup, "code", "up to date")
        anew = read(library, folder, setup, "anew", "read anew")
        kinds = ("the clock", update[0], anew[0]), ("the processor", update[1], anew[1])
        for kind, some, every in kinds:
            print(f"by {kind} {every / some:.1f} times faster")
        names = [path.name for path in (library / "documents" / "code").iterdir()]
        pair = (library / "documents" / name for name in ("code", "anew"))
        _, *other = filecmp.cmpfiles(*pair, names, shallow=False)
        print("the same bytes" if not any(other) else f"other bytes: {other}")
        with Session(library, "code", setup) as session:
            cited = sum(is_cited(session, path, line) for path, line in added.items())
        print(f"{cited} of {len(added)} new lines are in the first passage, at their file and line")


def make_folder(folder: Path, count: int, size: int) -> list[Path]:
    """Writes the first whole lines, up to `size` bytes, of `count` modules; their paths."""
    library = Path(sysconfig.get_path("stdlib"))
    modules = (path.relative_to(library) for path in sorted(library.rglob("*.py")))
    found = [path for path in modules if not LEFT_OUT & {*path.parts}]
    found = [path for path in found if (library / path).stat().st_size >= size // 2][:count]
    for path in found:
        data = (library / path).read_bytes()[:size]
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data[: data.rindex(b"\n") + 1])
    return sorted(folder / path for path in found)


def edit(files: list[Path], count: int) -> dict[Path, str]:
    """Adds a line of its own to `count` files spread over all; the lines by file."""
    added = {}
    for number in range(count):
        path = files[(2 * number + 1) * len(files) // (2 * count)]
        line = f"lighthouse_{number} = {7919 * (number + 1)}  # the lamp of harbour {number}"
        path.write_bytes(path.read_bytes() + line.encode() + b"\n")
        added[path] = line
    return added


def read(
    library: Path, folder: Path, setup: Setup, name: str, kind: str
) -> tuple[float, float, Ingested]:
    """Reads the folder; seconds by the clock and of the processor, and what was done."""
    began, computed = time.perf_counter(), time.process_time()
    done = ingest(library, [str(folder)], setup, name, units=True)
    seconds, spent = time.perf_counter() - began, time.process_time() - computed
    print(
        f"{kind}: {seconds:.1f} s, {spent:.1f} s of the processor, {done.tokens:,} tokens of "
        f"{done.sources} files, {done.reused_sources} of them taken over",
        flush=True,
    )
    return seconds, spent, done


def is_cited(session: Session, path: Path, line: str) -> bool:
    """Whether the best passage for a new line's words has it, in its file and at its place."""
    best = session.find(line.split(" #")[0]).passages[0]
    number = path.read_text("utf-8").split("\n").index(line) - best.line + 1
    lines = best.text.split("\n")
    return Path(best.source) == path and 0 <= number < len(lines) and lines[number] == line


if __name__ == "__main__":
    main()
