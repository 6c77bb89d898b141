"""The blocks of README.md and docs/*.md that are made from what the registries hold.

`make docs` writes them. A block stands between `<!-- NAME -->` and `<!-- /NAME -->`; the help of a
command is the code block under its heading.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from inspect import cleandoc
from pathlib import Path

from longctx.cli.exit_codes import EXIT_CODES
from longctx.core.common.registry import Registry
from longctx.core.decode import policies
from longctx.core.model import architectures
from longctx.core.retrieve import gather_by
from longctx.core.sources import formats

ROOT = Path(__file__).parent.parent
PLAIN = {"COLUMNS": "80", "TERMINAL_WIDTH": "80"}
EXTRA = "`longctx[documents]`"
README_FILES = (
    (("plain text, Markdown, source code, logs, in any usual encoding", "`book.txt:1204`"),),
    (
        ("`.gz` `.bz2` `.xz` `.zst` of all these", "`log.txt.gz:17`"),
        ("`.zip` `.tar` (also compressed), and those in one another", "`src.zip/dir/b.txt:17`"),
    ),
)
SOURCES = (
    (("others: `.txt` `.md` `.py` `.log` ...", "the file, byte for byte", "line: `a.py:12`"),),
    (
        (
            "`.gz` `.bz2` `.xz` `.zst`",
            f"what they hold, by the ending before; `.zst` needs {EXTRA}",
            "the same",
        ),
        (
            "`.zip` `.tar`, `.tar.gz` `.tgz` `.tar.bz2` `.tar.xz` `.tar.zst` ...",
            "each file in them, in the archive's order",
            "`a.zip/dir/b.txt:17`",
        ),
    ),
)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    lines = [[*head], *rows]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def methods() -> str:
    """The reading methods."""
    firsts = Registry("longctx.core.methods", "method").docstrings().items()
    rows = ((f"`{name}`", text.partition("\n")[0].removesuffix(".")) for name, text in firsts)
    return table(["`--method`", "what it does"], rows)


def gather_sources() -> str:
    """What passages are gathered by."""
    rows = (
        (f"`{name}`", summary, gather_by.embeddings(name))
        for name, summary in gather_by.summaries().items()
    )
    return table(["`--gather-by`", "passages are chosen by", "embeddings are"], rows)


def decode_policies() -> str:
    """The decode policies."""
    rows = []
    for name, summary in Registry(policies.__name__, "").summaries().items():
        recalling = policies.load(name).Policy.recalling
        over = first_sentence(recalling.__doc__) if recalling else "no"
        rows.append((f"`{name}`", summary, over))
    head = ["policy", "a token attends to", "over all that was kept (`reattention`)"]
    return table(head, rows)


def first_sentence(docstring: str) -> str:
    """In lower case, without its full stop."""
    return docstring[0].lower() + docstring.partition("\n")[0].removesuffix(".")[1:]


def options_of(policy: str) -> str:
    """The options of a decode policy, as the docstring of its `Options` describes them."""
    options = policies.load(policy).Options
    described = {
        name: " ".join(text.split())
        for names, text in re.findall(
            r"^    ([\w, ]+): (.*(?:\n {8}.*)*)", cleandoc(options.__doc__), re.M
        )
        for name in names.split(", ")
    }
    rows = (
        (f"`{option.name}`", shown(option.default), described[option.name].removesuffix("."))
        for option in fields(options)
    )
    return table(["option", "default", "unit, meaning"], rows)


def shown(default: object) -> str:
    """As a user would write it after `--decode NAME:OPTION=`."""
    return default if isinstance(default, str) else json.dumps(default)


def read_files() -> str:
    """What is read, for the README."""
    before, after = README_FILES
    rows = [(title, f"`{cited}`") for _, title, _, cited, _ in described_formats()]
    return table(["files", "cited as"], [*before, *rows, *after])


def sources() -> str:
    """What is read, for docs/sources.md."""
    before, after = SOURCES
    rows = [
        (endings, what + (f"; needs {EXTRA}" if form.needs else ""), f"{form.marks}: `{cited}`")
        for endings, _, what, cited, form in described_formats()
    ]
    return table(["ending", "what is read", "cited by"], [*before, *rows, *after])


def described_formats() -> Iterator[tuple[str, str, str, str, formats.Format]]:
    """Of each format its endings, title, what is read, a place as it is cited, and itself."""
    for name, text in Registry(formats.__name__, "").docstrings().items():
        title, _, what = text.partition("\n")[0].removesuffix(".").partition(": ")
        others = [ending for ending, form in formats.OTHER_ENDINGS.items() if form == name]
        endings = " ".join(f"`.{ending}`" for ending in (name, *others))
        form = formats.load(name)
        yield endings, title, what, f"a.{name}:{formats.cited(form.marks, 12)}", form


BLOCKS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {
        "files": read_files,
        "methods": methods,
        "architectures": architectures.table,
    },
    "docs/commands.md": {"gather sources": gather_sources},
    "docs/decoding.md": {
        "decode policies": decode_policies,
        **{
            f"options of {name}": (lambda name=name: options_of(name))
            for name in policies.names()
            if fields(policies.load(name).Options)
        },
    },
    "docs/exit-codes.md": {},
    "docs/sources.md": {"formats": sources},
}


def put(text: str, begin: str, block: str, end: str) -> str:
    """The text with a block between two marks.

    Raises:
        ValueError: they are not in it.
    """
    before, _, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not closed:
        raise ValueError(f"there is no place between {begin!r} and {end!r}")
    return f"{before}{begin}{block}{end}{after}"


def with_exit_codes(text: str) -> str:
    """The table of exit codes; when each is given stays as it is written."""
    for code, meaning in EXIT_CODES.items():
        text = put(text, f"\n| {code} | ", meaning, " | ")
    return text


def with_help(text: str) -> str:
    """The help of every command under its heading; of a new one at the end."""
    for name, shown in helps():
        begin, end = f"## `longctx {name}`\n\n```\n", "\n```\n"
        text = put(text if begin in text else f"{text}\n{begin}{end}", begin, shown, end)
    return text


def helps() -> Iterator[tuple[str, str]]:
    """Every command, and those inside commands, with its help on 80 columns."""
    from typer.testing import CliRunner

    from longctx.cli.main import COMMANDS, app

    names = [[name] for name in COMMANDS]
    names += [[n, i] for n, module in COMMANDS.items() for i in getattr(module, "COMMANDS", {})]
    for each in names:
        shown = CliRunner().invoke(app, [*each, "--help"], prog_name="longctx", env=PLAIN).stdout
        yield " ".join(each), shown.rstrip()


def made(file: str) -> str:
    """The text of a file as it should be.

    Raises:
        ValueError: it has no place for a block.
    """
    text = (ROOT / file).read_text("utf-8")
    for name, make in BLOCKS[file].items():
        text = put(text, f"<!-- {name} -->\n", f"{make()}\n", f"<!-- /{name} -->")
    return WHOLE.get(file, str)(text)


WHOLE = {"docs/commands.md": with_help, "docs/exit-codes.md": with_exit_codes}

if __name__ == "__main__":
    for file in BLOCKS:
        (ROOT / file).write_text(made(file), "utf-8")
