"""The model as it is trained: a Llama in plain torch, and the three losses of a step.

The same weights load in transformers (export.py renames them). Besides the weighted next-token loss
there are two contrastive losses, both position-free: retrieval heads learn to point from an answer
to its place in the document, embedding heads to bring a question near the sentence that answers it.
Knows nothing of tasks.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FAR = -1e4  # added to a score to mask it


@dataclass(frozen=True)
class Config:
    """Sizes; head 0 of `embedding_layers` and `retrieval_layers` gets the contrastive losses."""

    vocab: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    theta: float
    epsilon: float
    window: int
    embedding_layers: tuple[int, ...]
    retrieval_layers: tuple[int, ...]


@dataclass
class Batch:
    """Sequences and what to learn from them.

    Attributes:
        ids: (B, T + 1) tokens.
        weights: (B, T) weight of predicting each next token.
        positions: (B, T) positions of the tokens, not always contiguous.
        asks: (Q, 6) row, question start and end, needle start and end, document start; row -1
            is padding.
        pairs: (P, 4) row, token that predicts an answer token, its place in the document,
            document start; row -1 is padding.
    """

    ids: Tensor
    weights: Tensor
    positions: Tensor
    asks: Tensor
    pairs: Tensor


class Norm(nn.Module):
    """RMS norm in float32."""

    def __init__(self, width: int, epsilon: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Normalises the last dimension."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        return (wide * scale * self.weight).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: x (B, H, T, D), cos and sin (B, 1, T, D)."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


class Block(nn.Module):
    """One layer; also returns its position-free head 0: query and key, (B, T, D) each."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = c = config
        self.input_layernorm = Norm(c.width, c.epsilon)
        self.post_attention_layernorm = Norm(c.width, c.epsilon)
        self.sizes = [c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim]
        self.qkv = nn.Linear(c.width, sum(self.sizes), bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.width, bias=False)
        self.gate_up = nn.Linear(c.width, 2 * c.hidden, bias=False)
        self.down_proj = nn.Linear(c.hidden, c.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, T, width) -> x, query and key of head 0."""
        batch, length, _ = x.shape
        parts = self.qkv(self.input_layernorm(x)).split(self.sizes, dim=-1)
        q, k, v = (y.view(batch, length, -1, self.config.head_dim).transpose(1, 2) for y in parts)
        mixed = F.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        x = x + self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
        gate, up = self.gate_up(self.post_attention_layernorm(x)).chunk(2, dim=-1)
        return x + self.down_proj(F.silu(gate) * up), q[:, 0], k[:, 0]


class Model(nn.Module):
    """A Llama with tied embeddings."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab, config.width)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = Norm(config.width, config.epsilon)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=0.02 / (math.sqrt(2 * config.layers) if deep else 1))

    def forward(self, ids: Tensor, positions: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """ids, positions (B, T) -> last hidden states, head 0's query and key of every layer."""
        half = torch.arange(0, self.config.head_dim, 2, device=ids.device, dtype=torch.float32)
        angles = positions.float()[..., None] * self.config.theta ** (-half / self.config.head_dim)
        angles = torch.cat([angles, angles], dim=-1)[:, None]
        x = self.embed_tokens(ids)
        if torch.is_autocast_enabled(ids.device.type):
            x = x.to(torch.bfloat16)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        heads = []
        for layer in self.layers:
            x, query, key = layer(x, cos, sin)
            heads.append((query, key))
        return self.norm(x), heads

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The three losses, and (B, T, 2): per token, cross-entropy and if it was predicted."""
        hidden, heads = self(batch.ids[:, :-1], batch.positions)
        targets = batch.ids[:, 1:]
        logits = F.linear(hidden, self.embed_tokens.weight).float()
        entropy = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        entropy = entropy.view_as(targets)
        text = (entropy * batch.weights).sum() / batch.weights.sum()
        taps = [heads[layer][0] for layer in self.config.embedding_layers]
        near = sum(nearness(tap, batch) for tap in taps) / len(taps)
        ends = [heads[layer] for layer in self.config.retrieval_layers]
        point = sum(pointing(query, key, batch) for query, key in ends) / len(ends)
        seen = torch.stack([entropy, (logits.argmax(-1) == targets).float()], dim=-1).detach()
        return text, near, point, seen


def context(batch: Batch, rows: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """(N, B*T): token m is a negative of item n: its document before `ends`, others' haystack."""
    size, length = batch.positions.shape
    row = torch.arange(size * length, device=rows.device) // length
    column = torch.arange(size * length, device=rows.device) % length
    before = F.pad(batch.weights[:, :-1], (1, 0)).flatten()  # of the token itself, as a prediction
    haystack = (before > 0.2) & (before < 1)
    own = row[None] == rows[:, None]
    inside = (column[None] >= starts[:, None]) & (column[None] < ends[:, None])
    return torch.where(own, inside, haystack[None])


def nearness(query: Tensor, batch: Batch, words: int = 24) -> Tensor:
    """Loss of a question's cosine to its needle against everything else; query (B, T, D)."""
    rows, ask, ask_end, needle, needle_end, start = batch.asks.unbind(1)
    valid = (rows >= 0).float()
    rows = rows.clamp(min=0)
    unit = F.normalize(query.float(), dim=-1).to(query.dtype)
    index = ask[:, None] + torch.arange(words, device=ask.device)
    inside = index < ask_end[:, None]
    asked = unit[rows[:, None], index.clamp(max=query.shape[1] - 1)]  # (Q, words, D)
    flat = unit.flatten(0, 1)
    scores = 20 * (asked.flatten(0, 1) @ flat.T).float().view(len(rows), words, -1)
    best = torch.logsumexp(scores + FAR * ~inside[..., None], dim=1)  # (Q, B*T)
    column = torch.arange(flat.shape[0], device=ask.device)
    offset = column[None] - rows[:, None] * query.shape[1]
    right = ((offset >= needle[:, None]) & (offset < needle_end[:, None])).float()
    every = torch.logsumexp(best + FAR * ~context(batch, rows, start, ask), dim=1)
    count = right.sum(1).clamp(min=1)
    loss = -((best - every[:, None]) * right).sum(1) / count - count.log()
    return (loss * valid).sum() / valid.sum().clamp(min=1)


def pointing(query: Tensor, key: Tensor, batch: Batch) -> Tensor:
    """Cross-entropy of q·k from an answer's token to its place; query and key (B, T, D)."""
    rows, token, place, start = batch.pairs.unbind(1)
    valid = (rows >= 0).float()
    rows = rows.clamp(min=0)
    scores = (query[rows, token] @ key.flatten(0, 1).T).float() / math.sqrt(query.shape[-1])
    right = scores.gather(1, (rows * query.shape[1] + place)[:, None])[:, 0]
    every = torch.logsumexp(scores + FAR * ~context(batch, rows, start, token), dim=1)
    return ((every - right) * valid).sum() / valid.sum().clamp(min=1)
