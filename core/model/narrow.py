"""Reading in fp8: a chunk's products in eight-bit numbers, with a scale for each row.

The products of a layer are those of `chunk_pass.py`: to queries, keys and values, out of attention,
gate and up, and down. Weights are rounded once, a scale for each row of a matrix; states in the
pass that computes them, a scale for each token. Sums are of float32 and rounded to bf16. Attention,
norms, rotation, embedding table, head, and a mixture of experts stay in bf16, as do chunks of fewer
than `FEWEST` tokens, and everything that answers a question.
"""

import copy
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from longctx.core.common.device import dtype_name
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.model.adapter import Decoder
from longctx.core.model.chunk_parts import Around, ChunkLayer, ChunkParts, Gated
from longctx.core.model.chunk_pass import (
    FEWEST,
    OWN,
    VARIABLE,
    ChunkPass,
    inner,
    wanted,
)
from longctx.core.model.fused_weights import Matrix
from longctx.kernels.door import (
    Scaled,
    ScaledRows,
    gated_row_scaled,
    residual_norm,
    residual_row_scaled,
    row_scaled,
)

FULL, NAME = "full", "fp8"  # the values of --precision
FORM = 1  # of the computation; raise it when its bits change
CAPABILITY = (8, 9)  # of NVIDIA GPUs that multiply such numbers
SIZE = 16  # rows and columns of a matrix are multiples of it
WITHIN = 0.02  # of the largest entry, between the product here and its definition
REMEDY = "Leave it out: --precision full reads in the number format of --dtype."


class Narrow(NamedTuple):
    """A projection in eight bits.

    Attributes:
        weight: (out, in) in float8_e4m3fn.
        scales: (1, out) float32, one for each row.
        bias: (out,), not rounded; None: none.
    """

    weight: Tensor
    scales: Tensor
    bias: Tensor | None


def narrowed(matrix: Matrix) -> Narrow:
    """A projection (out, in) in eight bits."""
    values, scales = row_scaled(matrix.weight.detach())
    return Narrow(values, scales.view(1, -1), matrix.bias)


def scaled_product(rows: ScaledRows, matrix: Narrow) -> Tensor:
    """Rows (T, in) through a projection, (T, out) in bfloat16."""
    found = torch.ops.aten._scaled_mm(
        rows.values, matrix.weight.t(), scale_a=rows.scales, scale_b=matrix.scales,
        out_dtype=torch.bfloat16, use_fast_accum=True,
    )  # fmt: skip
    return found if matrix.bias is None else found.add_(matrix.bias)


def product_as_defined(rows: ScaledRows, matrix: Narrow) -> Tensor:
    """What `scaled_product` approximates, in float32: the values times their scales, multiplied."""
    weight = matrix.weight.float() * matrix.scales.view(-1, 1)
    found = (rows.values.float() * rows.scales) @ weight.t()
    return found if matrix.bias is None else found + matrix.bias.float()


class NarrowPass(ChunkPass):
    """The layers of a decoder, for chunks, with products of eight-bit numbers."""

    def first(self, state: Tensor, norm: Scaled | None) -> Tensor | ScaledRows:
        """As `first_norm`, in eight bits."""
        if norm is None:
            return state
        return residual_row_scaled(state, None, None, 1.0, norm)[1]

    def product(self, states: Tensor | ScaledRows, matrix: Any) -> Tensor:
        """States (T, E) through a projection, rounded to eight bits first unless they are."""
        rows = states if isinstance(states, ScaledRows) else row_scaled(states)
        return scaled_product(rows, matrix)

    def summed(
        self, state: Tensor, added: Tensor, around: Around, then: Scaled | None, product: bool
    ) -> tuple[Tensor, Any]:
        """As of `ChunkPass`; the norm before a product in eight bits."""
        if then is None or not product:
            return residual_norm(state, added, around.after, around.factor, then)
        return residual_row_scaled(state, added, around.after, around.factor, then)

    def inner(self, part: ChunkLayer, states: Any) -> Tensor:
        """What the MLP makes of states (T, E)."""
        mlp = part.inner
        if not isinstance(mlp, Gated):
            return inner(part, states)
        gated = gated_row_scaled(self.product(states, mlp.gate_up), mlp.activation)
        return self.product(gated, mlp.down)


def in_eight_bits(parts: ChunkParts) -> ChunkParts:
    """The parts of a model with all products in eight bits."""
    return ChunkParts(tuple(_layer(layer) for layer in parts.layers), parts.norm)


def _layer(layer: ChunkLayer) -> ChunkLayer:
    mlp = layer.inner
    if isinstance(mlp, Gated):
        made = narrowed(mlp.gate_up), narrowed(mlp.down)
        mlp = Gated(*cast(tuple[Matrix, Matrix], made), mlp.activation)
    qkv, out = cast(tuple[Matrix, Matrix], (narrowed(layer.qkv), narrowed(layer.out)))
    return ChunkLayer(layer.attention, qkv, layer.q_norm, layer.k_norm, out, layer.mlp, mlp)


# --- who can -------------------------------------------------------------------------------------


def chosen(precision: str | None, device: str, dtype: torch.dtype, several: bool) -> str | None:
    """The precision to read in: `fp8`, or None for that of the dtype.

    Args:
        precision: as the user names it; None: not at all.
        device, dtype: of the model.
        several: its layers are on several devices.

    Raises:
        UsageError: there is no such precision, or it cannot be used so.
    """
    if precision in (None, FULL):
        return None
    if precision != NAME:
        raise UsageError(f"unknown precision {precision!r}", "", f"Use {FULL} or {NAME}.")
    why = refusal(device, dtype, several)
    if why:
        raise UsageError(f"cannot read with --precision {NAME}", why, REMEDY)
    return NAME


def refusal(device: str, dtype: torch.dtype, several: bool = False) -> str | None:
    """Why a device does not multiply eight-bit numbers; None if it does."""
    place = torch.device(device)
    if several:
        return "it is for one device, and --devices names several"
    if place.type != "cuda" or torch.version.cuda is None:
        least = ".".join(map(str, CAPABILITY))
        return f"it needs an NVIDIA GPU of compute capability {least} or more, not {place.type}"
    if (found := torch.cuda.get_device_capability(place)) < CAPABILITY:
        name, found = torch.cuda.get_device_name(place), ".".join(map(str, found))
        return f"{name} has compute capability {found}, and 8.9 is the first that can"
    if dtype != torch.bfloat16:
        return f"its products are rounded to bf16, and --dtype is {dtype_name(dtype)}"
    if not wanted(place):
        return f"{VARIABLE}={OWN} has the model's own layers read"
    return None


@torch.inference_mode()
def reader_of(decoder: Decoder) -> Decoder:
    """The same model, for reading in eight bits; both share everything but what is rounded.

    Raises:
        LongctxError: its layers are made of other parts, or are too narrow; or this device
            multiplies wrongly, or not at all. No document can be read so.
    """
    known = decoder.chunk_pass()
    if known is None:
        why = f"the layers of {decoder.config.model_type} are made of other parts"
        raise LongctxError(f"cannot read with this model in --precision {NAME}", why, REMEDY)
    for layer in known.parts.layers:
        _require_sizes(layer)
    parts = in_eight_bits(known.parts)
    _require_right(parts.layers[0])
    reader = copy.copy(decoder)
    reader.read_by(NarrowPass(parts, decoder.layers, known.embed))
    return reader


def _require_sizes(layer: ChunkLayer) -> None:
    mlp = [layer.inner.gate_up, layer.inner.down] if isinstance(layer.inner, Gated) else []
    for matrix in (layer.qkv, layer.out, *mlp):
        if any(n % SIZE for n in matrix.weight.shape):
            shape = " by ".join(map(str, matrix.weight.shape))
            why = f"it has a matrix of {shape}, and fp8 products take multiples of {SIZE}"
            raise LongctxError(f"cannot read with this model in --precision {NAME}", why, REMEDY)


def _require_right(layer: ChunkLayer) -> None:
    """Compares a product with its definition: drivers and libraries differ in what they can."""
    matrix, why = cast(Narrow, layer.qkv), ""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(FEWEST, matrix.weight.shape[1], generator=generator)
    rows = row_scaled(states.to(matrix.weight.device, torch.bfloat16))
    expected = product_as_defined(rows, matrix)
    try:
        found = scaled_product(rows, matrix).float()
        if not float((found - expected).abs().max()) <= WITHIN * float(expected.abs().max()):
            why = "its products of eight-bit numbers are wrong"  # `not <=`: NaN is refused too
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        why = f"{error}".splitlines()[0]
    if why:
        raise LongctxError(f"this device cannot read with --precision {NAME}", why, REMEDY)


def with_precision(kernels: str | None, precision: str | None) -> str | None:
    """What computes chunks, as `computed_by` says it, and in which precision."""
    return kernels if precision is None else f"{kernels or OWN}-{precision}-{FORM}"
