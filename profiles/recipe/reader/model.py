"""MPNet with two numbers for each token: how well an answer starts there, and ends there.

Song et al., NeurIPS 2020: a BERT whose attention adds a bias by distance, the same in all layers.
Rows hold several texts, which do not see each other.
"""

import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu, scaled_dot_product_attention

BUCKETS = 32  # of distances
FARTHEST = 128  # tokens, from which on all distances are one
FIRST_PLACE = 2  # in the table of places


class Layer(nn.Module):
    """Attention and a perceptron, each added to what goes in and normalised."""

    def __init__(self, width: int, heads: int, inner: int, rate: float):
        super().__init__()
        self.heads, self.rate = heads, rate
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm1 = nn.LayerNorm(width, eps=1e-5)
        self.norm2 = nn.LayerNorm(width, eps=1e-5)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, T, W) for (B, T, W), with (B, H, T, T) added to the attention's scores."""
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(*parts, attn_mask=mask.to(parts.dtype))
        mixed = self.o(mixed.transpose(1, 2).reshape(batch, length, width))
        x = self.norm1(x + dropout(mixed, self.rate, self.training))
        changed = self.down(gelu(self.up(x)))
        return self.norm2(x + dropout(changed, self.rate, self.training))


class Pointer(nn.Module):
    """The encoder and its two numbers a token.

    Args:
        layers: how many.
        width, heads, vocabulary: sizes.
        rate: of what is left out in training.
    """

    def __init__(
        self,
        layers: int,
        width: int = 768,
        heads: int = 12,
        vocabulary: int = 30527,
        rate: float = 0.1,
    ):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(514, width)
        self.norm = nn.LayerNorm(width, eps=1e-5)
        self.bias = nn.Embedding(BUCKETS, heads)
        self.layers = nn.ModuleList(Layer(width, heads, 4 * width, rate) for _ in range(layers))
        self.head = nn.Linear(width, 2)
        self.rate = rate
        self.bias.weight.requires_grad_(False)

    def forward(self, ids: Tensor, places: Tensor, segments: Tensor) -> Tensor:
        """(B, T, 2) float32 for (B, T) tokens, their places and the text each belongs to."""
        x = self.norm(self.words(ids) + self.places(places + FIRST_PLACE))
        x = dropout(x, self.rate, self.training)
        mask = self.mask(segments)
        for layer in self.layers:
            x = layer(x, mask)
        with torch.autocast(ids.device.type, enabled=False):
            return self.head(x.float())

    def mask(self, segments: Tensor) -> Tensor:
        """(B, H, T, T) bfloat16: the bias by distance, and minus infinity between two texts."""
        length = segments.shape[1]
        at = torch.arange(length, device=segments.device)
        bias = self.bias(bucket(at[None, :] - at[:, None])).permute(2, 0, 1).to(torch.bfloat16)
        apart = segments[:, None, :, None] != segments[:, None, None, :]
        return bias[None].masked_fill(apart, -torch.inf).contiguous()

    def load_published(self, path: Path) -> None:
        """Takes the weights of a published MPNet, the first layers if it has more."""
        read = {k.removeprefix("mpnet."): v.float() for k, v in load_file(path).items()}
        own = self.state_dict()
        for name, source in published(len(self.layers)).items():
            own[name] = torch.cat([read[one] for one in source])
        own["head.weight"].normal_(std=0.02)
        own["head.bias"].zero_()
        self.load_state_dict(own)

    def take(self, other: "Pointer", numbers: list[int]) -> None:
        """Takes some layers of a larger one, and all that is not a layer."""
        own = {k: v for k, v in other.state_dict().items() if not k.startswith("layers.")}
        for at, number in enumerate(numbers):
            for name, value in other.layers[number].state_dict().items():
                own[f"layers.{at}.{name}"] = value
        self.load_state_dict(own)

    def save(self, path: Path) -> None:
        """Writes it in bfloat16 with the published names and `head`."""
        own = {k: v.detach().to("cpu", torch.bfloat16) for k, v in self.state_dict().items()}
        written = {k: own[k].contiguous() for k in ("head.weight", "head.bias")}
        for name, source in published(len(self.layers)).items():
            for one, part in zip(source, own[name].chunk(len(source)), strict=True):
                written[one] = part.clone()
        save_file(written, path)

    def load(self, path: Path) -> None:
        """Reads what `save` or `export` wrote."""
        read = {k: v.float() for k, v in load_file(path).items()}
        for name in [name for name in read if f"{name}.scale" in read]:
            read[name] *= read[f"{name}.scale"][:, None]
        own = {k: read[k] for k in ("head.weight", "head.bias")}
        for name, source in published(len(self.layers)).items():
            own[name] = torch.cat([read[one] for one in source])
        self.load_state_dict(own)


def published(layers: int) -> dict[str, list[str]]:
    """The names of published weights that each of ours is made of, but for the head."""
    names = {
        "words.weight": ["embeddings.word_embeddings.weight"],
        "places.weight": ["embeddings.position_embeddings.weight"],
        "bias.weight": ["encoder.relative_attention_bias.weight"],
    }
    for kind in ("weight", "bias"):
        names[f"norm.{kind}"] = [f"embeddings.LayerNorm.{kind}"]
        for n in range(layers):
            theirs = f"encoder.layer.{n}."
            own = f"layers.{n}."
            names[f"{own}qkv.{kind}"] = [f"{theirs}attention.attn.{p}.{kind}" for p in "qkv"]
            names[f"{own}o.{kind}"] = [f"{theirs}attention.attn.o.{kind}"]
            names[f"{own}norm1.{kind}"] = [f"{theirs}attention.LayerNorm.{kind}"]
            names[f"{own}up.{kind}"] = [f"{theirs}intermediate.dense.{kind}"]
            names[f"{own}down.{kind}"] = [f"{theirs}output.dense.{kind}"]
            names[f"{own}norm2.{kind}"] = [f"{theirs}output.LayerNorm.{kind}"]
    return names


def bucket(distances: Tensor) -> Tensor:
    """The bucket of each distance: exact to 7, then by logarithm to FARTHEST; each way its own."""
    half = BUCKETS // 2
    exact = half // 2
    ahead = (distances > 0) * half  # a key behind its query
    size = distances.abs()
    scaled = torch.log(size.clamp(min=1).float() / exact) / math.log(FARTHEST / exact)
    far = (exact + (scaled * (half - exact)).long()).clamp(max=half - 1)
    return ahead + torch.where(size < exact, size, far)
