"""MCP clients that send lines of 200 MB, and that ask for what they may not read."""

import contextlib
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from attacks.world import SMALL, World, require

GROWTH = 32 << 20  # bytes that a line may add to a process's memory
SECRET = "the oil-store padlock opens with 58204"
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "attack", "version": "0"},
}


class Session:
    """A session with `longctx mcp`.

    Args:
        world: whose library is served.
        options: of the command.
    """

    def __init__(self, world: World, *options: object):
        self.process, self._ids = world.start("mcp", *options), 0
        self.ask("initialize", HELLO)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: object) -> None:
        """Sends a message."""
        self.process.stdin.write(f"{json.dumps(message)}\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict) -> dict:
        """Sends a request; the answer."""
        self._ids += 1
        self.send({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params})
        while (answer := self.answer()).get("id") != self._ids:
            require("id" not in answer, f"{answer} is no answer")
        return answer

    def call(self, tool: str, **arguments: object) -> dict:
        """Calls a tool; the answer."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments})

    def answer(self) -> dict:
        """The next message."""
        line = self.process.stdout.readline()
        require(line, f"the server has ended: {self.process.poll()}")
        return json.loads(line)

    def peak(self) -> int:
        """The most bytes of memory that the process has had since the last time."""
        place = Path(f"/proc/{self.process.pid}")
        found = re.search(r"VmHWM:\s+(\d+) kB", (place / "status").read_text())
        (place / "clear_refs").write_text("5")
        return int(found[1]) << 10


@contextlib.contextmanager
def session(world: World, *options: object) -> Iterator[Session]:
    """A session, which must end well when its client leaves."""
    opened = Session(world, *options)
    with opened.process:
        try:
            yield opened
            _, err = opened.process.communicate(60)
        except BaseException:
            opened.process.kill()
            raise
    require(opened.process.returncode == 0 and "Traceback" not in err, err)


def long_lines(world: World, chance: random.Random, size: str) -> None:
    """Memory stays bounded, the line is answered with an error, and the session goes on."""
    count = (20 if size == SMALL else 200) * 1_000_000
    call = '{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"find","arguments":'
    lines = {
        "a query": (call + '{"query":"', "a ", '"}}}'),
        "no JSON": ("", "x", ""),
        "deep": ("", "[", ""),
        "escapes": ('"', "\\u0041", '"'),
        "zeros": ("", "\0", ""),
    }
    with session(world) as opened:
        opened.call("list_documents")
        had = opened.peak()
        for name in chance.sample(sorted(lines), 2 if size == SMALL else len(lines)):
            begin, middle, end = lines[name]
            stream, piece = opened.process.stdin, middle * (1_000_000 // len(middle))
            stream.write(begin)
            for _ in range(count // len(piece)):
                stream.write(piece)
            stream.write(f"{end}\n")
            stream.flush()
            answer = opened.answer()
            require(answer.get("error", {}).get("code") == -32700, f"{name}: {answer}")
            require("result" in opened.call("list_documents"), f"{name}: the session has ended")
            grown = opened.peak() - had
            require(grown < GROWTH, f"{name}: {grown:,} bytes more")


def paths(world: World, chance: random.Random, size: str) -> None:
    """Nothing outside the allowed folder is read, by whatever path or link."""
    allowed, secret = world.folder / "docs", world.folder / "secret.txt"
    (allowed / "deep").mkdir(parents=True)
    (allowed / "in.txt").write_text("the keeper wrote that a boat came home\n")
    secret.write_text(f"{SECRET}\n")
    (allowed / "link.txt").symlink_to(secret)
    (allowed / "folder").symlink_to(world.folder)
    wanted = [f"{allowed}/../secret.txt", secret, f"{allowed}/link.txt", f"file://{secret}"]
    wanted += [f"{allowed}/folder/secret.txt", f"{allowed}/deep/../../secret.txt", "~/secret.txt"]
    wanted += [f"{allowed}/f*/s*", f"/proc/self/root{secret}", f"{allowed}/in.txt\0{secret}", "-"]
    wanted += [f"//{secret}", f"{allowed}/{'../' * 50}{secret}", "/dev/stdin", "a/" * 5000]
    addresses = [f"longctx://d1.txt/..%2F..%2F{secret}", f"file://{secret}", f"longctx://{secret}"]
    addresses += [f"longctx://../../{secret.name}", f"longctx://d1.txt/{secret}?lines=1-9"]
    count = 3 if size == SMALL else len(wanted)
    with session(world, "--allow", allowed) as opened:
        for path in chance.sample(wanted, count):
            _require_refused(opened.call("ingest", paths=[str(path)]), path)
        for address in chance.sample(addresses, min(count, len(addresses))):
            _require_refused(opened.ask("resources/read", {"uri": address}), address)
        found = opened.call("find", query="", regexp="padlock")
        require("58204" not in json.dumps(found), "the secret is in the library")


def _require_refused(answer: dict, what: object) -> None:
    refused = "error" in answer or answer["result"].get("isError")
    require(refused and SECRET not in json.dumps(answer), f"{what}: {answer}")
