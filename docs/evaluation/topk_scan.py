"""The exact top-k scan: its speed on this GPU, and which keys the published rule does not find.

    python docs/evaluation/topk_scan.py
    python docs/evaluation/topk_scan.py --keys DOCUMENT.txt --tokens 30000 --every 4

Prints JSON. Speed is of 512 queries, and of one, of Llama-3.1-8B's heads, by CUDA events, against
a matrix product and a copy in the same run; without a GPU there is none. With --keys the bundled
model reads a document over a window of recent tokens, and each chunk of 512 queries is scanned over
all keys before it. ReAttention's published kernel offers a query only the best key of every 128;
what it loses of the exact top 4 are the keys that share their 128 with a better one.
"""

import argparse
import json
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from longctx.core.engine.setup import Setup, prepare
from longctx.core.measure.bench.baselines import Recent
from longctx.core.measure.bench.gpu_time import seconds
from longctx.core.model.adapter import Layer
from longctx.kernels import door
from longctx.kernels.topk_scan_ref import RUN, merge

H, G, D, K, QUERIES = 32, 8, 128, 4, 512
SIZES = {"64k": 1 << 16, "256k": 1 << 18, "1M": 1 << 20}
BAR, BLOCK = 0.60, 1 << 15  # share of a matrix product; keys at once of what PyTorch does
CHUNK, WINDOW = 512, 2048  # tokens read at a time, and kept


def ceilings() -> tuple[float, float]:
    """Operations a second of a bfloat16 product of 8,192³, and bytes a second of a copy."""
    a, b = torch.randn(2, 8192, 8192, dtype=torch.bfloat16, device="cuda").unbind()
    product = torch.empty_like(a)
    spent = seconds(lambda: torch.mm(a, b, out=product), 10)
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copied = seconds(lambda: target.copy_(source), 10)
    return 2 * 8192**3 / spent, 2 * source.numel() / copied


def in_torch(q: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """What PyTorch's own operators do: products in blocks of keys, and `topk` of each."""
    grouped, best = q.view(G, -1, D), None
    for start in range(0, len(keys), BLOCK):
        logits = grouped @ keys[start : start + BLOCK].permute(1, 2, 0)
        scores, index = logits.topk(K, dim=-1)
        found = scores, index + start
        best = found if best is None else merge(best, found, K)
    return best


def speed(T: int, N: int, product: float, copy: float) -> dict:
    """T queries over N keys, in bfloat16 and int8, and by PyTorch's own operators."""
    q = torch.randn(H, T, D, dtype=torch.bfloat16, device="cuda")
    keys = torch.randn(N, G, D, dtype=torch.bfloat16, device="cuda")
    small = torch.randint(-127, 128, (N, G, D), dtype=torch.int8, device="cuda")
    scales = torch.rand(N, G, device="cuda").half() / 127
    repeats, found = max(1, (1 << 20) // N) * (10 if T == 1 else 1), {}
    for name, call, size in (
        ("bfloat16", partial(door.topk_scan, q, keys, K), keys.nbytes),
        ("int8", partial(door.topk_scan, q, small, K, scales), small.nbytes + scales.nbytes),
        ("PyTorch", partial(in_torch, q, keys), keys.nbytes),
    ):
        spent = seconds(call, repeats)
        rate, read = 2 * H * T * N * D / spent, size / spent
        found[name] = {"ms": spent * 1e3}
        if T == 1:
            found[name] |= {"GB/s": read / 1e9, "of a copy's bandwidth": read / copy}
        else:
            found[name] |= {"TFLOP/s": rate / 1e12, "of a matrix product": rate / product}
            found[name]["meets the bar"] = rate >= BAR * product
    return found


class Watch(Recent):
    """A window of recent tokens that keeps every position-free key and counts what rules lose.

    Args:
        every: chunks of which one is scanned.
    """

    def __init__(self, every: int):
        super().__init__(WINDOW)
        self._every, self._chunk = every, 0
        self._keys: dict[int, list[Tensor]] = {}
        self.lost: dict[int, int] = {}
        self.chosen: dict[int, int] = {}

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Scans all keys before this chunk; then see `Recent.attend`."""
        earlier = self._keys.setdefault(layer.index, [])
        if earlier and self._chunk % self._every == 0:
            self._count(layer.index, door.topk_scan(q, torch.cat(earlier), K).keys)
        earlier.append(k.transpose(0, 1).contiguous())  # (T, G, D)
        return super().attend(layer, q, k, v)

    def go_on(self) -> None:
        """Goes on to the next chunk."""
        self._chunk += 1

    def _count(self, layer: int, index: Tensor) -> None:
        """A key is not offered where a better one of its run is among the best; index (H, T, n)."""
        runs = index // RUN
        same = runs[..., :, None] == runs[..., None, :]  # (H, T, n, n)
        lost = same.tril(-1).any(dim=-1)
        self.lost[layer] = self.lost.get(layer, 0) + int(lost.sum())
        self.chosen[layer] = self.chosen.get(layer, 0) + lost.numel()


def recall(path: Path, count: int, every: int) -> dict:
    """The share of the exact top 4 that one candidate for every 128 keys loses."""
    engine = prepare(Setup())
    text = path.read_text("utf-8")[: 8 * count]
    ids = engine.files.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    ids, watch = torch.tensor(ids[:count]), Watch(every)
    for chunk in ids.split(CHUNK):
        engine.decoder.read(chunk, watch)
        watch.go_on()
    lost = {layer: watch.lost[layer] / n for layer, n in watch.chosen.items()}
    total = sum(watch.lost.values()) / sum(watch.chosen.values())
    return {"tokens": len(ids), "every": every, "lost by layer": lost, "lost": total}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=Path, help="a text to read for what the rule loses")
    parser.add_argument("--tokens", type=int, default=30000, help="of it")
    parser.add_argument("--every", type=int, default=1, help="scan one chunk of so many")
    options = parser.parse_args()
    report: dict = {"torch": torch.__version__}
    if torch.cuda.is_available():
        product, copy = ceilings()
        report["device"] = torch.cuda.get_device_name()
        report["matrix product TFLOP/s"], report["copy GB/s"] = product / 1e12, copy / 1e9
        for T in (QUERIES, 1):
            found = {name: speed(T, N, product, copy) for name, N in SIZES.items()}
            report[f"{T} queries"] = found
    if options.keys:
        report["one candidate for every 128 keys"] = recall(
            options.keys, options.tokens, options.every
        )
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    with torch.inference_mode():
        main()
