"""The vectors of many texts, by torch.

The mean of the encoder's hidden states, of length 1 (Reimers and Gurevych, EMNLP 2019, 3), as int8.
"""

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor

from longctx.core.common.device import choose_dtype
from longctx.core.dense import weights
from longctx.core.dense.bert import Bert

BATCH = 16384  # tokens of a batch, with what fills its texts up to one length
STEP = 8  # lengths are filled up to a multiple of this


def encoded(
    texts: list[str], device: str, on_passages: Callable[[int], None] = lambda count: None
) -> Tensor:
    """The vectors of texts, (P, 384) float32 on the CPU, each of length 1.

    Args:
        texts: of each the first 256 tokens count.
        device: where to compute.
        on_passages: gets the number of texts encoded after each batch.

    Raises:
        LongctxError: the encoder's files are missing or damaged.
    """
    ids = [encoding.ids for encoding in weights.tokenizer().encode_batch_fast(texts)]
    vectors = torch.empty(len(texts), weights.WIDTH)
    for batch in _batches([len(each) for each in ids]):
        lengths = torch.tensor([len(ids[number]) for number in batch])
        padded = torch.zeros(len(batch), _filled(int(lengths.max())), dtype=torch.long)
        for row, number in enumerate(batch):
            padded[row, : lengths[row]] = torch.tensor(ids[number])
        vectors[batch] = _means(padded.to(device), lengths.to(device)).cpu()
        on_passages(len(batch))
    return vectors


def quantized(vectors: Tensor) -> dict[str, np.ndarray]:
    """Vectors (P, 384) as int8 with a float16 scale each."""
    scales = (vectors.abs().amax(dim=1) / 127).half()
    rounded = (vectors / scales.float()[:, None]).round().clamp(-127, 127).to(torch.int8)
    return {"vectors": rounded.numpy(), "scales": scales.numpy()}


@torch.inference_mode()
def _means(ids: Tensor, lengths: Tensor) -> Tensor:
    """The mean hidden state of each text, of length 1, (B, 384) float32."""
    states = _encoder(str(ids.device))(ids, lengths).float()
    inside = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
    sums = (states * inside[..., None]).sum(dim=1)
    return torch.nn.functional.normalize(sums, dim=1)


@cache
def _encoder(device: str) -> Bert:
    """The encoder on a device, in the type that it computes fastest in."""
    dtype = choose_dtype("auto", device)
    arrays = {name: torch.from_numpy(weights.whole(name)) for name in weights.names()}
    return Bert(weights.config(), {n: a.to(device, dtype) for n, a in arrays.items()})


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    """Texts of like lengths together, the longest first: a batch that fits memory fits again."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    start = 0
    while start < len(order):
        size = max(1, BATCH // _filled(lengths[order[start]]))
        yield order[start : start + size]
        start += size


def _filled(length: int) -> int:
    return -(-length // STEP) * STEP
