"""What is fuzzed: how each case is made, run and kept. `campaign.py` and `guided.py` share it.

A case is made from a random number generator alone, so a target, a number and a seed are enough to
have it again.
"""

import random
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import fuzz_changes as changes
import fuzz_commands
import fuzz_files
import fuzz_library
import fuzz_manifests
import fuzz_reading
import fuzz_settings
import fuzz_tensors
import fuzz_texts


class Rooms:
    """The folders of one process, and what is loaded once for all cases.

    Args:
        scratch: a folder of this process's own.
        library: that of `fuzz_library.make_library`; None: no target needs it.

    Close it at the end: weights that it loaded stay until then, for whoever runs in the process.
    """

    def __init__(self, scratch: Path, library: Path | None):
        self.scratch, self._library = scratch, library
        self.given, self.temporary = scratch / "given", scratch / "temporary"
        self.given.mkdir()
        self.temporary.mkdir()
        tempfile.tempdir = str(self.temporary)
        self._stay = ExitStack()

    def close(self) -> None:
        """Lets the weights go."""
        self._stay.close()

    @cached_property
    def shelf(self) -> fuzz_library.Shelf:
        """Documents to be changed."""
        return fuzz_library.copied(self._library, self.scratch / "library")

    @cached_property
    def files(self) -> Path:
        """A folder for files; the libraries that formats need are imported."""
        for name, data in {**fuzz_files.WHOLE, **fuzz_files.PACKED}.items():
            fuzz_files.read_file(self.given, name, data)
        return self.given

    @cached_property
    def repository(self) -> Path:
        """A folder with ignore files."""
        folder = self.scratch / "repository"
        folder.mkdir()
        fuzz_texts.make_repository(folder)
        return folder

    @cached_property
    def tokenizer(self) -> Any:
        """That of the bundled model."""
        from longctx.core.model.files import BUNDLED, open_model_files

        return open_model_files(BUNDLED).tokenizer

    @cached_property
    def model(self) -> None:
        """Weights, once loaded, stay."""
        from longctx.core.engine.staying import weights_stay

        self._stay.enter_context(weights_stay())


@dataclass(frozen=True)
class Target:
    """One thing that is fuzzed.

    Attributes:
        share: of a campaign's cases, as parts of a million; of commands of 20,000.
        make: a case.
        run: tries it.
        files: its bytes by name, to be kept.
        library: it needs documents.
        command: it is a command of the program.
    """

    share: int
    make: Callable[[Rooms, random.Random], Any]
    run: Callable[[Rooms, Any, random.Random], None]
    files: Callable[[Any], dict[str, bytes]]
    library: bool = False
    command: bool = False


def drawn(target: str, number: int, seed: int) -> random.Random:
    """The random numbers of a case."""
    return random.Random(f"{target}:{number}:{seed}")


def _named(made: tuple[str, bytes]) -> dict[str, bytes]:
    return {made[0]: made[1]}


def _document(make: Callable[..., fuzz_library.Case], share: int) -> Target:
    return Target(
        share,
        lambda rooms, rng: make(rooms.shelf, rng),
        lambda rooms, made, rng: fuzz_reading.read_case(rooms.shelf, made, rng),
        lambda made: made,
        library=True,
    )


def _file(make: Callable[[random.Random], tuple[str, bytes]], share: int) -> Target:
    return Target(
        share,
        lambda rooms, rng: make(rng),
        lambda rooms, made, rng: fuzz_files.read_file(rooms.files, *made),
        _named,
    )


def _command(name: str, share: int) -> Target:
    def make(rooms: Rooms, rng: random.Random) -> fuzz_commands.Made:
        _ = rooms.model
        return fuzz_commands.command_case(rooms.shelf, rng, name)

    return Target(
        share,
        make,
        lambda rooms, made, rng: fuzz_commands.run_case(rooms.shelf, made),
        lambda made: {**made[0], "command": " ".join(made[1]).encode()},
        library=True,
        command=True,
    )


TARGETS = {
    "manifests": _document(fuzz_manifests.manifest_case, 250_000),
    "tensors": _document(fuzz_tensors.tensor_case, 250_000),
    "formats": _file(fuzz_files.format_case, 170_000),
    "archives": _file(fuzz_files.archive_case, 120_000),
    "profiles": Target(
        60_000,
        lambda rooms, rng: fuzz_settings.profile_case(rng),
        lambda rooms, made, rng: fuzz_settings.read_profile(
            rooms.given / "profile.yaml", made, rooms.tokenizer
        ),
        lambda made: {"profile.yaml": made},
    ),
    "settings": Target(
        50_000,
        lambda rooms, rng: fuzz_settings.config_case(rng),
        lambda rooms, made, rng: fuzz_settings.read_config(rooms.given / "config.toml", made),
        lambda made: {"config.toml": made},
    ),
    "ignore": Target(
        40_000,
        lambda rooms, rng: fuzz_texts.ignore_case(rng),
        lambda rooms, made, rng: fuzz_texts.require_walked(rooms.repository, *made),
        _named,
    ),
    "encodings": Target(
        60_000,
        lambda rooms, rng: fuzz_texts.text_case(rng),
        lambda rooms, made, rng: fuzz_texts.read_text(*made),
        lambda made: {f"{made[0] or 'any'}-{made[2]}": made[1]},
    ),
    "ask": _command("ask", 4_000),
    "find": _command("find", 8_000),
    "list": _command("list", 3_000),
    "verify": _command("verify", 5_000),
}
IN_PROCESS = [name for name, target in TARGETS.items() if not target.command]
COMMANDS = [name for name, target in TARGETS.items() if target.command]


def from_bytes(rooms: Rooms, name: str, data: bytes) -> None:
    """Tries the case that bytes stand for: they are the random numbers that it is made from."""
    target, rng = TARGETS[name], changes.Drawn(data)
    target.run(rooms, target.make(rooms, rng), rng)
