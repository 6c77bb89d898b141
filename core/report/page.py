"""A page: one HTML file that needs nothing beside it, runs no script and loads nothing.

Its Content-Security-Policy forbids everything but the style that it brings. A page replaces one of
ours, and no other file.
"""

import base64
import hashlib
from pathlib import Path

from longctx.core.common.errors import UsageError
from longctx.core.common.outputs import Output
from longctx.core.common.regular_files import open_regular
from longctx.core.report import svg
from longctx.core.report.html import Html, Parts, element, joined
from longctx.core.report.style import STYLE

BEGIN = '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
OURS = f'{BEGIN}<meta name="generator" content="longctx">\n'
REMEDY = "Name another file with --html."


def page(title: str, *body: Parts) -> str:
    """The file's text.

    Args:
        title: what it is about.
        body: what it shows, below nothing else.
    """
    allowed = " ".join(f"'sha256-{_digest(style)}'" for style in (STYLE, svg.STYLE))
    policy = f"default-src 'none'; style-src {allowed}; base-uri 'none'; form-action 'none'"
    head = [
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
    ]
    main = element("main", "\n", body, "\n")
    styled = f"<style>{STYLE}</style>\n</head>\n<body>\n"
    return OURS + "\n".join(head) + f"\n{styled}{joined(main)}\n</body>\n</html>\n"


def picture(drawn: str) -> Html:
    """A picture of `svg.Drawing` as a part of a page; its texts are escaped there."""
    if not drawn.startswith("<svg ") or f"<style>{svg.STYLE}</style>" not in drawn:
        raise ValueError("it is no picture of ours")
    return Html(drawn)


def output(path: Path) -> Output:
    """Where a page goes.

    Raises:
        UsageError: it cannot be written there, or another file than a page of ours is there.
    """
    place = Output(path.expanduser(), "the page ", REMEDY)
    if place.is_standard:
        why = "a page goes to a file, and standard output has the result"
        raise UsageError("cannot write the page '-'", why, "Name a file with --html.")
    place.require_writable()
    if not _is_ours(place.path):
        why = "it exists, and is no page that longctx wrote"
        raise UsageError(f"cannot write the page '{path}'", why, REMEDY)
    return place


def write(path: Path, text: str) -> None:
    """Writes a page; an older one is replaced, or stays as it was.

    Raises:
        UsageError: as `output`.
        LongctxError: it cannot be written.
    """
    output(path).write(text)


def _is_ours(path: Path) -> bool:
    """Whether nothing is lost where a page takes the place of what is there."""
    if not path.is_file():  # nothing, or a device, which is written to and stays
        return True
    try:
        with open_regular(path) as file:
            start = file.read(len(OURS))
    except OSError:  # not to be read, so not known to be ours
        return False
    return start in (b"", OURS.encode())


def _digest(style: str) -> str:
    return base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
