"""The vector of a question, by numpy: importing torch takes longer than the search.

The same network as `bert.py`, in float32, for one short text.
"""

import numpy as np
from numpy.typing import NDArray

from longctx.core.dense import weights

Floats = NDArray[np.float32]


def question_vector(words: str) -> Floats:
    """The vector of a question, (W,) float32 of length 1; its first 256 tokens count.

    Raises:
        LongctxError: the encoder's files are missing or damaged.
    """
    ids = np.array(weights.tokenizer().encode(words).ids)
    name = "embeddings.{}_embeddings.weight"
    states = weights.rows(name.format("word"), ids)
    states = states + weights.rows(name.format("position"), slice(len(ids)))
    states = _norm(states + weights.rows(name.format("token_type"), slice(1)), "embeddings.")
    for number in range(weights.config().layers):
        layer = f"encoder.layer.{number}."
        mixed = _attention(states, f"{layer}attention.self.")
        states = _added(states, mixed, f"{layer}attention.output.")
        inner = _gelu(_linear(states, f"{layer}intermediate.dense."))
        states = _added(states, inner, f"{layer}output.")
    mean = states.mean(axis=0)
    return mean / max(float(np.linalg.norm(mean)), 1e-12)


def _attention(states: Floats, name: str) -> Floats:
    """(T, W): each token's values, weighed by how well its query fits their keys."""
    heads = weights.config().heads
    query, key, value = (
        _linear(states, f"{name}{part}.").reshape(len(states), heads, -1).swapaxes(0, 1)
        for part in ("query", "key", "value")
    )
    scores = query @ key.swapaxes(1, 2) / np.float32(query.shape[-1] ** 0.5)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = shares / shares.sum(axis=-1, keepdims=True) @ value
    return mixed.swapaxes(0, 1).reshape(states.shape)


def _added(states: Floats, change: Floats, name: str) -> Floats:
    return _norm(states + _linear(change, f"{name}dense."), name)


def _linear(states: Floats, name: str) -> Floats:
    return states @ weights.whole(f"{name}weight").T + weights.whole(f"{name}bias")


def _norm(states: Floats, name: str) -> Floats:
    centred = states - states.mean(axis=-1, keepdims=True)
    spread = np.square(centred).mean(axis=-1, keepdims=True) + np.float32(weights.config().epsilon)
    scale, shift = (weights.whole(f"{name}LayerNorm.{part}") for part in ("weight", "bias"))
    return centred / np.sqrt(spread) * scale + shift


def _gelu(values: Floats) -> Floats:
    """x times the normal distribution's share below x, by its error function.

    The error function as in Abramowitz and Stegun, 7.1.26: within 1.5e-7.
    """
    size = np.abs(values) * np.float32(2**-0.5)
    t = 1 / (1 + np.float32(0.3275911) * size)
    terms = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    total = np.zeros_like(t)
    for term in terms:
        total = (total + np.float32(term)) * t
    erf = np.copysign(1 - total * np.exp(-size * size), values)
    return np.asarray(values * (1 + erf) / 2, np.float32)
