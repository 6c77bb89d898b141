"""Fuzzing that coverage leads: `python tests/fuzz/guided.py sources FOLDER -runs=100000`.

The targets are `sources` (a file of each format and archive), `reader` (bytes in each encoding),
and those of `campaign.py` that read in process, such as `manifests` and `tensors`: for these the
bytes that atheris makes are the random numbers of which a case is drawn. FOLDER is for its inputs.
What it finds goes into `corpus/`, where the tests try it ever after. Not a test itself: atheris
does not install everywhere.
"""

import os
import random
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import atheris

HERE = Path(__file__).parent
SCRATCH = "LONGCTX_FUZZ_SCRATCH"
sys.path[:0] = [str(HERE), str(HERE.parent / "reference")]
PARTS = ["longctx.core", "longctx.cli", "email", "html", "tarfile", "zipfile"]
with atheris.instrument_imports(include=PARTS):
    import campaign
    import fuzz_targets

    from longctx.core.sources import find, formats
    from longctx.core.sources.encodings import ENCODINGS
    from longctx.core.sources.reader import Source

    assert find  # what it imports is instrumented
    for name in formats.names():
        formats.load(name)


def tests(name: str) -> ModuleType:
    """The module of one of the test files here."""
    spec = spec_from_file_location(name, HERE / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sources() -> None:
    """A file whose first byte chooses its name."""
    module = tests("test_fuzz_sources")
    whole = {**module.WHOLE, **module.PACKED}
    names = sorted(whole)

    def one(data: bytes) -> None:
        if data:
            module.require_sound(names[data[0] % len(names)], data[1:])

    begin(one, [bytes([index]) + whole[name] for index, name in enumerate(names)])


def reader() -> None:
    """Bytes; the first one chooses the encoding, or that it is detected, and how much is read."""
    module = tests("test_fuzz_reader")
    encodings = ["", *sorted(ENCODINGS)]

    def one(data: bytes) -> None:
        if len(data) > 1:
            made = module.Given(data[1:], encodings[data[0] % len(encodings)])
            source = Source("fuzz", None, made=made if made.encoding else None)
            source.stream = made.open().__enter__()
            module.require_sound(source, data[1:], 5 if data[0] > 127 else 64)

    begin(one, [bytes([0]) + word.encode() for word in module.WORDS])


def drawn(name: str) -> None:
    """A target of the campaign, in a process of its own: libFuzzer clears nothing up."""
    scratch = os.environ.get(SCRATCH)
    if scratch is None:
        made = campaign.make_scratch()
        try:
            if fuzz_targets.TARGETS[name].library:
                campaign.make_library(made)
            environment = {**os.environ, SCRATCH: str(made)}
            sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    rooms = fuzz_targets.Rooms(Path(scratch), Path(scratch, "made", "library"))

    def one(data: bytes) -> None:
        fuzz_targets.from_bytes(rooms, name, data)

    begin(one, [random.Random(number).randbytes(600) for number in range(64)])


def begin(one, seeds: list[bytes]) -> None:
    """Never returns."""
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (folder / f"seed-{number}").write_bytes(seed)
    atheris.Setup([sys.argv[0], *sys.argv[2:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    ways = {"sources": sources, "reader": reader}
    ways.get(sys.argv[1], lambda: drawn(sys.argv[1]))()
