"""A world: a library with documents, a cache and sources, and `longctx` in processes of its own."""

import contextlib
import hashlib
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import preloaded

SMALL, LARGE = "small", "large"
DOCUMENTS = 6
PATIENCE = 120.0  # seconds after which a command hangs


class Wrong(Exception):
    """What must be true is not."""


class Skipped(Exception):
    """The machine lacks what an attack needs."""


def require(true: object, why: str) -> None:
    """Raises Wrong."""
    if not true:
        raise Wrong(why)


def prose(lines: int, seed: int = 0) -> str:
    """Some text; about 14 tokens a line."""
    chance = random.Random(seed)
    return "".join(
        f"line {i}: the keeper wrote that boat {chance.randrange(1000)} came home\n"
        for i in range(lines)
    )


class World:
    """A folder with `library/`, `cache/`, `sources/` and `tmp/`.

    Args:
        folder: made; `of` copies another world's library and sources.
    """

    def __init__(self, folder: Path, of: "World | None" = None):
        self.folder, self.library = folder, folder / "library"
        self.sources, self.cache, self.tmp = (folder / n for n in ("sources", "cache", "tmp"))
        folder.mkdir(parents=True)
        if of:
            shutil.copytree(of.library, self.library)
            shutil.copytree(of.sources, self.sources)
        else:
            self.sources.mkdir()
        self.cache.mkdir()
        self.tmp.mkdir()

    def build(self) -> "World":
        """Reads the documents that all worlds have."""
        for number in range(DOCUMENTS):
            (self.sources / f"d{number}.txt").write_text(prose(20 + 40 * number, number))
        words = ["ingest", "--each", *sorted(self.sources.iterdir()), "--threads", "1"]
        require(self.run(*words).returncode == 0, "the documents cannot be read")
        return self

    def environment(self, **more: str) -> dict[str, str]:
        """That of a command: nothing of the user's is read or written."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LONGCTX_", "PIP_"))}
        own = {"LONGCTX_DEFAULT_MODEL": "tiny", "LONGCTX_ANSWER_MODEL": "own", "no_proxy": "*"}
        own |= {"LONGCTX_LIBRARY": str(self.library), "XDG_CACHE_HOME": str(self.cache)}
        own |= {"TMPDIR": str(self.tmp), "HOME": str(self.folder), "OMP_NUM_THREADS": "1"}
        return {**kept, **own, **more}

    def start(self, *args: object, before: str = "", **env: str) -> preloaded.Process:
        """Starts `longctx`, with pipes; `before` is Python code that it runs first."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), preloaded.PIPE)
        words = [str(arg) for arg in args]
        return preloaded.Process(
            words, env=self.environment(**env), text=True, before=before, **pipes
        )

    def run(
        self, *args: object, given: str = "", before: str = "", **env: str
    ) -> subprocess.CompletedProcess:
        """Runs `longctx` to its end, which must be an ordinary one: no traceback, no hanging.

        Args:
            args: of the command.
            given: what it reads from standard input.
            before, env: as of `start`.
        """
        with self.start(*args, before=before, **env) as process:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(given)
                process.stdin.flush()
            out, err = process.communicate(PATIENCE)
        require("Traceback" not in err, f"{args}: {err[-2000:]}")
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def need(self, *args: object, code: int = 0, said: str = "", **more: str) -> str:
        """As `run`, for a command that must end with this exit code, and say this."""
        done = self.run(*args, **more)
        told = f"{[*map(str, args)]} ended with {done.returncode}: {done.stdout}{done.stderr}"
        require(done.returncode == code and re.search(said, done.stderr), told)
        return done.stdout

    def whole(self) -> dict[str, str]:
        """The documents that are there, each with a digest of its files; all must verify."""
        self.need("verify")
        return self.digests()

    def digests(self) -> dict[str, str]:
        """The documents' folders, each with a digest of its files."""
        found = {}
        for folder in sorted((self.library / "documents").iterdir()):
            hashed = hashlib.sha256()
            for file in sorted(folder.rglob("*")):
                hashed.update(file.name.encode() + file.read_bytes())
            found[folder.name] = hashed.hexdigest()
        return found

    def clean(self) -> None:
        """`gc` leaves documents alone, and nothing else of what an attack may have left."""
        before = self.digests()
        self.need("gc")
        require(self.digests() == before, "gc has changed a document")
        unfinished, locks = self.library / "unfinished", self.library / "locks"
        left = [*unfinished.rglob("*")] if unfinished.exists() else []
        left += [*locks.rglob("*.lock"), *locks.rglob("*.claim"), *self.library.rglob(".tmp-*")]
        require(not left, f"gc leaves {left}")
