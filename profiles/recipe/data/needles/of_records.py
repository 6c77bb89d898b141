"""Needles from question records: texts as they are, or with other names, numbers and words.

Knows nothing of frames: a record brings its own sentences and questions.
"""

import re
from typing import Any

from longctx.profiles.recipe.data.needles.needle import Needle
from longctx.profiles.recipe.data.values.every import Values

EXCHANGED = ("nouns", "plurals", "adjectives", "verbs")


class RecordNeedles:
    """Makes needles from question records with short contexts; renames records of any length."""

    def __init__(self, values: Values, records: list[dict[str, Any]]):
        self.values, self.rng, self.records = values, values.rng, records
        self.pools = {kind: set(values.pools[kind]) for kind in EXCHANGED}
        self.known = self.pools["nouns"] | self.pools["adjectives"] | self.pools["verbs"]

    def record(self) -> Needle:
        """A sentence from a question record."""
        text, asked = self.renamed(self.rng.choice(self.records), 1)
        return Needle((text,), *asked[0], "record")

    def renamed(self, record: dict[str, Any], count: int) -> tuple[str, list[tuple[str, str]]]:
        """A record's text and some questions; in most, names, numbers and words are replaced.

        So there is no gain in memorising a record. Only words that the text shares with a question
        or an answer are replaced: where the question uses other words than the text, both stay.
        """
        asked = self.rng.sample(record["asked"], min(count, len(record["asked"])))
        text = record["context"]
        if record["source"] == "babi" or self.rng.random() < 0.2:
            return text, asked
        others = self.exchanges(text, " ".join(part for pair in asked for part in pair))
        if not others:
            return text, asked
        pattern = re.compile(r"\b(" + "|".join(map(re.escape, others)) + r")\b")

        def rename(part: str) -> str:
            return pattern.sub(lambda match: others[match[1]], part)

        return rename(text), [(rename(question), rename(answer)) for question, answer in asked]

    def exchanges(self, text: str, asked: str) -> dict[str, str]:
        """New words for some names and numbers, and for some words that text and `asked` share."""
        return self.other_names(text) | self.other_numbers(text) | self.other_words(text, asked)

    def other_names(self, text: str) -> dict[str, str]:
        """Made-up names for some capitalised words."""
        others = {}
        makers = [self.values.make_first, self.values.make_last, self.values.make_name]
        for word in sorted(set(re.findall(r"\b[A-Z][a-z]{2,}\b", text))):
            if word.lower() not in self.known and self.rng.random() < 0.6:
                others[word] = self.rng.choice(makers)()
        return others

    def other_numbers(self, text: str) -> dict[str, str]:
        """Other numbers of the same length for some numbers."""
        others = {}
        for word in sorted(set(re.findall(r"\b\d{2,7}\b", text))):
            if self.rng.random() < 0.5:
                others[word] = self.values.digits(len(word), len(word))
        return others

    def other_words(self, text: str, asked: str) -> dict[str, str]:
        """Other words from the same pool for some words that text and `asked` share."""
        others = {}
        shared = set(re.findall(r"\b[a-z]{4,}\b", text)) & set(re.findall(r"\b[a-z]{4,}\b", asked))
        for word in sorted(shared):
            pool = next((kind for kind in EXCHANGED if word in self.pools[kind]), None)
            if pool and self.rng.random() < 0.4:
                others[word] = self.values.word(pool)
        return others
