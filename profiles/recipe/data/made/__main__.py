"""Writes made-up documents with questions to a file."""

import argparse
from pathlib import Path

from longctx.profiles.recipe.data.asked import write
from longctx.profiles.recipe.data.corpus import read_text
from longctx.profiles.recipe.data.made.every import SHARES, documents

LINED = {".py", ".log"}
LINES = 40  # of a part of these


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["mix", *SHARES], default="mix")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument(
        "--filler", type=Path, nargs="+", default=[], help="prose, code, logs to hide facts in"
    )
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    filler = [part for path in chosen.filler for part in paragraphs(path)]
    write(chosen.out, documents(chosen.kind, chosen.seed, chosen.count, filler))


def paragraphs(path: Path) -> list[str]:
    """The paragraphs of prose, a line each; those of source code and logs, at most LINES long."""
    parts = [part.strip("\n") for part in read_text(path).split("\n\n") if part.strip()]
    if path.suffix not in LINED:
        return [" ".join(part.split()) for part in parts]
    lines = [part.split("\n") for part in parts]
    return ["\n".join(own[at : at + LINES]) for own in lines for at in range(0, len(own), LINES)]


if __name__ == "__main__":
    main()
