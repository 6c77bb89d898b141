"""Haystacks: prose, code or logs from files, in pieces cut at line or sentence ends.

Consecutive pieces with at least a given number of tokens are taken from a random place;
`fitting.py` makes documents of exact lengths from them. Knows nothing of needles and questions.
"""

import gzip
import lzma
import random
import re
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from longctx.core.common.errors import UsageError

LIMIT = 12 << 20  # characters read per haystack kind; more would not vary the cases
LONGEST = 512  # tokens of a piece; longer lines are data, not text
BATCH = 4096  # pieces tokenized at a time
OPENERS: dict[str, Callable] = {".xz": lzma.open, ".gz": gzip.open}
# A sentence ends after a longer word (not "Mr."), or with its paragraph.
SENTENCE = re.compile(
    r"(?<=[a-z]{3})[.!?][\"'\u201d\u2019)]*\s+(?=[\"'\u201c\u2018(]?[A-Z])|\n\s*\n"
)


class Haystack:
    """Text of one kind, to take consecutive pieces from.

    Args:
        name: `prose` is cut into sentences, anything else into lines.
        paths: files (also .xz and .gz) or folders of them.
        backend: counts tokens.
        seed: decides the order of files.

    Raises:
        UsageError: no text in these paths.
    """

    def __init__(self, name: str, paths: list[Path], backend: Tokenizer, seed: int):
        self.name = name
        split = sentences if name == "prose" else _lines
        texts = read_texts(paths, seed, LIMIT)
        pieces = [piece for text in texts for piece in split(text.rstrip() + "\n")]
        counts = np.array(list(_counts(backend, pieces)), dtype=np.int64)
        self._pieces = [p for p, count in zip(pieces, counts, strict=True) if count <= LONGEST]
        self._counts = counts[counts <= LONGEST]
        self._ends = self._counts.cumsum()
        if not self._pieces:
            raise UsageError(f"no text for {name} haystacks", f"{paths}", "Name other files.")

    def take(self, tokens: int, rng: random.Random) -> list[str]:
        """The fewest consecutive pieces that have at least `tokens` tokens.

        Raises:
            UsageError: the whole haystack has fewer.
        """
        if self._ends[-1] < tokens:
            raise UsageError(
                f"{self.name} haystacks have {self._ends[-1]:,} tokens",
                f"a document needs {tokens:,}",
                "Name more files.",
            )
        first = int(np.searchsorted(self._ends, tokens))
        last = rng.randint(first, len(self._pieces) - 1)
        start = int(np.searchsorted(self._ends, self._ends[last] - tokens, side="right"))
        return self._pieces[start : last + 1]


def read_texts(paths: list[Path], seed: int, limit: int) -> Iterator[str]:
    """Texts of files and of the files in folders, shuffled, up to `limit` characters in all.

    Files that are not UTF-8 text are skipped and listed on standard error.

    Raises:
        UsageError: a path does not exist.
    """
    files = [file for path in paths for file in _files(path)]
    random.Random(seed).shuffle(files)
    for file in files:
        try:
            with OPENERS.get(file.suffix, open)(file, "rt", encoding="utf-8") as stream:
                text = stream.read(limit)
        except UnicodeDecodeError:
            print(f"left out {file}: not UTF-8 text", file=sys.stderr)
            continue
        limit -= len(text)
        yield text
        if limit <= 0:
            return


def sentences(text: str) -> list[str]:
    """Sentences with the white space after them; joined, they give the text."""
    ends = [match.end() for match in SENTENCE.finditer(text)]
    cuts = [0, *ends, len(text)]
    return [text[a:b] for a, b in pairwise(cuts) if a < b]


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise UsageError(f"no file or folder {str(path)!r}", "", "Check the path.")
    found = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [file for file in found if file.is_file()]


def _counts(backend: Tokenizer, pieces: list[str]) -> Iterator[int]:
    for start in range(0, len(pieces), BATCH):
        batch = backend.encode_batch_fast(pieces[start : start + BATCH], add_special_tokens=False)
        yield from map(len, batch)
