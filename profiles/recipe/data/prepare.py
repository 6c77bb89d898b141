"""Turns folders of books and code and the question records into what training reads.

Writes prose.npy, code.npy and logs.npy (token ids, uint16), asked.jsonl (questions mined from the
prose, with token offsets), qa.jsonl (records with a stated licence), pools.json (words and names
found in the books) and held.txt (the end of the last book file, never trained on).
"""

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from longctx.profiles.recipe.data.corpus import (
    chunks,
    read_records,
    read_text,
    read_texts,
    text_files,
)
from longctx.profiles.recipe.data.logs import LogFile
from longctx.profiles.recipe.data.mine import mine
from longctx.profiles.recipe.data.values.draws import Pools
from longctx.profiles.recipe.data.words import words

LEFT_OUT = ("squadshifts",)  # the bundled model was trained without them
WORDS = {
    "nouns": r"\bthe ([a-z]{3,12}) of\b",
    "adjectives": r"\bvery ([a-z]{4,12})[,.]? (?:[a-z]+ )?(?:and|man|little|old|thing)?",
    "verbs": r"\bto ([a-z]{3,10}) (?:the|a|an|his|her|them)\b",
    "plurals": r"\b(?:two|three|four|five|six|many|several|these) ([a-z]{3,12}s)\b",
    "surnames": r"\b(?:Mr|Mrs|Dr)\.? ([A-Z][a-z]{2,11})\b",
    "names": r"\b([A-Z][a-z]{2,10}) (?:said|cried|asked|replied|answered|looked|turned)\b",
    "places": r"\b(?:in|at|from|near) ([A-Z][a-z]{3,12})[,.]",
    "phrases": r"\b((?:a|an|the|his|her) [a-z]{3,} [a-z]{3,}(?: of [a-z ]{3,16}[a-z])?)[,.]",
    "clauses": r", ([a-z]+(?: [a-z]+){2,7})[,.]",
    "tails": r" ((?:in|at|on|from|to|by|with|for|near|under|after|before|during|without|through|"
    r"into|since) "
    r"(?:the|a|his|her|my|our|that|this|their|one) [a-z]+(?: [a-z]+)?)[,.;]",
    "adverbs": r"\b([a-z]{3,}ly)[,.;]",
}
LOG_FILES = 600
KEPT = {"phrases": 20_000, "clauses": 20_000, "tails": 20_000}
Counts = dict[str, Counter[str]]


def words_of(text: str) -> Counts:
    """Counts of what each pattern of `WORDS` finds in a text."""
    found = {kind: Counter(re.findall(pattern, text)) for kind, pattern in WORDS.items()}
    for kind in ("names", "places", "surnames"):
        for word in words("no_names"):
            found[kind].pop(word, None)
    return found


def pools_of(counts: Iterable[Counts]) -> dict[str, list[str]]:
    """The most frequent 2,500 entries of each kind; of phrases and clauses, 20,000."""
    total: Counts = {kind: Counter() for kind in WORDS}
    for part in counts:
        for kind, counter in part.items():
            total[kind].update(counter)
    return {
        kind: [word for word, _ in counter.most_common(KEPT.get(kind, 2500))]
        for kind, counter in total.items()
    }


def encode_prose(
    numbered: tuple[int, str], tokenizer: str
) -> tuple[np.ndarray, list[list[Any]], Counts]:
    """A chunk's ids, mined questions [first token, last + 1, question, answer], and words."""
    seed, text = numbered
    encoded = Tokenizer.from_file(tokenizer).encode(text, add_special_tokens=False)
    starts = np.array([start for start, _ in encoded.offsets])
    ids = np.array(encoded.ids, np.uint16)
    asked = []
    for record in mine(text, random.Random(seed)):
        low, high = np.searchsorted(starts, [record.start, record.end])
        asked.append([int(low), int(high), record.question, record.answer])
    return ids, asked, words_of(text)


def encode_code(text: str, tokenizer: str) -> np.ndarray:
    """A source file's ids."""
    ids = Tokenizer.from_file(tokenizer).encode(text, add_special_tokens=False).ids
    return np.array(ids, np.uint16)


def encode_logs(seed: int, tokenizer: str, pools: Pools) -> np.ndarray:
    """A made-up log file's ids."""
    text = LogFile(pools, random.Random(seed)).lines(200)
    return encode_code(text, tokenizer)


def licensed(path: Path) -> list[dict[str, str]]:
    """The question records that the bundled model was trained on."""
    kept = []
    for record in read_records(path):
        if record["source"].startswith(LEFT_OUT) or not record["answers"][0].strip():
            continue
        fields = (record["context"], record["question"], record["answers"][0])
        context, question, answer = (" ".join(field.split()) for field in fields)
        source = record["source"].split("-")[0]
        kept.append(dict(context=context, question=question, answer=answer, source=source))
    return kept


def prose_chunks(folder: Path, held: int) -> tuple[list[str], str]:
    """The books in chunks, and separately the last `held` characters of the last file."""
    texts = [read_text(path) for path in text_files(folder)]
    cut = max(0, len(texts[-1]) - held)
    texts[-1], rest = texts[-1][:cut], texts[-1][cut:]
    return [part for text in texts for part in chunks(text)], rest


def offset_questions(parts: list[tuple[np.ndarray, list[list[Any]], Counts]]) -> list[list[Any]]:
    """The parts' questions with offsets into the joined ids."""
    asked, base = [], 0
    for ids, questions, _ in parts:
        asked += [
            [low + base, high + base, question, answer] for low, high, question, answer in questions
        ]
        base += len(ids)
    return asked


def write_lines(path: Path, records: Iterable[Any]) -> None:
    """Writes one JSON value per line."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def prepare(
    books: Path, code: Path, qa: Path, tokenizer: Path, out: Path, held: int, workers: int
) -> None:
    """Writes the files that the module's docstring lists."""
    out.mkdir(parents=True, exist_ok=True)
    texts, rest = prose_chunks(books, held)
    (out / "held.txt").write_text(rest, "utf-8")
    code_parts = [part for text in read_texts(code) for part in chunks(text)]
    encode: Callable[..., Any] = partial(encode_prose, tokenizer=str(tokenizer))
    with Pool(workers) as pool:
        parts = pool.map(encode, enumerate(texts), chunksize=2)
        sources = pool.map(partial(encode_code, tokenizer=str(tokenizer)), code_parts, chunksize=8)
        pools = pools_of(words for _, _, words in parts)
        journal = partial(encode_logs, tokenizer=str(tokenizer), pools=pools)
        logs = pool.map(journal, range(LOG_FILES), chunksize=8)
    np.save(out / "prose.npy", np.concatenate([ids for ids, _, _ in parts]))
    np.save(out / "code.npy", np.concatenate(sources))
    np.save(out / "logs.npy", np.concatenate(logs))
    write_lines(out / "asked.jsonl", offset_questions(parts))
    write_lines(out / "qa.jsonl", licensed(qa))
    (out / "pools.json").write_text(json.dumps(pools), "utf-8")


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("books", "code", "qa", "tokenizer", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--held", type=int, default=4_000_000, help="characters kept from training")
    parser.add_argument("--workers", type=int, default=2)
    prepare(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
