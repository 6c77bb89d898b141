"""Asks a reader an evaluation's questions over given passages, and writes what it points at.

A file has a line of JSON for each question: `question`, `answers`, `passages` (each `text` and, if
it has one, `context`) and whatever else; the answer has the same lines with `pointed`: for each
passage its score for "not here" and its best spans.
"""

import argparse
import json
import lzma
import random
import string
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from longctx.profiles.recipe.reader.examples import Passage
from longctx.profiles.recipe.reader.model import Pointer
from longctx.profiles.recipe.reader.packing import MPNET, Item, item

LONGEST = 30  # tokens of an answer
SPANS = 3  # of a passage


class Reader:
    """A trained reader with its tokenizer."""

    def __init__(self, weights: Path, tokenizer: str, layers: int, device: str):
        self.device = device
        self.model = Pointer(layers)
        self.model.load(weights)
        self.model.to(device).eval()
        self.tokenizer = Tokenizer.from_file(tokenizer)
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    @torch.inference_mode()
    def point(self, question: str, passages: Sequence[Passage]) -> list[dict[str, Any]]:
        """What it points at in each passage."""
        asked = self.tokenizer.encode(question, add_special_tokens=False).ids
        items = [item(self.tokenizer, MPNET, asked, one) for one in passages]
        read = [one for one in items if one]
        size = (max(len(one.ids) for one in read) + 31) // 32 * 32
        ids, segments = (torch.zeros(len(read), size, dtype=torch.int64) for _ in range(2))
        for row, one in enumerate(read):
            ids[row, : len(one.ids)] = torch.tensor(one.ids)
            segments[row, : len(one.ids)] = 1
        places = torch.arange(size).expand(len(read), size)
        inputs = [one.to(self.device) for one in (ids, places, segments)]
        with torch.autocast(self.device, torch.bfloat16):
            logits = self.model(*inputs).float().cpu()
        return [
            pointed(row, one, passage.text)
            for row, one, passage in zip(logits, read, passages, strict=True)
        ]


def pointed(logits: Tensor, one: Item, text: str) -> dict[str, Any]:
    """The best spans of a passage that do not overlap, and how likely each side is nowhere."""
    end = len(one.ids) - 1
    starts, ends = logits[one.passage : end, 0], logits[one.passage : end, 1]
    scores = starts[:, None] + ends[None, :]
    apart = torch.arange(len(ends))[None, :] - torch.arange(len(starts))[:, None]
    scores = scores.masked_fill((apart < 0) | (apart >= LONGEST), -torch.inf)
    spans = []
    for _ in range(SPANS):
        at = int(scores.argmax())
        low, high = divmod(at, len(ends))
        score = scores[low, high].item()
        if score == -torch.inf:
            break
        begin, until = one.offsets[low][0], one.offsets[high][1]
        spans.append([text[begin:until], begin, until, round(score, 3)])
        scores[: high + 1, low:] = -torch.inf
    null = (logits[0, 0] + logits[0, 1]).item()
    sums = starts.logsumexp(0) + ends.logsumexp(0)
    return {"null": round(null, 3), "sum": round(sums.item(), 3), "spans": spans}


def plain(text: str) -> str:
    """SQuAD's form of an answer: lower case, no marks, no articles, single spaces."""
    lower = "".join(" " if mark in string.punctuation else mark for mark in text.lower())
    return " ".join(word for word in lower.split() if word not in ("a", "an", "the"))


def exact_and_f1(answer: str, keys: Sequence[str]) -> tuple[float, float]:
    """Exact match and F1 of an answer, by the best of its keys."""
    own = plain(answer)
    exact = max(own == plain(key) for key in keys)
    best = 0.0
    for key in keys:
        words, theirs = own.split(), plain(key).split()
        shared = sum((Counter(words) & Counter(theirs)).values())
        if shared:
            best = max(best, 2 * shared / (len(words) + len(theirs)))
    return float(exact), best


def squad(reader: Reader, path: Path) -> None:
    """Prints exact match and F1 alone, and among seven other paragraphs."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    contexts = list(dict.fromkeys(record["context"] for record in records))
    rng = random.Random(1)
    sums = [0.0] * 4
    for record in records:
        others = rng.sample([one for one in contexts if one != record["context"]], 7)
        passages = [Passage("", text, None) for text in (record["context"], *others)]
        read = reader.point(record["question"], passages)
        best = max(read, key=lambda one: one["spans"][0][3] - one["null"])
        for at, one in ((0, read[0]), (2, best)):
            exact, f1 = exact_and_f1(one["spans"][0][0], record["answers"])
            sums[at] += exact
            sums[at + 1] += f1
    alone, alone_f1, among, among_f1 = (one / len(records) for one in sums)
    print(
        f"squad {len(records)}: alone {alone:.3f} / {alone_f1:.3f}, "
        f"among 8 {among:.3f} / {among_f1:.3f}",
        flush=True,
    )


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--squad", type=Path)
    parser.add_argument("--questions", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    reader = Reader(chosen.weights, chosen.tokenizer, chosen.layers, chosen.device)
    if chosen.squad:
        squad(reader, chosen.squad)
    for path in chosen.questions:
        began, count = time.time(), 0
        opened = lzma.open if path.suffix == ".xz" else open
        with (
            opened(path, "rt", encoding="utf-8") as file,
            (chosen.out / path.name.removesuffix(".xz")).open("w") as out,
        ):
            for line in file:
                asked = json.loads(line)
                given = [
                    Passage(one.get("context", ""), one["text"], None)
                    for one in asked.pop("passages")
                ]
                asked["pointed"] = reader.point(asked["question"], given) if given else []
                out.write(json.dumps(asked, ensure_ascii=False) + "\n")
                count += 1
        each = (time.time() - began) / max(1, count) * 1000
        print(f"{path.name}: {count} questions, {each:.0f} ms each", flush=True)


if __name__ == "__main__":
    main()
