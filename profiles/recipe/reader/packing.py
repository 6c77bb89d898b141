"""Examples as rows of tokens: several questions with passages in a row, none seeing another."""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from longctx.profiles.recipe.reader.examples import Example, Passage

ROW = 384  # tokens
QUESTION = 64  # at most
CONTEXT = 64
TRIES = 12  # questions without room before a step is full


class Marks(NamedTuple):
    """Special tokens of a vocabulary."""

    first: int
    between: tuple[int, ...]
    last: int


MPNET = Marks(0, (2, 2), 2)
BERT = Marks(101, (102,), 102)


class Item(NamedTuple):
    """A question and a passage as tokens.

    Attributes:
        ids: all.
        passage: where the passage's begin; the mark behind them is the last.
        start, end: first and last token of the answer; 0: it is not there.
        question: which question of the step it belongs to.
        offsets: the characters of the passage's tokens.
    """

    ids: list[int]
    passage: int
    start: int
    end: int
    question: int
    offsets: list[tuple[int, int]]


class Step(NamedTuple):
    """What one step reads; N tokens in `rows * ROW`, I items.

    Attributes:
        ids, places, segments: (rows, ROW) int64: tokens, their places in their item, and the
            item's number in its row; 0 where nothing stands.
        items, questions: (N,) int64, the item and question of each token; -1 where none may be
            pointed at.
        firsts: (I,) int64, the first token of each item, which means "not here".
        starts, ends: (I,) int64, tokens of the answer; the first token where it is not there.
        asked: (I,) int64, each item's question.
    """

    ids: Tensor
    places: Tensor
    segments: Tensor
    items: Tensor
    questions: Tensor
    firsts: Tensor
    starts: Tensor
    ends: Tensor
    asked: Tensor


def item(
    tokenizer: Tokenizer, marks: Marks, question: list[int], passage: Passage, number: int = 0
) -> Item | None:
    """A passage as tokens behind a question; None: its answer does not fit.

    Args:
        question: the question's tokens.
    """
    above = tokenizer.encode(passage.context, add_special_tokens=False).ids[-CONTEXT:]
    head = [marks.first, *question[:QUESTION], *marks.between, *above]
    own = tokenizer.encode(passage.text, add_special_tokens=False)
    room = ROW - len(head) - 1
    ids, offsets = own.ids, own.offsets
    start = end = 0
    if passage.answer:
        low, high = passage.answer
        inside = [n for n, (a, b) in enumerate(offsets) if b > low and a < high]
        if not inside:
            return None
        cut = max(0, inside[-1] - room // 2) if inside[-1] >= room else 0
        start, end = inside[0] - cut, inside[-1] - cut
        if start < 0:
            return None
        ids, offsets = ids[cut:], offsets[cut:]
        start, end = start + len(head), end + len(head)
    return Item([*head, *ids[:room], marks.last], len(head), start, end, number, offsets[:room])


def steps(
    examples: Iterator[Example], tokenizer: Tokenizer, marks: Marks, rows: int, rng: random.Random
) -> Iterator[Step]:
    """Steps of so many rows, filled as far as the examples allow."""
    while True:
        filling: list[list[Item]] = [[] for _ in range(rows)]
        room = [ROW] * rows
        number = missed = 0
        while missed < TRIES:
            example = next(examples)
            question = tokenizer.encode(example.question, add_special_tokens=False).ids
            read = [item(tokenizer, marks, question, one, number) for one in example.passages]
            items = [one for one in read if one]
            if not items or (example.passages[0].answer and not read[0]):
                continue
            if not _placed(items, filling, room):
                missed += 1
                continue
            number += 1
        rng.shuffle(filling)
        yield step(filling)


def _placed(items: list[Item], filling: list[list[Item]], room: list[int]) -> bool:
    """Whether all of a question's items found a row; the fullest that has room takes each."""
    left = list(room)
    rows = []
    for one in items:
        size = len(one.ids)
        fitting = [row for row, free in enumerate(left) if free >= size]
        if not fitting:
            return False
        row = min(fitting, key=left.__getitem__)
        left[row] -= size
        rows.append(row)
    for one, row in zip(items, rows, strict=True):
        filling[row].append(one)
    room[:] = left
    return True


def step(filling: Sequence[Sequence[Item]]) -> Step:
    """The tensors of rows of items."""
    rows = len(filling)
    ids, places, segments = (torch.zeros(rows, ROW, dtype=torch.int64) for _ in range(3))
    items, questions = (torch.full((rows * ROW,), -1, dtype=torch.int64) for _ in range(2))
    firsts, starts, ends, asked = [], [], [], []
    for row, own in enumerate(filling):
        at = 0
        for number, one in enumerate(own, 1):
            size = len(one.ids)
            ids[row, at : at + size] = torch.tensor(one.ids)
            places[row, at : at + size] = torch.arange(size)
            segments[row, at : at + size] = number
            begin = row * ROW + at
            items[begin] = len(firsts)
            items[begin + one.passage : begin + size - 1] = len(firsts)
            questions[begin + one.passage : begin + size - 1] = one.question
            firsts.append(begin)
            starts.append(begin + one.start)
            ends.append(begin + one.end)
            asked.append(one.question)
            at += size
    four = (torch.tensor(x, dtype=torch.int64) for x in (firsts, starts, ends, asked))
    return Step(ids, places, segments, items, questions, *four)
