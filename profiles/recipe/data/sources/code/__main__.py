"""Python files as documents with questions that their syntax answers, and texts of their packages.

Give folders of source that may be used: a file whose path has a folder of tests is left out.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

from longctx.profiles.recipe.data.asked import AskedDocument, write
from longctx.profiles.recipe.data.corpus import read_text
from longctx.profiles.recipe.data.sources.code import docstrings, signatures, values
from longctx.profiles.recipe.data.sources.code.asking import asked
from longctx.profiles.recipe.data.sources.code.packages import metadata, told
from longctx.profiles.recipe.data.sources.code.parts import Part, parts
from longctx.profiles.recipe.data.sources.code.source import parsed

RULES = (
    *(signatures.defaults, signatures.types, signatures.raised, signatures.returned),
    *(signatures.bases, signatures.imports),
    *(values.constants, values.entries, values.environment, values.notices),
    *(docstrings.described, docstrings.arguments, docstrings.versions),
)
TESTS = {"test", "tests", "testing", "idlelib", "lib2to3", "site-packages", "dist-packages"}
LEAST = 4  # questions to a document


def sources(folder: Path, most: int, rng: random.Random) -> list[Path]:
    """Files of a folder that are no tests, at most a number of them drawn at random."""
    found = [path for path in folder.rglob("*.py") if not TESTS & {*path.relative_to(folder).parts}]
    return sorted(rng.sample(sorted(found), min(most, len(found))))


def documents(text: str, rng: random.Random) -> Iterator[AskedDocument]:
    """The parts of a file that can be asked enough."""
    source = parsed(text)
    if source is None:
        return
    facts = [fact for rule in RULES for fact in rule(source)]
    for part in parts(source, rng):
        spans = part.spans
        of_part = [fact for fact in facts if spans.keys() >= {*fact.lines}]
        questions = asked(of_part, spans, rng)
        if len(questions) >= LEAST:
            yield AskedDocument("code", part.text, tuple(questions))


def described(package: Path, rng: random.Random) -> Iterator[AskedDocument]:
    """What an installed package says of itself, if it stands beside its folder."""
    if text := metadata(package):
        questions = asked(told(text), Part(1, text).spans, rng)
        yield AskedDocument("package", text, tuple(questions))


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="packages of Python files")
    parser.add_argument("--files", type=int, default=120, help="of a folder, at most")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines (.jsonl.xz)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    files = [file for folder in given.folders for file in sources(folder, given.files, rng)]
    made = [one for file in files for one in documents(read_text(file), rng)]
    made += [one for folder in given.folders for one in described(folder, rng)]
    write(given.out, made)


if __name__ == "__main__":
    main()
