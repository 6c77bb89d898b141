"""Hundreds of connections to `longctx serve` that stand still."""

import contextlib
import json
import random
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

from attacks.world import SMALL, World, require

BEGUN = (  # heads, bodies and nothing at all
    b"",
    b"G",
    b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ",
    b"POST /v1/find HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
)
CLOSED_S = 60.0  # seconds after which all must be closed
SOON_S = 5.0  # seconds in which any client must get an answer, if only that there is no room


def connections(world: World, chance: random.Random, size: str) -> None:
    """Others are answered or refused at once; the stalled are closed, and nothing of them stays."""
    count = 50 if size == SMALL else 500
    words = "serve", "--port", "0", "--no-open", "--threads", "1"
    with world.start(*words) as process, contextlib.ExitStack() as held:
        held.callback(process.kill)
        address = process.stderr.readline().split()[3]
        port = int(address.rpartition(":")[2].rstrip("/"))
        require(_health(address) == 200, "it is not well at first")
        before = _handles(process.pid)
        stalled = []
        for _ in range(count):
            one = held.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            with contextlib.suppress(OSError):  # it is refused already
                one.sendall(chance.choice(BEGUN))
            stalled.append(one)
        answers = {_health(address) for _ in range(5)}
        require(answers <= ({200} if size == SMALL else {200, 503}), f"it answers {answers}")
        if size == SMALL:
            for one in stalled:
                one.close()
        else:
            _require_closed(stalled)
        until = time.monotonic() + 10
        while (now := _handles(process.pid)) > before + 2 and time.monotonic() < until:
            time.sleep(0.05)
        require(now <= before + 2, f"{now - before} files more are open")
        require(_health(address) == 200, "it is not well any more")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(60)
    require(process.returncode == 0 and "Traceback" not in err, f"{process.returncode}: {err}")


def _health(address: str) -> int:
    """What a further client gets, soon."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{address}/health", timeout=SOON_S) as response:
            require(json.load(response) == {"status": "ok"}, "another answer")
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def _handles(pid: int) -> int:
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


def _require_closed(stalled: list[socket.socket]) -> None:
    """The server ends all of them by itself."""
    until = time.monotonic() + CLOSED_S
    for one in stalled:
        one.settimeout(max(0.1, until - time.monotonic()))
        with contextlib.suppress(ConnectionError):
            try:
                while one.recv(1 << 16):
                    pass
            except TimeoutError:
                require(False, f"a connection is open after {CLOSED_S:.0f} s")
