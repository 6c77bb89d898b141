"""What the reader points at in passages: the best stretches of each, or that it is not there.

Passages are read side by side in batches of fixed shapes, so that what is said of one does not
depend on the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from longctx.core.common.device import choose_dtype
from longctx.core.common.interrupts import check
from longctx.core.reader import weights
from longctx.core.reader.mpnet import MPNet

FIRST, LAST = 0, 2  # special tokens
STEP = 32  # lengths are filled up to a multiple of this
BATCH = {"cpu": 4, "cuda": 16}  # passages that are read side by side
SPANS = 3  # stretches of a passage
READ = {"cpu": 32, "cuda": 64}  # passages that are read for a question
LANGUAGES = ("en", "")  # ISO 639-1 codes of what it was trained on; "": unknown, as of code or logs
_SPELLED = 0x0400  # from here on its vocabulary has characters at best: Cyrillic and on


@dataclass(frozen=True)
class ToRead:
    """A passage to read.

    Attributes:
        text: itself.
        context: what stands above it; it is read and not pointed at.
    """

    text: str
    context: str = ""


@dataclass(frozen=True)
class Pointed:
    """A stretch of a passage that may be the answer.

    Attributes:
        passage: which.
        start, end: characters of its text.
        score: how well an answer starts and ends there.
        margin: the same, less the score of "not here".
    """

    passage: int
    start: int
    end: int
    score: float
    margin: float


@dataclass(frozen=True)
class _Encoded:
    ids: list[int]
    first: int  # of the passage's tokens
    offsets: list[tuple[int, int]]


class Reader:
    """The reader on a device.

    Attributes:
        dtype: in which it computes.
    """

    def __init__(self, device: str):
        config = weights.config()
        self._device, self.dtype = device, choose_dtype("auto", device)
        self._network = MPNet(config.layers, config.heads, weights.loaded(device, self.dtype))
        self._batch = BATCH.get(device.partition(":")[0], BATCH["cpu"])

    def point(
        self,
        question: str,
        passages: Sequence[ToRead],
        on_read: Callable[[int], None] = lambda count: None,
    ) -> list[Pointed]:
        """The best stretches of passages.

        Args:
            question: the user's words; of long ones the last tokens count.
            passages: texts; of long ones the first tokens count.
            on_read: gets the number of passages after each batch.

        Raises:
            LongctxError: the reader's files are missing or damaged.
            KeyboardInterrupt: Ctrl-C.
        """
        encoded = _encoded(question, passages)
        found: list[Pointed] = []
        order = sorted(range(len(encoded)), key=lambda n: _filled(len(encoded[n].ids)))
        start = 0
        while start < len(order):
            check()
            length = _filled(len(encoded[order[start]].ids))
            batch = [
                n
                for n in order[start : start + self._batch]
                if _filled(len(encoded[n].ids)) == length
            ]
            logits = self._logits([encoded[n] for n in batch], length)
            for row, number in zip(logits, batch, strict=True):
                found += _spans(row, encoded[number], number)
            start += len(batch)
            on_read(len(batch))
        return sorted(found, key=lambda one: (one.passage, -one.score))

    def _logits(self, batch: Sequence[_Encoded], length: int) -> Tensor:
        """(B, T, 2) on the CPU."""
        ids = torch.full((self._batch, length), LAST, dtype=torch.long)
        lengths = torch.ones(self._batch, dtype=torch.long)
        for row, one in enumerate(batch):
            ids[row, : len(one.ids)] = torch.tensor(one.ids)
            lengths[row] = len(one.ids)
        logits = self._network(ids.to(self._device), lengths.to(self._device))
        return logits[: len(batch)].cpu()


@cache
def reader(device: str) -> Reader:
    """The reader, loaded once for each device."""
    return Reader(device)


def to_be_read(device: str) -> int:
    """How many passages are read for a question there."""
    return READ.get(device.partition(":")[0], READ["cpu"])


def knows(text: str, language: str) -> bool:
    """Whether the reader can read a text: its language, and the script of most of its letters.

    Args:
        text: a passage.
        language: of its document, as an ISO 639-1 code; "" for unknown.
    """
    letters = [character for character in text if character.isalpha()]
    spelled = sum(ord(letter) < _SPELLED for letter in letters)
    return language in LANGUAGES and 2 * spelled >= len(letters)


def _filled(length: int) -> int:
    return -(-length // STEP) * STEP


def _encoded(question: str, passages: Sequence[ToRead]) -> list[_Encoded]:
    """Question and passages as tokens."""
    config, tokenizer = weights.config(), weights.tokenizer()
    texts = [question, *(one.context for one in passages), *(one.text for one in passages)]
    read = tokenizer.encode_batch(texts, add_special_tokens=False)
    asked = read[0].ids[-config.question :]
    above, own = read[1 : len(passages) + 1], read[len(passages) + 1 :]
    made = []
    for context, passage in zip(above, own, strict=True):
        head = [FIRST, *asked, LAST, LAST, *context.ids[-config.context :]]
        room = config.longest - len(head) - 1
        ids = [*head, *passage.ids[:room], LAST]
        made.append(_Encoded(ids, len(head), passage.offsets[:room]))
    return made


def _spans(logits: Tensor, one: _Encoded, number: int) -> list[Pointed]:
    """The best stretches of a passage that do not overlap."""
    end = len(one.ids) - 1
    starts, ends = logits[one.first : end, 0], logits[one.first : end, 1]
    if not len(starts):
        return []
    nowhere = float(logits[0].sum())
    apart = torch.arange(len(ends))[None, :] - torch.arange(len(starts))[:, None]
    scores = starts[:, None] + ends[None, :]
    scores[(apart < 0) | (apart >= weights.config().answer)] = -torch.inf
    found = []
    for _ in range(SPANS):
        low, high = divmod(int(scores.argmax()), len(ends))
        score = float(scores[low, high])
        if score == -torch.inf:
            break
        begin, until = one.offsets[low][0], one.offsets[high][1]
        found.append(Pointed(number, begin, until, score, score - nowhere))
        scores[: high + 1, low:] = -torch.inf
    return found
