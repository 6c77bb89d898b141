"""`longctx serve`: documents for other programs and for the browser, from this machine."""

import logging
import os
import sys
import threading
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longctx.cli import options, progress, render
from longctx.cli.run import current
from longctx.cli.settings import library_path
from longctx.cli.text import counted
from longctx.core.common.distribution import install_command
from longctx.core.common.errors import LongctxError, UsageError

if TYPE_CHECKING:
    from longctx import Model
    from longctx.cli.serve.options import Options

EXAMPLES = """\
  longctx serve
  longctx serve --port 9000 --max-new-tokens 200
  LONGCTX_SERVE_TOKEN=$(openssl rand -hex 24) longctx serve --host 0.0.0.0
  curl http://127.0.0.1:8484/v1/models
"""
PORT = 8484
TOKEN = "LONGCTX_SERVE_TOKEN"
NEEDED = ("starlette", "uvicorn")
SHORTEST = 16  # characters of a token
_log = logging.getLogger(__name__)


def run(
    library: options.LibraryDir = None,
    host: Annotated[
        str,
        options.setting(
            "--host",
            "Address to serve at; by default 127.0.0.1, which only this machine reaches. Any other "
            "needs a token.",
            metavar="ADDRESS",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        options.setting(
            "--port",
            f"Port to serve at; 0: any free one. By default {PORT}.",
            metavar="N",
            min=0,
            max=65535,
        ),
    ] = PORT,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TOKEN",
            show_default=False,
            help="What clients must show (Authorization: Bearer TOKEN); others on this machine can "
            f"see it here, so better set {TOKEN}. By default none is needed at 127.0.0.1.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            show_default=False,
            help="Further name by which clients may call this server, as behind a proxy; may be "
            "given several times. By default localhost and the address served at.",
        ),
    ] = None,
    open_page: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open",
            show_default=False,
            help="Open the page in the browser; by default where a person at this machine's own "
            "screen runs it.",
        ),
    ] = None,
    waiting: Annotated[
        int,
        options.setting(
            "--waiting",
            "Requests that may wait for the model; further ones are told when to try again (429). "
            "By default 64.",
            metavar="N",
            min=0,
        ),
    ] = 64,
    max_docs: options.MaxDocs = 16,
    max_new_tokens: Annotated[
        int,
        options.setting(
            "--max-new-tokens",
            "Longest answer in tokens, whatever a client asks for; by default 1024.",
            metavar="N",
            min=1,
        ),
    ] = 1024,
    model: options.Model = None,
    profile: options.ProfileName = None,
    method: options.AskWith = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    answer_model: options.AnswerModel = None,
    answer_profile: options.AnswerProfile = None,
    gather_by: options.GatherBy = None,
    decode: options.Decode = None,
) -> None:
    """Serves documents to programs, and a page in the browser.

    Programs that speak OpenAI's interface (/v1/chat/completions, /v1/responses, /v1/models) ask a
    document by the model name longctx/NAME, and all by longctx; /v1/find finds passages. Answers
    are made one after another; Ctrl-C ends it. docs/serve.md has the rest.
    """
    _require_extra()
    told = _token(host, token)
    current().arguments["token"] = "(hidden)" if told else None
    import longctx
    from longctx.cli.serve.options import Options

    place = library_path(library)
    chosen = Options(
        host=host,
        token=told,
        hosts=tuple(allow_host or ()),
        waiting=waiting,
        max_docs=max_docs,
        max_new_tokens=max_new_tokens,
        asked={"gather_by": gather_by} if gather_by is not None else {},
    )
    weights = longctx.Model(
        model,
        answers=answer_model,
        profile=profile,
        answer_profile=answer_profile,
        method=method,
        device=device,
        dtype=dtype,
        threads=threads,
        decode=decode,
    )
    if model is not None or answer_model is not None:
        with progress.status("loading the model"):  # a wrong name is told of now
            weights.load()
    _serve(place, weights, chosen, port, _at_a_screen(host) if open_page is None else open_page)


def _serve(place: Path, weights: "Model", chosen: "Options", port: int, opens: bool) -> None:
    """Serves a library until Ctrl-C.

    Args:
        place: the library's folder.
        weights: what reads and answers.
        chosen: the server's options, with the address.
        port: the port; 0: any free one.
        opens: the page in the browser, once it can be had.
    """
    from longctx import Library
    from longctx.cli.serve.app import make_app
    from longctx.cli.serve.listening import Server, address_of, bound

    with (
        bound(chosen.host, port) as listening,
        weights,
        Library(place, weights, on_note=_log.info) as documents,
    ):
        address = address_of(listening, chosen.host)

        def ready() -> None:
            there = counted(len(documents), "document")
            render.note(f"{there} at {address} (Ctrl-C ends it)")
            if not (place / "library.json").exists():
                render.note(f"there is no library at '{place}' yet: the first file sent makes it")
            if opens:  # in a thread: there are browsers that keep who opens them waiting
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        app = make_app(documents, chosen)
        try:
            Server(app, chosen.waiting, ready).run([listening])
        finally:
            app.close()


def _at_a_screen(host: str) -> bool:
    """Whether a person runs it at a machine that can show the page, which is this one."""
    from longctx.cli.serve.security import is_loopback

    streams = (sys.stdin, sys.stderr)  # None where it was started without a terminal
    person = all(stream is not None and stream.isatty() for stream in streams)
    person = person and "SSH_CONNECTION" not in os.environ
    screens = ("DISPLAY", "WAYLAND_DISPLAY")  # not BROWSER: there are some for terminals
    shows = sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in screens)
    return person and shows and is_loopback(host)


def _require_extra() -> None:
    """Refuses where the libraries that serve are not installed.

    Raises:
        LongctxError: it has the command that installs them.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        why = f"that needs {' and '.join(missing)}, not installed here"
        raise LongctxError("cannot serve", why, f"Run: {install_command(*missing)}.")


def _token(host: str, given: str | None) -> str:
    """The token that clients must show; empty: none.

    Raises:
        UsageError: others can reach the server, and there is none; or it is short, or has signs
            that a header cannot have.
    """
    from longctx.cli.serve.security import is_loopback

    token = given if given is not None else os.environ.get(TOKEN, "")
    if not token:
        if is_loopback(host):
            return ""
        why = "other machines can reach it there, and there is no token"
        raise UsageError(f"cannot serve at {host!r}", why, f"Set {TOKEN}, or give --token.")
    if len(token) < SHORTEST or not all("!" <= sign <= "~" for sign in token):
        why = f"it needs {SHORTEST} letters, digits or signs at least, and no spaces"
        raise UsageError("cannot use this token", why, "Make one: openssl rand -hex 24.")
    return token
