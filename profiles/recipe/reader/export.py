"""Writes a trained reader as it is shipped: matrices in 8 bits of few levels, the rest in float32.

Fewer levels compress better in a wheel. Rows of words that no training text has (unused ones, and
scripts other than Latin and Greek) are zero.

    python -m longctx.profiles.recipe.reader.export READER OUT --tokenizer tokenizer.json
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file

EXACT = ("head.weight", "encoder.relative_attention_bias.weight")
WORDS, PLACES = "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"
FULL = 127  # levels on each side of zero
CLIPPED = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of a row's largest number, that the last level means
LATIN, GREEK, SIGNS = 0x250, range(0x370, 0x400), range(0x2000, 0x2300)


def quantized(values: np.ndarray, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """A matrix (R, C) as int8, and a float32 scale for each row, by the least squared error."""
    most = np.maximum(np.abs(values).max(axis=1), 1e-12)
    best = np.full(len(values), np.inf)
    rounded, scales = np.zeros(values.shape, np.int8), np.zeros(len(values), np.float32)
    for part in CLIPPED if levels < FULL else (1.0,):
        scale = (most * part / levels).astype(np.float32)
        own = np.clip(np.rint(values / scale[:, None]), -levels, levels)
        error = np.square(own * scale[:, None] - values).sum(axis=1)
        better = error < best
        rounded[better], scales[better] = own[better].astype(np.int8), scale[better]
        best = np.minimum(best, error)
    return rounded, scales


def untrained(tokenizer: Path) -> list[int]:
    """The words that are unused or of other scripts."""
    vocabulary: dict[str, int] = json.loads(tokenizer.read_text("utf-8"))["model"]["vocab"]
    return [number for word, number in vocabulary.items() if _is_foreign(word)]


def _is_foreign(word: str) -> bool:
    codes = map(ord, word.removeprefix("##"))
    other = any(code >= LATIN and code not in GREEK and code not in SIGNS for code in codes)
    return word.startswith("[unused") or other


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reader", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--levels", type=int, default=FULL, help="of matrices, each side of zero")
    parser.add_argument("--words", type=int, default=FULL, help="the same, of the table of words")
    chosen = parser.parse_args()
    made: dict[str, np.ndarray] = {}
    for name, value in load_file(chosen.reader).items():
        values = value.to(torch.float32).numpy()
        if values.ndim == 1 or name in EXACT:
            made[name] = values
            continue
        levels = {WORDS: chosen.words, PLACES: FULL}.get(name, chosen.levels)
        if name == WORDS:
            values[untrained(chosen.tokenizer)] = 0
        made[name], made[f"{name}.scale"] = quantized(values, levels)
    save_file(made, chosen.out)


if __name__ == "__main__":
    main()
