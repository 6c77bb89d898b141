"""What the tests of faults share: a process that reads documents and can be killed anywhere."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

READER = Path(__file__).with_name("reader.py")
LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(60)]


@pytest.fixture(scope="session")
def reader() -> Iterator[Callable[..., dict]]:
    """Runs a job of `reader.py` in a process of its own."""
    with subprocess.Popen(
        [sys.executable, READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:

        def run(**job: object) -> dict:
            server.stdin.write(json.dumps(job) + "\n")
            server.stdin.flush()
            return json.loads(server.stdout.readline())

        yield run
        server.stdin.close()


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two files, of 1,182 tokens together."""
    folder, paths = tmp_path_factory.mktemp("sources"), []
    for number, lines in enumerate((LINES[:25], LINES[25:])):
        path = folder / f"part{number}.txt"
        path.write_text("".join(f"{line}\n" for line in lines))
        paths.append(str(path))
    return paths


@pytest.fixture(scope="session")
def settings(model_folder: Path) -> dict:
    """The fields of a `Setup` of the random model: float32, one thread."""
    profile = str(model_folder / "profile.yaml")
    names = {"device": "cpu", "dtype": "fp32", "threads": 1}
    return {"model": str(model_folder), "profile": profile, **names}


@pytest.fixture
def job(tmp_path: Path, sources: list[str], settings: dict) -> dict:
    """A library that is not there yet, and a checkpoint after every 3 chunks."""
    library = str(tmp_path / "library")
    return {"library": library, "paths": sources, "setup": settings, "every": 96}


@pytest.fixture(scope="session")
def whole(reader, sources, settings, tmp_path_factory) -> tuple[dict[str, bytes], int]:
    """An uninterrupted reading: the files that it leaves, and how many events it has."""
    library = str(tmp_path_factory.mktemp("whole") / "library")
    done = reader(library=library, paths=sources, setup=settings, every=96)
    assert done["code"] == 0, done["said"]
    return files(library), done["events"]


def files(library: str | Path) -> dict[str, bytes]:
    """The documents of a library, byte for byte."""
    folder = Path(library) / "documents"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="session")
def documents() -> Callable[[str | Path], dict[str, bytes]]:
    """The function `files`."""
    return files
