"""Answers of the tuned model to many prompts at once, greedy or drawn; for making questions."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.profiles.recipe.tuning.model import MATRICES, NORMS, Tuned, Weights, rms, rotated

ROWS = {"cuda": 400_000, "cpu": 4_000}  # tokens of a batch, prompts and answers
LIKELIEST = 40  # tokens among which one is drawn


class Writer:
    """Writes answers with a model's weights as they are now.

    Args:
        model: the tuned model.
        end: the token that ends an answer.
    """

    def __init__(self, model: Tuned, end: int):
        self._model, self._end = model, end
        with torch.no_grad():
            self._weights: Weights = model.merged()

    @torch.no_grad()
    def write(
        self, prompts: Sequence[np.ndarray], most: int, temperature: float = 0.0
    ) -> list[list[int]]:
        """Tokens of the answers, without their end.

        Args:
            prompts: tokens of each.
            most: tokens of an answer.
            temperature: 0: the likeliest token; else one of the 40 likeliest is drawn.
        """
        order = sorted(range(len(prompts)), key=lambda number: len(prompts[number]))
        found: list[list[int]] = [[] for _ in prompts]
        device = self._model.embedding.device
        limit = ROWS[device.type]
        while order:
            longest = len(prompts[order[-1]])
            count = max(1, limit // (longest + most))
            batch, order = order[-count:], order[:-count]
            rows = self._batch([prompts[number] for number in batch], most, temperature)
            for number, row in zip(batch, rows, strict=True):
                found[number] = row[: row.index(self._end)] if self._end in row else row
        return found

    def _batch(self, prompts: list[np.ndarray], most: int, temperature: float) -> list[list[int]]:
        device, length = self._model.embedding.device, max(map(len, prompts))
        ids = torch.zeros(len(prompts), length, dtype=torch.long)
        for row, prompt in zip(ids, prompts, strict=True):
            row[: len(prompt)] = torch.from_numpy(prompt.astype(np.int64))
        ends = torch.tensor([len(prompt) for prompt in prompts], device=device)
        caches: list[tuple[Tensor, Tensor]] = []
        places = torch.arange(length, device=device).expand(len(prompts), -1)
        states = self._through(ids.to(device), places, caches, length + most)
        token = self._next(states[torch.arange(len(prompts)), ends - 1], temperature)
        written, done = [token], token == self._end
        for step in range(most - 1):
            if step % 4 == 0 and bool(done.all()):
                break
            states = self._through(token[:, None], (ends + step)[:, None], caches, 0)
            token = self._next(states[:, 0], temperature)
            written.append(token)
            done |= token == self._end
        return torch.stack(written, 1).tolist()

    def _next(self, states: Tensor, temperature: float) -> Tensor:
        logits = self._model.logits(states).float()
        if not temperature:
            return logits.argmax(-1)
        best, tokens = logits.topk(LIKELIEST)
        drawn = torch.multinomial((best / temperature).softmax(-1), 1)
        return tokens.gather(1, drawn)[:, 0]

    def _through(
        self, ids: Tensor, places: Tensor, caches: list[tuple[Tensor, Tensor]], room: int
    ) -> Tensor:
        """States (B, T, width) after all layers; `room` tokens: a cache is begun."""
        states = F.embedding(ids, self._model.embedding)
        cos, sin = (part.transpose(1, 2) for part in self._turned(places))
        for number in range(self._model.layers):
            own = [self._weights[name][number] for name in (*NORMS, *MATRICES)]
            if room:
                shape = (
                    len(ids),
                    own[3].shape[0] // self._model.head_dim,
                    room,
                    self._model.head_dim,
                )
                caches.append((states.new_zeros(shape), states.new_zeros(shape)))
            states = self._layer(states, cos, sin, places, caches[number], own)
        return states

    def _turned(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, 1, head_dim) cosine and sine."""
        parts = self._model.turn(places.reshape(-1))
        first, second = (part.unflatten(0, places.shape) for part in parts)
        return first, second

    def _layer(
        self,
        states: Tensor,
        cos: Tensor,
        sin: Tensor,
        places: Tensor,
        cache: tuple[Tensor, Tensor],
        own: list[Tensor],
    ) -> Tensor:
        """One layer; keys and values go to the cache. Heads stand before tokens: (B, H, T, D)."""
        before, after, wq, wk, wv, wo, gate, up, down = own
        size, eps = self._model.head_dim, self._model.eps
        normed = rms(states, before, eps)
        q, k, v = (
            F.linear(normed, w).unflatten(-1, (-1, size)).transpose(1, 2) for w in (wq, wk, wv)
        )
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        if states.shape[1] > 1:
            for held, new in zip(cache, (k, v), strict=True):
                held[:, :, : new.shape[2]] = new
            read = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            rows = torch.arange(len(states), device=states.device)
            for held, new in zip(cache, (k, v), strict=True):
                held[rows, :, places[:, 0]] = new[:, :, 0]
            seen = torch.arange(cache[0].shape[2], device=states.device) <= places
            grouped = q[:, :, 0].unflatten(1, (k.shape[1], -1))  # a key head's queries in a row
            read = F.scaled_dot_product_attention(grouped, *cache, attn_mask=seen[:, None, None])
            read = read.flatten(1, 2)[:, :, None]
        states = states + F.linear(read.transpose(1, 2).flatten(2), wo)
        normed = rms(states, after, eps)
        return states + F.linear(F.silu(F.linear(normed, gate)) * F.linear(normed, up), down)
