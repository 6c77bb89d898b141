"""A real server on a real socket, with `tiny` and two short documents."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass

import httpx
import openai
import pytest

import longctx
from longctx.cli.serve.app import Guarded, make_app
from longctx.cli.serve.listening import Server, address_of, bound
from longctx.cli.serve.options import Options

NOTES = """\
The keeper of the lighthouse was called Aldous Crane. He wrote every evening.
The code of the oil-store padlock is 58204. Nobody else knew it.
The foghorn was bought in 1911 from Dahl and Sons, and it was never paid for.
"""
LETTER = """\
Dear Phil, the regatta was won by Adela Thrupp in the green boat.
The marmalade on the island is made from carrots. Your loving M.
"""
LINES = [f"On day {i} the lamp was lit at {i % 12} and the wind was noted." for i in range(1, 81)]
LINES[49] = "The code of the oil-store padlock is 58204."
BOOK = "".join(f"{line}\n" for line in LINES)
NAMED = "<b>signs & co"
MARKUP = (
    "The sign on the quay said: <script>window.stolen = 1</script> and no more.\n"
    'Below it hung a picture <img src="x" onerror="window.stolen = 1"> of a boat &amp; a gull.\n'
)


@dataclass
class Served:
    """A running server, and clients of it."""

    app: Guarded
    server: Server
    address: str
    port: int
    http: httpx.Client
    openai: openai.OpenAI

    def exchanged(self, *pieces: bytes) -> bytes:
        """All that the server says to some bytes, until it closes the connection.

        Args:
            pieces: sent one after another, the next one when there was time to read the one before.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(0.02 if len(pieces) > 1 else 0)
            got = b""
            with suppress(ConnectionResetError):
                while part := connection.recv(65536):
                    got += part
            return got


@pytest.fixture(scope="session")
def documents(tmp_path_factory) -> Iterator[longctx.Library]:
    """A library with "notes" and "letter", read by `tiny`, which answers too."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "notes.txt").write_text(NOTES, "utf-8")
    (folder / "letter.txt").write_text(LETTER, "utf-8")
    model = longctx.Model("tiny", answers="own", device="cpu", dtype="fp32", threads=1)
    with model, longctx.Library(folder / "library", model) as library:
        library.ingest(folder / "notes.txt")
        library.ingest(folder / "letter.txt")
        yield library


@contextmanager
def running(library: longctx.Library, options: Options) -> Iterator[Served]:
    """Serves in a thread of its own until the end of the context."""
    app, ready = make_app(library, options), threading.Event()
    with bound(options.host, 0) as listening:
        address, port = address_of(listening, options.host), listening.getsockname()[1]
        server = Server(app, options.waiting, ready.set)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        assert ready.wait(30)
        key = options.token or "-"
        headers = {"Authorization": f"Bearer {options.token}"} if options.token else {}
        with (
            httpx.Client(base_url=address, timeout=100, headers=headers) as http,
            openai.OpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0) as client,
        ):
            try:
                yield Served(app, server, address, port, http, client)
            finally:
                server.should_exit = True
                thread.join()
                app.close()


@pytest.fixture(scope="module")
def own_library(documents, tmp_path_factory) -> Iterator[longctx.Library]:
    """A library that a module's tests may change: a book, and what looks like markup."""
    folder = tmp_path_factory.mktemp("changing")
    (folder / "book.txt").write_text(BOOK, "utf-8")
    (folder / "markup.html.txt").write_text(MARKUP, "utf-8")
    with longctx.Library(folder / "library", documents.model) as library:
        library.ingest(folder / "book.txt")
        library.ingest(folder / "markup.html.txt", name=NAMED)
        yield library


@pytest.fixture(scope="module")
def changing(own_library) -> Iterator[Served]:
    """A server of that library, with questions over fewer passages than usual: they cost less."""
    with running(own_library, Options(asked={"gather": 256})) as found:
        yield found


@pytest.fixture
def empty(documents, tmp_path) -> Iterator[Served]:
    """A server of a library that is not there yet."""
    with (
        longctx.Library(tmp_path / "none", documents.model) as library,
        running(library, Options()) as found,
    ):
        yield found


@pytest.fixture(scope="session")
def book() -> str:
    """The text of that library's book."""
    return BOOK


@pytest.fixture(scope="session")
def marked_name() -> str:
    """The name of the document with what looks like markup."""
    return NAMED


@pytest.fixture
def serve(documents) -> Iterator[Callable[..., Served]]:
    """Starts a server with options of its own; it ends with the test."""
    with ExitStack() as held:

        def start(**options: object) -> Served:
            return held.enter_context(running(documents, Options(**options)))

        yield start


@pytest.fixture(scope="module")
def served(documents) -> Iterator[Served]:
    """A server with the usual options."""
    with running(documents, Options()) as found:
        yield found


@pytest.fixture
def run_server() -> Callable[..., AbstractContextManager[Served]]:
    """The function `running`."""
    return running
