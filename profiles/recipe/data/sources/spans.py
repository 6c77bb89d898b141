"""Questions in the form of SQuAD, articles of paragraphs with answers, as documents.

An article is one document if it is short, else several of neighbouring paragraphs. A question to
which two paragraphs of a document give answers is left out, and so is one without an answer.
"""

import argparse
import json
import lzma
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from longctx.profiles.recipe.data.asked import AskedDocument, Question, write
from longctx.profiles.recipe.data.sources.context import Context
from longctx.profiles.recipe.data.sources.context import document as joined
from longctx.profiles.recipe.data.sources.evidence import of_span

LONGEST = 6000  # characters of a document, if its paragraphs allow


def articles(path: Path) -> Iterator[Mapping[str, Any]]:
    """The articles of a JSON file, or of all JSON files in a tar archive, compressed or not."""
    if ".tar" in path.suffixes:
        with tarfile.open(path) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.name.endswith(".json") else None
                if file:
                    yield from json.load(file)["data"]
        return
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        yield from json.load(file)["data"]


def context(paragraph: Mapping[str, Any]) -> Context:
    """A paragraph with its questions."""
    text = paragraph["context"]
    asked = (question(text, one) for one in paragraph["qas"])
    return Context(text, tuple(one for one in asked if one))


def question(text: str, asked: Mapping[str, Any]) -> Question | None:
    """A question with its first answer; None if none stands where it is said to."""
    places = [
        (one["answer_start"], one["text"])
        for one in asked.get("answers", [])
        if one["text"].strip() and text[one["answer_start"] :].startswith(one["text"])
    ]
    if not places or asked.get("is_impossible"):
        return None
    start, answer = places[0]
    evidence = of_span(text, start, start + len(answer))
    return Question(" ".join(asked["question"].split()), answer.strip(" ,;:\n"), (evidence,))


def documents(kind: str, found: Iterable[Mapping[str, Any]]) -> Iterator[AskedDocument]:
    """The articles as documents of at most about LONGEST characters, those with questions."""
    for article in found:
        group: list[Context] = []
        for one in map(context, article["paragraphs"]):
            if group and sum(len(other.text) + 2 for other in group) + len(one.text) > LONGEST:
                yield from whole(kind, group)
                group = []
            group.append(one)
        yield from whole(kind, group)


def whole(kind: str, group: list[Context]) -> Iterator[AskedDocument]:
    """Paragraphs as one document, if they have a question."""
    gaps = ["", *["\n\n"] * (len(group) - 1)] if group else []
    made = joined(kind, group, gaps)
    if made.questions:
        yield made


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path, nargs="+", help="JSON (also .xz), or a tar of such")
    parser.add_argument("--kind", required=True, help="of the documents: policy, wiki")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines (also .xz)")
    given = parser.parse_args()
    found = (article for path in given.records for article in articles(path))
    write(given.out, documents(given.kind, found))


if __name__ == "__main__":
    main()
