"""A pretrained Llama whose weights change little: a low-rank adapter, and a few matrices in full.

Written for training: sequences are packed into one row (`packed.py`), and a step merges the
adapter into the weights once. Equal to transformers' own model, which a test holds.
"""

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from longctx.core.model.files import ModelFiles
from longctx.core.model.merge import WHOLE, A, B
from longctx.profiles.recipe.tuning.attention import attention
from longctx.profiles.recipe.tuning.packed import Packed

MATRICES = (
    *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)
NORMS = "input_layernorm", "post_attention_layernorm"
Weights = dict[str, list[Tensor]]  # a layer's matrix or norm each


class Tuned(nn.Module):
    """A Llama with an adapter.

    Args:
        files: the model, with tied embeddings and no biases.
        rank: of the adapter; 0: all matrices are trained in full.
        whole: names of matrices that are trained in full.
        dtype: of the merged weights and of the states.
    """

    def __init__(self, files: ModelFiles, rank: int, whole: list[str], dtype: torch.dtype):
        super().__init__()
        config, state = files.config, load_file(files.loadable("fp32") / "model.safetensors")
        self.dtype, self.rank = dtype, rank
        self.layers: int = config.num_hidden_layers
        self.head_dim: int = config.head_dim
        self.eps: float = config.rms_norm_eps
        self.theta = float(config.rope_parameters["rope_theta"])
        self.run: Callable[..., Tensor] = layer
        self.whole = {name: index for index, name in enumerate(whole)}
        self.embedding = _kept(self, "embedding", state["model.embed_tokens.weight"].to(dtype))
        self.norm = _kept(self, "norm", state["model.norm.weight"].to(dtype))
        for name in NORMS:
            _kept(self, _field(name), _stacked(state, name, self.layers).to(dtype))
        self.a, self.b, self.full = nn.ParameterDict(), nn.ParameterDict(), nn.ParameterList()
        for name in MATRICES:
            base = _stacked(state, name, self.layers)
            if rank:
                _kept(self, _field(name), base)
                self._start_adapter(_field(name), base)
            else:
                self.a[_field(name)] = nn.Parameter(base)
        self.full.extend(nn.Parameter(state[name + WHOLE].float()) for name in whole)

    def _start_adapter(self, field: str, base: Tensor) -> None:
        count, rows, columns = base.shape
        first = torch.empty(count, self.rank, columns).uniform_(-1, 1) * columns**-0.5
        self.a[field] = nn.Parameter(first)
        self.b[field] = nn.Parameter(torch.zeros(count, rows, self.rank))

    def merged(self) -> Weights:
        """The weights of every layer, in the number format of the states."""
        merged = {name: [*getattr(self, _field(name))] for name in NORMS}
        for name in MATRICES:
            field = _field(name)
            base = self.a[field] if not self.rank else getattr(self, field)
            changed = base + torch.bmm(self.b[field], self.a[field]) if self.rank else base
            merged[name] = [*changed.to(self.dtype)]
        for name, index in self.whole.items():
            number, _, matrix = name.removeprefix("model.layers.").partition(".")
            merged[matrix][int(number)] = self.full[index].to(self.dtype)
        return merged

    def embedded(self, packed: Packed) -> Tensor:
        """(N, width) the states before the first layer."""
        return F.embedding(packed.ids, self.embedding)

    def through(
        self,
        states: Tensor,
        packed: Packed,
        weights: Weights,
        first: int,
        end: int,
        dropout: float = 0.0,
    ) -> Tensor:
        """The states after layers [first, end), (N, width); `dropout` as of `layer`."""
        turn = self.turn(packed.positions)
        for number in range(first, end):
            own = [weights[name][number] for name in (*NORMS, *MATRICES)]
            bounds = packed.bounds, packed.longest
            states = self.run(states, *turn, *bounds, self.head_dim, self.eps, dropout, *own)
        return states

    def turn(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of the rotary positions, (N, 1, head_dim) each."""
        half = torch.arange(0, self.head_dim, 2, device=positions.device) / self.head_dim
        angle = positions[:, None].float() * self.theta**-half
        angle = torch.cat([angle, angle], -1)[:, None]
        return angle.cos().to(self.dtype), angle.sin().to(self.dtype)

    def queries(self, states: Tensor, weights: Weights, number: int, heads: list[int]) -> Tensor:
        """Unit vectors of a layer's query heads before rotation, from the states before the layer.

        Args:
            states: (N, width).
            weights: from `merged`.
            number: of the layer.
            heads: numbers of query heads.

        Returns:
            (N, heads * head_dim) float32; the product of two rows is the heads' mean cosine.
        """
        normed = rms(states, weights[NORMS[0]][number], self.eps)
        q = F.linear(normed, weights[MATRICES[0]][number]).unflatten(-1, (-1, self.head_dim))
        return F.normalize(q[:, heads].float(), dim=-1).flatten(1) / len(heads) ** 0.5

    def logits(self, states: Tensor) -> Tensor:
        """(n, vocabulary) of states after the last layer."""
        return F.linear(rms(states, self.norm, self.eps), self.embedding)

    def save(self, path: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        """Writes the adapter, or all matrices, in the form that `core/model/merge.py` reads."""
        found: dict[str, Tensor] = {}
        for name in MATRICES:
            for number in range(self.layers):
                full = f"model.layers.{number}.{name}"
                if full in self.whole:
                    found[full + WHOLE] = self.full[self.whole[full]]
                elif self.rank:
                    found[full + A] = self.a[_field(name)][number]
                    found[full + B] = self.b[_field(name)][number]
                else:
                    found[full + WHOLE] = self.a[_field(name)][number]
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({k: v.detach().to(dtype).contiguous().cpu() for k, v in found.items()}, path)

    @torch.no_grad()
    def load(self, path: Path) -> None:
        """Reads what `save` wrote."""
        found = load_file(path)
        for name in MATRICES:
            for number in range(self.layers):
                full = f"model.layers.{number}.{name}"
                if full in self.whole:
                    self.full[self.whole[full]].copy_(found[full + WHOLE])
                elif self.rank:
                    self.a[_field(name)][number].copy_(found[full + A])
                    self.b[_field(name)][number].copy_(found[full + B])
                else:
                    self.a[_field(name)][number].copy_(found[full + WHOLE])


def rms(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root mean square norm."""
    wide = states.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, True) + eps)).to(states.dtype) * weight


def rotated(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Heads (N, H, D) at their positions."""
    first, second = states.chunk(2, -1)
    return states * cos + torch.cat([-second, first], -1) * sin


def layer(
    states: Tensor,
    cos: Tensor,
    sin: Tensor,
    bounds: Tensor,
    longest: int,
    head_dim: int,
    eps: float,
    dropout: float,
    *weights: Tensor,
) -> Tensor:
    """One layer over packed sequences.

    Args:
        states: (N, width).
        cos, sin: from `Tuned.turn`.
        bounds, longest: see `Packed`.
        head_dim, eps: of the model.
        dropout: share of what attention and MLP add that is left out; 0 after training.
        weights: both norms, then MATRICES.

    Returns:
        (N, width).
    """
    before, after, wq, wk, wv, wo, gate, up, down = weights
    normed = rms(states, before, eps)
    q, k, v = (F.linear(normed, w).unflatten(-1, (-1, head_dim)) for w in (wq, wk, wv))
    read = attention(rotated(q, cos, sin), rotated(k, cos, sin), v, bounds, longest)
    states = states + F.dropout(F.linear(read.flatten(1), wo), dropout, dropout > 0)
    normed = rms(states, after, eps)
    added = F.linear(F.silu(F.linear(normed, gate)) * F.linear(normed, up), down)
    return states + F.dropout(added, dropout, dropout > 0)


def _kept(module: nn.Module, name: str, value: Tensor) -> Tensor:
    module.register_buffer(name, value, persistent=False)
    return value


def _field(name: str) -> str:
    return name.replace(".", "_")


def _stacked(state: dict[str, Tensor], name: str, layers: int) -> Tensor:
    return torch.stack([state[f"model.layers.{i}.{name}{WHOLE}"].float() for i in range(layers)])
