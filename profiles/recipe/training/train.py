"""Trains a model: one command, one GPU, a fixed time.

Worker processes make the sequences; the GPU never waits for them. The learning rate follows the
clock: a short rise, a plateau, a fall at the end. Every two minutes the model is exported, and with
--init a run goes on from an export. Prints losses, and the share of answers predicted right, by
kind of task.
"""

import argparse
import json
import multiprocessing
import os
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from longctx.profiles.recipe import settings
from longctx.profiles.recipe.data import haystacks
from longctx.profiles.recipe.data.documents.document import TEXT
from longctx.profiles.recipe.data.sequences import Sequences
from longctx.profiles.recipe.training import export
from longctx.profiles.recipe.training.model import Batch, Config, Model
from longctx.profiles.recipe.training.optim import Muon

PAIRS = 16  # most pointing pairs per sequence
NEAR, POINT = 0.1, 0.1  # weights of the contrastive losses
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that prepare.py wrote")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--settings", type=Path, default=settings.TINY)
    parser.add_argument("--out", type=Path, required=True, help="folder for the export")
    parser.add_argument("--init", type=Path, help="folder of an export to go on from")
    parser.add_argument(
        "--seconds", type=float, default=480, help="training time, compilation aside"
    )
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument(
        "--fall", type=float, default=0.4, help="share of the time in which the rate falls"
    )
    parser.add_argument(
        "--started", type=float, default=0.0, help="0: begin with short documents; 1: do not"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--export-every", type=float, default=120)
    parser.add_argument("--config", type=json.loads, default={}, help="sizes that differ, as JSON")
    return parser.parse_args()


def collate(made: Sequences, batch: int, length: int, progress: float) -> tuple[Arrays, list[Any]]:
    """A batch as arrays (see model.Batch), and (row, start, end, kind) of its answers."""
    ids = np.zeros((batch, length + 1), np.int32)
    weights = np.zeros((batch, length), np.float32)
    positions = np.zeros((batch, length), np.int32)
    asks = np.zeros((batch, 6), np.int32)
    pairs = np.zeros((PAIRS * batch, 4), np.int32)
    asks[:, 0] = pairs[:, 0] = -1
    used, answers = 0, []
    for row in range(batch):
        tokens, weight, position, asked, paired, answered = made.sequence(length + 1, progress)
        ids[row], weights[row], positions[row] = tokens, weight[1:], position[:-1]
        if asked:
            asks[row] = (row, *made.rng.choice(asked))
        chosen = made.rng.sample(paired, min(len(paired), PAIRS))
        for pair in chosen:
            pairs[used] = (row, *pair)
            used += 1
        answers += [(row, start, end, kind) for start, end, kind in answered]
    return (ids, weights, positions, asks, pairs), answers


def work(
    corpus: haystacks.Corpus, args: argparse.Namespace, number: int, progress: Any, out: Queue
) -> None:
    """A worker: makes batches forever."""
    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    made = Sequences(corpus, tokenizer, args.seed * 1000 + number, settings.load(args.settings))
    while True:
        out.put(collate(made, args.batch, args.length, progress.value))


def feed(ready: Queue, device: str) -> Iterator[tuple[Batch, np.ndarray, list[Any]]]:
    """Batches, moved to the device ahead of time, with their weights and answers."""
    moved: queue.Queue[Any] = queue.Queue(4)

    def move() -> None:
        while True:
            arrays, answers = ready.get()
            tensors = [torch.from_numpy(array) for array in arrays]
            if device == "cuda":
                tensors = [tensor.pin_memory() for tensor in tensors]
            moved.put((tensors, arrays[1], answers))

    threading.Thread(target=move, daemon=True).start()
    while True:
        tensors, weights, answers = moved.get()
        ids, weight, position, asks, pairs = (
            tensor.to(device, non_blocking=True) for tensor in tensors
        )
        yield Batch(ids.long(), weight, position, asks.long(), pairs.long()), weights, answers


class Watch:
    """Collects what a log line shows."""

    def __init__(self) -> None:
        self.right: dict[str, list[bool]] = defaultdict(list)
        self.text: list[float] = []

    def see(self, seen: torch.Tensor, weights: np.ndarray, answers: list[Any]) -> None:
        """Adds a batch; seen: (B, T, 2) as `Model.losses` gives it."""
        entropy, hit = seen.float().cpu().numpy().transpose(2, 0, 1)
        self.text.append(float(entropy[np.isclose(weights, TEXT)].mean()))
        for row, start, end, kind in answers:
            self.right[kind].append(bool(hit[row, start - 1 : end - 1].all()))

    def line(self) -> str:
        """Nats per token of text, and the share of right answers by kind; then resets."""
        kinds = [f"{kind} {np.mean(hits):.2f}" for kind, hits in sorted(self.right.items())]
        shown = f"text {np.mean(self.text):.3f} | " + ", ".join(kinds)
        self.right.clear()
        self.text.clear()
        return shown


def rate_at(step: int, share: float, args: argparse.Namespace) -> float:
    """The learning rate: up in 100 steps, then constant, then down to a fiftieth."""
    fall = max(0.02, (1 - share) / args.fall) if share > 1 - args.fall else 1.0
    return args.rate * min(1.0, (step + 1) / 100) * fall


def train(args: argparse.Namespace, ready: Queue, progress: Any) -> None:
    """The training loop."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_flash_sdp(False)  # cuDNN's attention is faster at these shapes
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    config = Config(**{**settings.load(args.settings).sizes, **args.config})
    model = (export.from_llama(args.init, config) if args.init else Model(config)).to(device)
    print(f"{sum(w.numel() for w in model.parameters()) / 1e6:.1f}M parameters", flush=True)
    losses: Callable[..., Any] = torch.compile(model.losses) if device == "cuda" else model.losses
    muon = Muon(model, compiled=device == "cuda")
    norms = [w for w in model.parameters() if w.dim() == 1]
    groups = [
        dict(params=[model.embed_tokens.weight], weight_decay=0.01),
        dict(params=norms, weight_decay=0.0),
    ]
    adam = torch.optim.AdamW(groups, lr=args.rate, betas=(0.9, 0.95), eps=1e-10)
    watch, batches = Watch(), feed(ready, device)
    step, begun, first, exported = 0, time.time(), None, time.time()
    while True:
        share = (time.time() - first) / args.seconds if first else 0.0
        if share >= 1:
            break
        progress.value = max(share, args.started)
        batch, weights, answers = next(batches)
        with torch.autocast(device, torch.bfloat16):
            text, near, point, seen = losses(batch)
            loss = text + NEAR * near + POINT * point
        loss.backward()
        torch.nn.utils.clip_grad_norm_([model.embed_tokens.weight, *norms], 1.0)
        rate = rate_at(step, share, args)
        for group in adam.param_groups:
            group["lr"] = rate
        muon.step(rate, decay=0.05)
        adam.step()
        model.zero_grad(set_to_none=True)
        step += 1
        if step % 10 == 0:
            watch.see(seen, weights, answers)
        if step == 3:  # everything is compiled
            first = time.time()
            print(f"compiled in {first - begun:.0f} s", flush=True)
        if step % 100 == 0:
            speed = (step - 3) * args.batch * args.length / (time.time() - first)
            print(
                f"step {step} {time.time() - first:.0f}s rate {rate:.5f} loss {text.item():.3f} "
                f"near {near.item():.3f} point {point.item():.3f} {speed / 1e3:.0f}k/s "
                f"queue {ready.qsize()} {watch.line()}",
                flush=True,
            )
        if time.time() - exported > args.export_every:
            export.save(model, args.out)
            exported = time.time()
    export.save(model, args.out)
    print(
        f"done: {step} steps, {step * args.batch * args.length / 1e6:.0f}M tokens, "
        f"{time.time() - begun:.0f} s",
        flush=True,
    )


def main() -> None:
    """Starts the workers, trains, stops the workers."""
    args = arguments()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    corpus = haystacks.load(args.data)
    context = multiprocessing.get_context(
        "fork"
    )  # workers share the corpus; CUDA starts after the fork
    progress, ready = context.Value("d", args.started), context.Queue(maxsize=24)
    workers = [
        context.Process(target=work, args=(corpus, args, number, progress, ready), daemon=True)
        for number in range(args.workers)
    ]
    for worker in workers:
        worker.start()
    train(args, ready, progress)
    for worker in workers:
        worker.terminate()
    os._exit(0)  # the feeding thread never ends by itself


if __name__ == "__main__":
    main()
