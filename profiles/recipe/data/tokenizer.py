"""Trains a byte-level BPE tokenizer.

Digits stand alone, so that numbers are copied digit by digit; letters join with the space before
them. Knows nothing of the model or its tasks: text in, `tokenizer.json` out.
"""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from longctx.profiles.recipe.data.corpus import read_texts
from longctx.profiles.recipe.settings import TINY, Settings, load

PIECES = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+"  # as GPT's
)


def train(texts: Iterable[str], settings: Settings, size: int) -> Tokenizer:
    """A tokenizer of `size` entries, the special tokens first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=settings.special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=settings.longest,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def paragraphs(folders: list[Path], share: float) -> Iterator[str]:
    """The paragraphs of every file under `folders`, or an even `share` of them."""
    step = max(1, round(1 / share))
    for folder in folders:
        for text in read_texts(folder):
            yield from (part + "\n\n" for part in text.split("\n\n")[::step])


def main() -> None:
    """Command line: `tokenizer.py FOLDER... --out tokenizer.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of .txt, .txt.xz, .py files")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--settings", type=Path, default=TINY)
    parser.add_argument("--share", type=float, default=1.0, help="share of the paragraphs to read")
    args = parser.parse_args()
    settings = load(args.settings)
    texts = paragraphs(args.folders, args.share)
    train(texts, settings, settings.sizes["vocab"]).save(str(args.out))


if __name__ == "__main__":
    main()
