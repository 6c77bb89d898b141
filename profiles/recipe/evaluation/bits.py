"""Bits per byte of held-out text: of a model, beside byte n-grams of its training text."""

import sys
from typing import Any

import numpy as np

from longctx.core.profile.prompt import PromptEncoder
from longctx.profiles.recipe.evaluation.answers import Answerer
from longctx.profiles.recipe.evaluation.ngram import ByteNgram


def bits_per_byte(
    answerer: Answerer, prompt: PromptEncoder, held_out: list[str], train: list[str]
) -> dict[str, Any]:
    """The model's and a byte n-gram model's bits per byte on the same texts.

    The model reads each text in consecutive windows without overlap.
    """
    size = sum(len(text.encode()) for text in held_out)
    window, prefix = answerer.files.config.max_position_embeddings, prompt.prefix().numpy()
    print(f"bits per byte of {size:,} held-out bytes", file=sys.stderr, flush=True)
    ids = [np.array(answerer.backend.encode(text).ids) for text in held_out]
    bits = sum(answerer.loss(tokens, prefix, window) for tokens in ids)
    found = {"bytes": size, "tokens": sum(map(len, ids)), "window": window, "model": bits / size}
    if train:
        sample = "\n".join(train).encode()
        print(f"byte n-grams of {len(sample):,} training bytes", file=sys.stderr, flush=True)
        ngram = ByteNgram(sample)
        bits = sum(ngram.bits(text.encode()) for text in held_out)
        found |= {"train_bytes": len(sample), "ngram": bits / size}
    return found
