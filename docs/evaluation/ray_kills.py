"""Kills readers of a Ray cluster at random moments, and compares the library with one process's.

    python docs/evaluation/ray_kills.py FOLDER --documents 40 --kills 3
    python docs/evaluation/ray_kills.py FOLDER --nodes 2 --address auto

`longctx ingest --each --ray local` starts a cluster on this machine and reads documents of random
words with it, or `--address` names one that runs already. With `--nodes` one is begun first, by
`ray start` on this machine, of so many nodes with a core each and a token of its own, and ended at
last; `auto` and 127.0.0.1:6399 are its addresses. Each kill hits, by chance, an actor that is
writing a document, a node of these but the first (another one is started in its place), or the
command itself, which is then started again. At the end every file of the library must have the
bytes that one process gives. Which seed was used is printed.
"""

import argparse
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

WORDS = ("the", "keeper", "wrote", "in", "his", "book", "that", "a", "boat", "came", "home")
INGEST = [sys.executable, "-P", "-m", "longctx", "ingest", "top", "--each", "--json"]
INGEST += ["--model", "tiny", "--device", "cpu", "--dtype", "fp32", "--threads", "1"]
INGEST += ["--checkpoint", "1024"]
ADDRESS = "127.0.0.1:6399"  # of a cluster that is begun here
NODE = ["--num-cpus=1", "--object-store-memory=134217728", "--disable-usage-stats", "--block"]


def main() -> None:
    """Makes, reads, kills and compares."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="new: where documents and libraries are made")
    parser.add_argument("--documents", type=int, default=40)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--address", default="local", help="of the cluster")
    parser.add_argument("--nodes", type=int, default=0, help="of a cluster that is begun first")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = parser.parse_args()
    chance = random.Random(given.seed)
    print(f"seed {given.seed}", flush=True)
    write(given.folder / "top", given.documents, chance)
    with cluster(given.nodes) as nodes:
        began = time.monotonic()
        killed = read(given.folder, given.address, given.kills, chance, nodes)
    print(f"with a cluster and {killed}: {time.monotonic() - began:.0f} s", flush=True)
    began = time.monotonic()
    run(given.folder, "one", []).communicate()
    print(f"one process: {time.monotonic() - began:.0f} s", flush=True)
    ours, theirs = written(given.folder / "ray"), written(given.folder / "one")
    same = ours == theirs
    print(f"{len(theirs)} files, {'the same' if same else 'NOT the same'} bytes")
    sys.exit(not same or not theirs)


def write(folder: Path, documents: int, chance: random.Random) -> None:
    """Files of one to four chunks of the bundled model."""
    folder.mkdir(parents=True)
    for number in range(documents):
        words = chance.choices(WORDS, k=chance.randrange(500, 4000))
        lines = [" ".join(words[at : at + 12]) for at in range(0, len(words), 12)]
        (folder / f"{number}.txt").write_text("\n".join(lines))


def run(folder: Path, library: str, how: list[str]) -> subprocess.Popen[str]:
    """Starts the command that reads everything."""
    environment = {**os.environ, "LONGCTX_LIBRARY": str(folder / library)}
    command = [*INGEST, *how]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


@contextmanager
def cluster(nodes: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The nodes of a cluster that runs until the context ends."""
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as place:
        token = Path(place, "token")
        token.write_text(secrets.token_hex(32))
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)} if nodes else {}
        try:
            for number in range(nodes):
                head = ["--head", f"--port={ADDRESS.partition(':')[2]}", f"--temp-dir={place}/ray"]
                started.append(node([*head, "--include-dashboard=false"] if not number else []))
            yield started
        finally:
            for each in started:
                end(each)


def node(head: list[str]) -> subprocess.Popen[bytes]:
    """Starts a node, and waits until it has joined.

    Args:
        head: the options of the first one; empty: it joins that one.
    """
    command = [str(Path(sys.executable).with_name("ray")), "start", *NODE]
    log = tempfile.TemporaryFile()  # noqa: SIM115 (it is closed with the process)
    ray = subprocess.Popen(
        [*command, *(head or [f"--address={ADDRESS}"])],
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    while b"runtime started" not in os.pread(log.fileno(), 1 << 20, 0):
        if ray.poll() is not None:
            sys.exit(os.pread(log.fileno(), 1 << 20, 0).decode())
        time.sleep(0.1)
    return ray


def end(ray: subprocess.Popen[bytes]) -> None:
    """Kills a node, with all that it has begun."""
    with suppress(ProcessLookupError):
        os.killpg(ray.pid, signal.SIGKILL)
    ray.wait()


def read(
    folder: Path,
    address: str,
    kills: int,
    chance: random.Random,
    nodes: list[subprocess.Popen[bytes]],
) -> str:
    """Reads everything with a cluster, and tells what was killed."""
    told: list[str] = []
    ray = ["--ray", address]
    driver = run(folder, "ray", ray)
    while len(told) < kills and driver.poll() is None:
        time.sleep(chance.uniform(0, 3))
        if not (pids := writing(folder / "ray")):
            continue  # nobody reads yet
        if chance.random() < 1 / 3:
            driver.kill()
            driver.communicate()
            told.append("the command")
            driver = run(folder, "ray", ray)
        elif len(nodes) > 1 and chance.random() < 1 / 2:
            end(nodes.pop())
            nodes.append(node([]))
            told.append("a node")
        else:
            os.kill(chance.choice(pids), signal.SIGKILL)
            told.append("an actor")
    *_, last = driver.communicate()[0].splitlines()
    done = json.loads(last)
    resumed = sum(bool(each["reused_tokens"]) for each in done["documents"])
    print(f"exit {driver.returncode}, {len(done['documents'])} documents, {resumed} gone on with")
    if driver.returncode or done["failed"] or len(told) < kills:
        sys.exit(f"failed: {done['failed']}; killed: {told}")
    return " and ".join(told)


def writing(library: Path) -> list[int]:
    """The living processes that write documents, as their claims say."""
    pids = set[int]()
    for claim in (library / "locks" / "unfinished").glob("*/*.claim"):
        try:
            pid = json.loads(claim.read_bytes())["pid"]
            os.kill(pid, 0)
        except (OSError, ValueError):
            continue  # it is done, or was killed
        pids.add(pid)
    return sorted(pids)


def written(library: Path) -> dict[str, bytes]:
    """Every file of the documents of a library."""
    folder = library / "documents"
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


if __name__ == "__main__":
    main()
