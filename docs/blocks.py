"""Writes the blocks of README.md and docs/*.md that are made from the registries: `make docs`.

A block stands between `<!-- NAME -->` and `<!-- /NAME -->`; the help of a command and the meaning
of an exit code have places of their own.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from inspect import cleandoc
from pathlib import Path

from typer.testing import CliRunner

from longctx.cli.completion import METHODS, POLICIES
from longctx.cli.exit_codes import EXIT_CODES
from longctx.cli.main import COMMANDS, app
from longctx.core.common.distribution import PACKAGES
from longctx.core.decode import policies
from longctx.core.model import architectures
from longctx.core.retrieve import gather_by
from longctx.core.sources import formats, places
from longctx.kernels import door

ROOT = Path(__file__).parent.parent
WIDE = {"COLUMNS": "80", "TERMINAL_WIDTH": "80"}
FILES = (
    "README.md",
    *(f"docs/{name}.md" for name in ("commands", "decoding", "kernels", "sources")),
)
FILES += ("docs/exit-codes.md",)
EXAMPLES = {"sheet": (places.of_cell(1, 7, 2), "Sheet1")}  # of places that are no count
ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.M)  # in a docstring


def blocks() -> Iterator[tuple[str, str]]:
    """Names of blocks, and what stands in them."""
    rows = ((f"`{name}`", _first(text)) for name, text in METHODS.docstrings().items())
    yield "methods", _table(["`--method`", "what it does"], rows)
    yield "architectures", architectures.table()
    yield "kernels", door.table()
    yield "formats", _table(["files", "what is read", "cited as"], _formats())
    said = gather_by.summaries().items()
    used = {True: "needed", False: "unused"}
    rows = (
        (f"`{name}`", summary, gather_by.vectors(name), used[gather_by.embeddings(name)])
        for name, summary in said
    )
    head = ["`--gather-by`", "passages by", "their vectors are", "embeddings are"]
    yield "gather sources", _table(head, rows)
    over = "over all that was kept (`reattention`)"
    yield "decode policies", _table(["policy", "a token attends to", over], _policies())
    for name in policies.names():
        rows = [*_options(policies.load(name).Options)]
        yield f"options of {name}", _table(["option", "default", "unit, meaning"], rows)


def _formats() -> Iterator[list[str]]:
    for name, text in formats.REGISTRY.docstrings().items():
        form, (title, _, what) = formats.load(name), _first(text).partition(": ")
        endings = [name, *(end for end, of in formats.OTHER_ENDINGS.items() if of == name)]
        needs = f"; needs `{PACKAGES.get(form.needs, form.needs)}`" if form.needs else ""
        listed = " ".join(f"`.{ending}`" for ending in endings)
        place = formats.cited(form.marks, *EXAMPLES.get(form.marks, (12,)))
        yield [f"{title}: {listed}", what + needs, f"`a.{name}:{place}`"]


def _policies() -> Iterator[list[str]]:
    for name, summary in POLICIES.summaries().items():
        recalling = policies.load(name).Policy.recalling
        yield [f"`{name}`", summary, f"yes. {_first(recalling.__doc__)}" if recalling else "no"]


def _options(options: type) -> Iterator[list[str]]:
    said = dict(ATTRIBUTE.findall(cleandoc(options.__doc__)))
    for option in fields(options):
        usual, meaning = option.default, " ".join(said[option.name].split()).removesuffix(".")
        written = usual if isinstance(usual, str) else json.dumps(usual)
        yield [f"`{option.name}`", written, meaning]


def _first(docstring: str) -> str:
    return docstring.partition("\n")[0].removesuffix(".")


def _table(head: list[str], rows: Iterator[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _helps() -> Iterator[tuple[str, str]]:
    names = [[name] for name in COMMANDS]
    names += [[n, i] for n, module in COMMANDS.items() for i in getattr(module, "COMMANDS", {})]
    for name in names:
        shown = CliRunner().invoke(app, [*name, "--help"], prog_name="longctx", env=WIDE).stdout
        yield " ".join(name), shown.rstrip()


def made() -> dict[str, str]:
    """The text of each file as it should be.

    Raises:
        ValueError: something has no place.
    """
    texts = {file: (ROOT / file).read_text("utf-8") for file in FILES}
    for name, block in blocks():
        if block.count("\n") > 1:
            _put(texts, f"<!-- {name} -->\n", f"{block}\n", f"<!-- /{name} -->")
    for name, shown in _helps():
        _put(texts, f"## `longctx {name}`\n\n```\n", shown, "\n```\n")
    for code, meaning in EXIT_CODES.items():
        _put(texts, f"\n| {code} | ", meaning, " | ")
    return texts


def _put(texts: dict[str, str], begin: str, block: str, end: str) -> None:
    places = [file for file, text in texts.items() if begin in text]
    if not places:
        raise ValueError(f"no file has a place that begins {begin!r}")
    for file in places:
        before, _, rest = texts[file].partition(begin)
        texts[file] = f"{before}{begin}{block}{rest[rest.index(end) :]}"


if __name__ == "__main__":
    for file, text in made().items():
        (ROOT / file).write_text(text, "utf-8")
