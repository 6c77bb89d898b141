"""Options that `niah`, `eval`, `calibrate` and `bench` share, and lists in options."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from longctx.cli import amounts


def option(flag: str, metavar: str, help_text: str, **more: Any) -> Any:
    """An option with a value, for this run only."""
    return typer.Option(flag, metavar=metavar, help=help_text, show_default=False, **more)


Lengths = Annotated[
    str,
    typer.Option(
        "--lengths",
        "--length",
        metavar="L,...",
        callback=amounts.of("tokens", commas=True),
        show_default=False,
        help="Tokens of a document, at most: 4000, 4k (= 4,000), 4K (= 4,096), 1M (= 1,048,576), "
        "or several with commas; by default 4k.",
    ),
]
Samples = Annotated[
    int,
    option("--samples", "N", "Documents for each task and length; by default 10.", min=1),
]
Seed = Annotated[
    int, option("--seed", "N", "Decides all texts and what is asked of them; by default 0.")
]
Haystack = Annotated[
    Path | None,
    option(
        "--haystack",
        "FILE|DIR",
        "Prose for the texts: a UTF-8 text file, or a folder of .txt, .md and .rst files, with a "
        "blank line between paragraphs; by default the book that comes with longctx, over and "
        "over.",
    ),
]
Out = Annotated[
    Path | None,
    option(
        "--out",
        "DIR",
        "Folder to keep finished results in: the same command goes on after a stop. By default "
        "nothing is kept.",
    ),
]


def names(given: Iterable[str]) -> tuple[str, ...]:
    """Names from an option given several times, or once with commas; each name once.

    Commas separate names, and also a decode policy's options: a part with a value but no name
    (`recycled:budget=2048,stride=25`) belongs to the name before it.
    """
    found: list[str] = []
    for part in (part.strip() for text in given for part in text.split(",")):
        if found and "=" in part and ":" not in part:
            found[-1] += f",{part}"
        elif part:
            found.append(part)
    return tuple(dict.fromkeys(found))


def tokens(given: Iterable[str]) -> tuple[int, ...]:
    """Numbers of tokens from such an option, each once.

    Raises:
        UsageError: not a number of tokens.
    """
    from longctx.core.common.units import parse_tokens

    return tuple(dict.fromkeys(parse_tokens(name) for name in names(given)))


def lengths(given: str) -> list[int]:
    """Comma-separated numbers of tokens.

    Raises:
        UsageError: not a number of tokens.
    """
    from longctx.core.common.units import parse_tokens

    return [parse_tokens(length.strip()) for length in given.split(",")]
