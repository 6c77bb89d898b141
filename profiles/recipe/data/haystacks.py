"""The text that needles are hidden in, as tokens: books, code, logs, paragraphs, shuffled pieces.

Haystacks are slices of prepared arrays, so that making one costs next to nothing. Knows nothing of
needles.
"""

import bisect
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from longctx.profiles.recipe.settings import Settings

Ids = np.ndarray
SHARES = {
    "prose": 0.46,
    "code": 0.14,
    "logs": 0.13,
    "pieces": 0.13,
    "paragraphs": 0.1,
    "repeated": 0.04,
}


@dataclass(frozen=True)
class Corpus:
    """What prepare.py wrote, in memory shared by workers."""

    prose: Ids
    code: Ids
    logs: Ids
    asked: list[list[Any]]
    pools: dict[str, list[str]]
    records: list[dict[str, Any]]


def group_records(lines: list[dict[str, str]]) -> list[dict[str, Any]]:
    """One entry per context: context, source, asked = [(question, answer), ...]."""
    grouped: dict[str, dict[str, Any]] = {}
    for line in lines:
        entry = dict(context=line["context"], source=line["source"], asked=[])
        grouped.setdefault(line["context"], entry)["asked"].append(
            (line["question"], line["answer"])
        )
    return [entry for entry in grouped.values() if len(entry["context"]) < 6000]


def load(folder: Path) -> Corpus:
    """Reads the folder that prepare.py wrote."""

    def lines(name: str) -> list[Any]:
        with (folder / name).open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    pools = json.loads((folder / "pools.json").read_text("utf-8"))
    arrays = [np.load(folder / f"{name}.npy") for name in ("prose", "code", "logs")]
    return Corpus(*arrays, lines("asked.jsonl"), pools, group_records(lines("qa.jsonl")))


class Haystacks:
    """Makes haystacks of a given number of tokens."""

    def __init__(
        self, corpus: Corpus, tokenizer: Tokenizer, rng: random.Random, settings: Settings
    ):
        self.corpus, self.tokenizer, self.rng, self.settings = corpus, tokenizer, rng, settings
        self.bos, self.eos = map(tokenizer.token_to_id, settings.special[:2])
        self.starts = [entry[0] for entry in corpus.asked]
        ends = (".", "!", "?", '."', '?"', '!"', ".”", "!”", "?”")
        marks = {tokenizer.token_to_id(mark) for mark in ends}
        vocabulary = tokenizer.get_vocab()
        self.lines = {
            i for token, i in vocabulary.items() if "Ċ" in token
        }  # tokens with a line end
        self.stops = self.lines | (marks - {None})

    def encode(self, text: str) -> list[int]:
        """A text's ids."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def slice(self, source: Ids, count: int) -> Ids:
        """`count` tokens from anywhere."""
        at = self.rng.randrange(len(source) - count)
        return source[at : at + count].astype(np.int64)

    def prose(self, count: int) -> Ids:
        """Running text from one book."""
        return self.slice(self.corpus.prose, count)

    def make(self, count: int) -> tuple[Ids, str]:
        """A haystack of any kind, and its kind."""
        kind = self.rng.choices(list(SHARES), list(SHARES.values()))[0]
        if count == 0:
            return np.zeros(0, np.int64), kind
        if kind in {"prose", "code", "logs"}:
            return self.slice(getattr(self.corpus, kind), count), kind
        parts: list[Ids] = []
        if kind == "repeated":
            piece = self.prose(self.rng.randint(12, 60))
            parts = [piece] * (count // len(piece) + 1)
        low, high = self.rng.choice([(24, 64), (16, 256), (100, 600)])
        while sum(map(len, parts)) < count:
            if kind == "pieces":
                source = self.rng.choice(
                    [self.corpus.prose, self.corpus.prose, self.corpus.code, self.corpus.logs]
                )
                parts.append(self.slice(source, self.rng.randint(low, high)))
            else:
                record = self.rng.choice(self.corpus.records)
                parts.append(
                    np.array(self.encode(self.rng.choice(["\n", "\n\n", " "]) + record["context"]))
                )
        return np.concatenate(parts)[:count].astype(np.int64), kind

    def asked_prose(self, count: int, wanted: int) -> tuple[Ids, list[list[Any]]]:
        """Running text with mined questions, at most `wanted`, with offsets into it."""
        anchor = self.rng.choice(self.corpus.asked)
        low = max(0, anchor[1] - count)
        start = self.rng.randint(low, max(low, min(anchor[0], len(self.corpus.prose) - count)))
        inside = []
        for index in range(bisect.bisect_left(self.starts, start), len(self.starts)):
            first, last, question, answer = self.corpus.asked[index]
            if first >= start + count:
                break
            if last <= start + count:
                inside.append([first - start, last - start, question, answer])
        chosen = self.rng.sample(inside, min(wanted, len(inside)))
        return self.corpus.prose[start : start + count].astype(np.int64), chosen

    def cut(self, ids: Ids, kind: str, reach: int = 60) -> int:
        """A place to put a needle: mostly after a sentence or line, else anywhere."""
        at = self.rng.randint(0, len(ids))
        stops = self.lines if kind in {"code", "logs"} else self.stops
        if self.rng.random() < 0.9:
            for place in range(at, min(at + reach, len(ids))):
                if place == 0 or int(ids[place - 1]) in stops:
                    return place
        return at
