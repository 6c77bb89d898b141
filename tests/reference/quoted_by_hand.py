"""The likeliest stretch of a small text, literally: every stretch in every spelling, run anew."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

WORD = re.compile(r"[a-z0-9é]+")  # of texts that have nothing else but spaces


@dataclass(frozen=True)
class PlainText:
    """What the search needs of a text, as `Quotable` says it."""

    data: bytes
    begins: list[int]
    ends: frozenset[int]


def plain_text(*passages: str) -> PlainText:
    """Passages of words and single spaces."""
    data, begins, ends = b"", [], []
    for passage in passages:
        for match in WORD.finditer(passage):
            begins.append(len(data) + len(passage[: match.start()].encode()))
            ends.append(len(data) + len(passage[: match.end()].encode()))
        data += passage.encode() + b"\xff"
    return PlainText(data, begins, frozenset(ends))


def stretches(*passages: str) -> set[str]:
    """Every stretch from the start of a word to the end of the same or a later one."""
    found = set()
    for passage in passages:
        words = [*WORD.finditer(passage)]
        for number, first in enumerate(words):
            found |= {passage[first.start() : last.end()] for last in words[number:]}
    return found


def spellings(text: bytes, tokens: dict[int, bytes], longest: int) -> Iterator[tuple[int, ...]]:
    """Every path of at most `longest` tokens whose bytes are the text's."""
    if not text:
        yield ()
    elif longest:
        for number, spelled in tokens.items():
            if text.startswith(spelled):
                for rest in spellings(text[len(spelled) :], tokens, longest - 1):
                    yield (number, *rest)


@torch.inference_mode()
def scores(
    model: Any, prompt: list[int], paths: list[tuple[int, ...]], ends: list[int]
) -> dict[tuple[int, ...], float]:
    """log p(path) + log p(an end | path) of paths after a prompt, each by a run of the whole."""
    found = {}
    for length in {*map(len, paths)}:
        batch = [path for path in paths if len(path) == length]
        ids = torch.tensor([[*prompt, *path] for path in batch])
        logits = model(ids, use_cache=False).logits[:, len(prompt) - 1 :].double()
        for path, steps in zip(batch, logits.log_softmax(-1), strict=True):
            own = sum(float(steps[place, token]) for place, token in enumerate(path))
            found[path] = own + float(steps[length, ends].logsumexp(0))
    return found


def best_by_hand(
    model: Any,
    prompt: list[int],
    passages: tuple[str, ...],
    tokens: dict[int, bytes],
    ends: list[int],
    longest: int,
) -> tuple[str, float]:
    """The likeliest stretch with its score, over all its spellings, with a space before or not."""
    texts = {
        path: text
        for text in stretches(*passages)
        for before in (b"", b" ")
        for path in spellings(before + text.encode(), tokens, longest)
    }
    found = scores(model, prompt, [*texts], ends)
    best = max(found, key=lambda path: found[path])
    return texts[best], found[best]


def byte_level(words: str, vocab_size: int = 300) -> Any:
    """A byte-level tokenizer, as a transformers one would hold it."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([words], trainer)
    return SimpleNamespace(backend_tokenizer=backend)


def sentence_pieces(words: str) -> Any:
    """A tokenizer as converted from SentencePiece: a mark for spaces, and bytes to fall back on."""
    mark = "\u2581"
    pieces = ["<s>", "</s>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), mark]
    letters = sorted({letter for letter in words if not letter.isspace()})
    merges = [(mark, letter) for letter in letters[:8]]
    merges += [(a, b) for a, b in pairwise(words) if (a + b).isalnum()]
    merges = [*dict.fromkeys(merges)]
    names = [*pieces, *letters, *(a + b for a, b in merges)]
    vocab = {name: number for number, name in enumerate(dict.fromkeys(names))}
    backend = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend(mark), normalizers.Replace(" ", mark)]
    )
    backend.decoder = decoders.Sequence(
        [
            *(decoders.Replace(mark, " "), decoders.ByteFallback(), decoders.Fuse()),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<s>", "</s>", "<unk>"])
    return SimpleNamespace(backend_tokenizer=backend)
