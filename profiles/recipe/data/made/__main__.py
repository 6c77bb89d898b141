"""Writes made-up documents with questions to a file."""

import argparse
from pathlib import Path

from longctx.profiles.recipe.data.asked import write
from longctx.profiles.recipe.data.made.every import SHARES, documents


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["mix", *SHARES], default="mix")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--filler", type=Path, help="prose in paragraphs, to hide facts in")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    filler = paragraphs(chosen.filler) if chosen.filler else []
    write(chosen.out, documents(chosen.kind, chosen.seed, chosen.count, filler))


def paragraphs(path: Path) -> list[str]:
    """The paragraphs of a text."""
    return [part.strip() for part in path.read_text("utf-8").split("\n\n") if part.strip()]


if __name__ == "__main__":
    main()
