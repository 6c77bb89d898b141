"""Trains a reader that points, from a published encoder or from a larger reader that teaches it."""

import argparse
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from longctx.profiles.recipe.data.asked import AskedDocument, read
from longctx.profiles.recipe.reader.examples import drawn
from longctx.profiles.recipe.reader.losses import loss
from longctx.profiles.recipe.reader.model import Pointer
from longctx.profiles.recipe.reader.packing import MPNET, Step, steps

# Of a round's questions, by kind: single sentences and made-up texts teach less than people's.
SHARES = {
    "sentence": 0.3,
    "wiki-sentences": 0.6,
    "babi": 0.25,
    "facts": 0.6,
    "log": 0.6,
    "table": 0.7,
    "mail": 0.6,
    "statement": 0.9,
    "written-book": 0.8,
}
WARM = 200  # steps in which the rate rises
LEAST = 0.02  # of the rate, at the end


class Steps(IterableDataset[Step]):
    """Steps of one worker: its own order, and its own passages."""

    def __init__(self, documents: list[AskedDocument], tokenizer: str, rows: int, seed: int):
        self.documents, self.tokenizer, self.rows, self.seed = documents, tokenizer, rows, seed

    def __iter__(self) -> Iterator[Step]:
        worker = get_worker_info()
        rng = random.Random(self.seed * 1000 + (worker.id if worker else 0))
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        tokenizer = Tokenizer.from_file(self.tokenizer)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return steps(drawn(self.documents, SHARES, rng), tokenizer, MPNET, self.rows, rng)


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("documents", type=Path, nargs="+", help="documents with questions")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--base", type=Path, help="published weights, or a reader's to go on from")
    parser.add_argument("--teacher", type=Path, help="a larger reader, whose layers it begins with")
    parser.add_argument("--teacher-layers", type=int, default=12)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=8e-5)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--attention", choices=["any", "cudnn", "efficient"], default="any")
    parser.add_argument("--out", type=Path, required=True)
    train(parser.parse_args())


def train(chosen: argparse.Namespace) -> None:
    """Trains until the seconds are over, and writes the weights."""
    began = time.time()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    documents = [one for path in chosen.documents for one in read(path) if one.questions]
    random.Random(chosen.seed).shuffle(documents)
    kinds = Counter(one.kind for one in documents for _ in one.questions)
    say(f"{len(documents)} documents, questions: {dict(kinds)}, {time.time() - began:.0f} s")
    if chosen.attention != "any":
        torch.backends.cuda.enable_cudnn_sdp(chosen.attention == "cudnn")
        torch.backends.cuda.enable_mem_efficient_sdp(chosen.attention == "efficient")
    model, teacher = models(chosen, device)
    data = Steps(documents, chosen.tokenizer, chosen.rows, chosen.seed)
    workers = chosen.workers
    loader = DataLoader(
        data,
        batch_size=None,
        num_workers=workers,
        pin_memory=device == "cuda",
        prefetch_factor=4 if workers else None,
    )
    optimizer = torch.optim.AdamW(groups(model), lr=chosen.rate, betas=(0.9, 0.98), fused=True)
    model.train()
    tokens, mean, first = 0, None, time.time()
    for number, step in enumerate(loader):
        part = (time.time() - began) / chosen.seconds
        if part >= 1:
            break
        factor = max(LEAST, 1 - part) if part > 0.1 else 1.0
        for group in optimizer.param_groups:
            group["lr"] = chosen.rate * factor * min(1, (number + 1) / WARM)
        step = Step(*(one.to(device, non_blocking=True) for one in step))
        with torch.autocast(device, torch.bfloat16):
            taught = None
            if teacher is not None:
                with torch.no_grad():
                    taught = teacher(step.ids, step.places, step.segments).float()
            logits = model(step.ids, step.places, step.segments)
        value = loss(logits.float(), step, taught)
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        tokens += int(chosen.rows * 384)
        if number % 50 == 0:
            now = value.item()
            mean = now if mean is None or number < 100 else 0.8 * mean + 0.2 * now
            seconds = time.time() - first
            filled = (step.segments > 0).float().mean().item()
            say(
                f"{number} {time.time() - began:.0f}s loss {mean:.3f} {tokens / seconds:.0f}/s "
                f"filled {filled:.2f}"
            )
        if number % 500 == 499:
            save(model, chosen, number, tokens)
    save(model, chosen, number, tokens)
    os._exit(0)  # the workers are not waited for


def models(chosen: argparse.Namespace, device: str) -> tuple[Pointer, Pointer | None]:
    """The model to train and its teacher."""
    model, teacher = Pointer(chosen.layers), None
    if chosen.teacher:
        teacher = Pointer(chosen.teacher_layers)
        teacher.load(chosen.teacher)
        last = chosen.teacher_layers - 1
        model.take(teacher, [round(n * last / (chosen.layers - 1)) for n in range(chosen.layers)])
        teacher.to(device).eval().requires_grad_(False)
    if chosen.base:
        weights = chosen.base.suffix == ".safetensors" and _is_reader(chosen.base)
        (model.load if weights else model.load_published)(chosen.base)
    model.to(device)
    if chosen.compile:
        torch._dynamo.config.cache_size_limit = 64
        for own in (model, *([teacher] if teacher else [])):
            for layer in own.layers:
                layer.compile(dynamic=False)
    return model, teacher


def _is_reader(path: Path) -> bool:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return "head.weight" in file.keys()  # noqa: SIM118 (not a mapping)


def groups(model: nn.Module) -> list[dict[str, object]]:
    """Matrices with weight decay, all else without."""
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, own in model.named_parameters():
        if own.requires_grad:
            plain = own.ndim == 2 and not name.startswith(("words", "places", "bias"))
            (matrices if plain else others).append(own)
    return [
        {"params": matrices, "weight_decay": 0.02},
        {"params": others, "weight_decay": 0.0},
    ]


def save(model: Pointer, chosen: argparse.Namespace, steps: int, tokens: int) -> None:
    """Writes the weights and what was run."""
    chosen.out.mkdir(parents=True, exist_ok=True)
    model.save(chosen.out / "new.safetensors")
    os.replace(chosen.out / "new.safetensors", chosen.out / "reader.safetensors")
    options = {k: str(v) if isinstance(v, Path) else v for k, v in vars(chosen).items()}
    options["documents"] = [str(path.name) for path in chosen.documents]
    run = dict(steps=steps, tokens=tokens, layers=chosen.layers, options=options)
    (chosen.out / "run.json").write_text(json.dumps(run, indent=1) + "\n")
    say(f"saved after {steps} steps, {tokens} tokens")


def say(text: str) -> None:
    """Prints a line at once."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
