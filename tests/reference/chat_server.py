"""Servers of the chat completions protocol to test with: a real one, and one that misbehaves."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NEEDED = ("fastapi", "uvicorn", "openai", "pydantic", "accelerate")  # by `transformers serve`
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
PATIENCE = 120  # seconds for a server to start


def missing() -> list[str]:
    """What `transformers serve` lacks in this environment."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def give_template(folder: Path) -> None:
    """Makes a saved model one to chat with."""
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": TEMPLATE}))


@contextmanager
def transformers_serve(folder: Path, log: Path) -> Iterator[str]:
    """`transformers serve` with the model of a folder, in a process of its own; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "from transformers.cli.transformers import main; main()"
    command = [sys.executable, "-c", code, "serve", str(folder), "--host", "127.0.0.1"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONSAFEPATH": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--device", "cpu"],
            stdout=out,
            stderr=out,
            env=environment,
        )
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _wait(address: str, process: subprocess.Popen, log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(log.read_text("utf-8", "replace")[-4000:])


Give = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


class Misbehaving:
    """A server whose answers a test decides.

    Attributes:
        give: writes the answer to a POST.
        models: names that it lists; None: it has no such list.
        asked: (path, headers, body) of each POST.
    """

    def __init__(self) -> None:
        self.give: Give = lambda handler, body: None
        self.models: list[str] | None = ["one"]
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            """Answers as the test says."""

            def log_message(self, *_: object) -> None:
                """Says nothing."""

            def do_GET(self) -> None:
                """The list of models."""
                if outer.models is None or not self.path.endswith("/models"):
                    self.send_error(404)
                    return
                reply(self, 200, {"data": [{"id": name} for name in outer.models]})

            def do_POST(self) -> None:
                """An answer."""
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append((self.path, dict(self.headers), body))
                outer.give(self, body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @contextmanager
    def running(self) -> Iterator["Misbehaving"]:
        """Serves until the context ends."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


def reply(handler: BaseHTTPRequestHandler, status: int, value: Any, **headers: str) -> None:
    """Sends JSON, or bytes as they are."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    handler.send_response(status)
    named = {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}
    for name, text in named.items():
        handler.send_header(name.replace("_", "-"), text)
    handler.end_headers()
    handler.wfile.write(data)


def events(*texts: str, stop: str | None = "stop", done: bool = True) -> bytes:
    """A stream that says these texts."""
    choices = [{"delta": {"content": text}, "finish_reason": None} for text in texts]
    if stop is not None:
        choices.append({"delta": {}, "finish_reason": stop})
    lines = [f"data: {json.dumps({'choices': [one]})}\n\n" for one in choices]
    return "".join([*lines, *(["data: [DONE]\n\n"] if done else [])]).encode()


def stream(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    """Sends events, and closes the connection."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.end_headers()
    handler.wfile.write(data)
