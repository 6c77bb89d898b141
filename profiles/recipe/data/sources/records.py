"""Question records, a short context each, as documents of several contexts.

A record has `context`, `question`, `answers` and `source`. Contexts that use the same words stand
in one document, so that a question has to be told from its neighbours. Sources without a stated
licence are left out, and so is whatever an evaluation has. Answers are as short as their questions
allow. Further questions of our own (`--more`) know a context by its opening words.
"""

import argparse
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from longctx.profiles.recipe.data.asked import AskedDocument, write
from longctx.profiles.recipe.data.corpus import read_records
from longctx.profiles.recipe.data.sources import alike
from longctx.profiles.recipe.data.sources.context import Context, document
from longctx.profiles.recipe.data.sources.selfcontained import chosen
from longctx.profiles.recipe.data.sources.shortest import shortest
from longctx.profiles.recipe.data.sources.written import Written, opening, read_written

Records = list[dict[str, Any]]
SENTENCES = "wiki-sentences"  # its contexts are single sentences, its answers single words and more
SENTENCE = "sentence"  # one of them alone, with all its questions: to be read, not to be found
KINDS = {  # by the start of the source's name: the documents' kind, and how many contexts in one
    "fairytaleqa": ("fairytale", 4, 12),
    "qed": ("wiki", 4, 10),
    "squadshifts": ("wiki-paragraphs", 4, 10),
    "covid": ("study", 4, 10),
    "qamr": (SENTENCES, 6, 20),
}
PARAGRAPH = (3, 6)  # sentences
MADE_UP = "babi"
MOST_MADE_UP = 4000  # questions: of these simple stories more teach nothing new
LONG = 8  # words: shorter questions are the same by chance
CODED = ("babi-en10k-qa19",)  # answers such as "e, s" for east, then south


def one_line(text: str) -> str:
    """A text with single spaces in place of all other white space."""
    return " ".join(text.split())


def usable(records: Iterable[dict[str, Any]], evaluated: Sequence[dict[str, Any]]) -> Records:
    """The records whose context no evaluation has, nor a long question."""
    contexts = {one_line(record["context"]) for record in evaluated}
    questions = {one_line(record["question"]).lower() for record in evaluated}
    questions = {question for question in questions if len(question.split()) >= LONG}
    kept = []
    for record in records:
        context, question = one_line(record["context"]), one_line(record["question"])
        answers = [one_line(answer) for answer in record["answers"] if answer.strip()]
        if not answers or record["source"].startswith(CODED):
            continue
        if context not in contexts and question.lower() not in questions:
            kept.append(record | dict(context=context, question=question, answers=answers))
    return kept


def further(records: Records, asked: Mapping[str, Sequence[Written]]) -> Iterator[dict[str, Any]]:
    """Records of questions that were written to contexts of other records."""
    contexts = {record["context"]: record["source"] for record in records}
    for context, source in contexts.items():
        for one in asked.get(opening(context), ()):
            answers = [one_line(one.answer)]
            yield dict(context=context, question=one.question, answers=answers, source=source)


def contexts_of(records: Iterable[dict[str, Any]], longest: bool) -> list[Context]:
    """One context for each text, with all its questions, the longest or shortest answers first."""
    asked: dict[str, list[tuple[str, list[str]]]] = {}
    for record in records:
        answers = [shortest(record["question"], answer) for answer in record["answers"]]
        pair = record["question"], sorted(answers, key=len, reverse=longest)
        asked.setdefault(record["context"], []).append(pair)
    return [Context.of(text, pairs) for text, pairs in asked.items()]


def grouped(records: Records, rng: random.Random) -> Iterator[AskedDocument]:
    """Documents of contexts that are alike, from one source each."""
    for start, (kind, least, most) in KINDS.items():
        of_source = (one for one in records if one["source"].startswith(start))
        contexts = contexts_of(of_source, longest=kind == SENTENCES)
        for group in alike.groups([context.text for context in contexts], least, most, rng):
            together = [contexts[index] for index in group]
            if kind == SENTENCES:
                yield of_sentences(kind, together, rng)
                yield from (AskedDocument(SENTENCE, one.text, one.questions) for one in together)
            else:
                yield document(kind, together, ["", *["\n\n"] * (len(together) - 1)])


def of_sentences(kind: str, sentences: Sequence[Context], rng: random.Random) -> AskedDocument:
    """A document whose contexts are sentences: some of them make a paragraph."""
    texts = [sentence.text for sentence in sentences]
    clear = [
        chosen(sentence, texts[:place] + texts[place + 1 :])
        for place, sentence in enumerate(sentences)
    ]
    gaps, left = [""], rng.randint(*PARAGRAPH)
    for _ in sentences[1:]:
        left -= 1
        gaps.append(" " if left else "\n\n")
        left = left or rng.randint(*PARAGRAPH)
    return document(kind, clear, gaps)


def made_up(records: Records, rng: random.Random) -> Iterator[AskedDocument]:
    """Short made-up stories, each its own document; all of it is evidence: the facts follow on."""
    stories = [record for record in records if record["source"].startswith(MADE_UP)]
    for record in rng.sample(stories, min(MOST_MADE_UP, len(stories))):
        context = Context.of(record["context"], [(record["question"], record["answers"][:1])])
        whole = ((0, len(context.text)),)
        asked = tuple(replace(one, evidence=whole) for one in context.questions)
        yield AskedDocument(MADE_UP, context.text, asked)


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path, help="JSON lines (also .xz)")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines (.jsonl.xz)")
    parser.add_argument("--without", type=Path, nargs="*", default=[], help="evaluation records")
    parser.add_argument("--more", type=Path, help="tab-separated questions to their contexts")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    evaluated = [record for path in given.without for record in read_records(path)]
    records = usable(read_records(given.records), evaluated)
    if given.more:
        records += [*further(records, read_written(given.more))]
    documents = [*grouped(records, rng), *made_up(records, rng)]
    write(given.out, (one for one in documents if one.questions))


if __name__ == "__main__":
    main()
