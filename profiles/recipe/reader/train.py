"""Trains a reader that points, and beside it a smaller one that follows it, in one run."""

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
from longctx.profiles.recipe.reader.packing import MPNET, ROW, Step, steps

# How often a question of a kind comes in a round: made-up texts and single sentences teach less.
SHARES = {
    "sentence": 0.2,
    "wiki-sentences": 0.6,
    "babi": 0.15,
    "facts": 0.4,
    "log": 0.5,
    "table": 0.5,
    "mail": 0.4,
    "statement": 0.3,
    "code": 0.5,
    "wiki": 1.5,
    "wiki-paragraphs": 2.5,
    "written-code": 2,
    "study": 2,
    "report": 3,
}
WARM = 200  # steps in which the rate rises
STEADY = 0.1  # of the time in which the rate then stays
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
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--student", type=int, default=0, help="layers of a smaller one beside it")
    parser.add_argument(
        "--student-base", type=Path, help="a smaller reader's weights to go on from"
    )
    parser.add_argument("--student-rate", type=float, default=1e-4)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=6e-5)
    parser.add_argument("--rows", type=int, default=128)
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
    learners = learning(chosen, device)
    data = Steps(documents, chosen.tokenizer, chosen.rows, chosen.seed)
    workers = chosen.workers
    loader = DataLoader(
        data,
        batch_size=None,
        num_workers=workers,
        pin_memory=device == "cuda",
        prefetch_factor=4 if workers else None,
    )
    tokens, first = 0, time.time()
    for number, step in enumerate(loader):
        part = (time.time() - began) / chosen.seconds
        if part >= 1:
            break
        factor = min(1, (number + 1) / WARM) * (max(LEAST, 1 - part) if part > STEADY else 1.0)
        step = Step(*(one.to(device, non_blocking=True) for one in step))
        taught = None
        for learner in learners:
            taught = learner.learn(step, factor, taught)
        tokens += int(chosen.rows * ROW)
        if number % 50 == 0:
            rate = tokens / (time.time() - first)
            losses = ", ".join(f"{learner.mean():.3f}" for learner in learners)
            say(f"{number} {time.time() - began:.0f}s losses {losses}, {rate:.0f} tokens/s")
        if number % 1000 == 999:
            save(learners, chosen, number, tokens)
    save(learners, chosen, number, tokens)
    os._exit(0)  # the workers are not waited for


class Learner:
    """A reader that learns.

    Args:
        name: of its file.
        model: on its device.
        rate: of learning, at its highest.
    """

    def __init__(self, name: str, model: Pointer, rate: float):
        self.name, self.model, self.rate = name, model.train(), rate
        self.optimizer = torch.optim.AdamW(groups(model), lr=rate, betas=(0.9, 0.98), fused=True)
        self.losses: list[Tensor] = []

    def learn(self, step: Step, factor: float, taught: Tensor | None) -> Tensor:
        """Learns from a step, and from a larger one's logits for it; returns its own logits."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * factor
        with torch.autocast(step.ids.device.type, torch.bfloat16):
            logits = self.model(step.ids, step.places, step.segments)
        value = loss(logits.float(), step, taught)
        self.optimizer.zero_grad(set_to_none=True)
        value.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.losses.append(value.detach())
        return logits.detach().float()

    def mean(self) -> float:
        """Its mean loss since this was asked before."""
        mean = torch.stack(self.losses).mean().item()
        self.losses.clear()
        return mean


def learning(chosen: argparse.Namespace, device: str) -> list[Learner]:
    """The reader to train and, if one is wanted, the smaller one, which begins with its layers."""
    large = Pointer(chosen.layers)
    if chosen.base:
        (large.load if _is_reader(chosen.base) else large.load_published)(chosen.base)
    models = [("reader", large, chosen.rate)]
    if chosen.student:
        student = Pointer(chosen.student)
        last = (chosen.layers - 1) / (chosen.student - 1)
        student.take(large, [round(n * last) for n in range(chosen.student)])
        if chosen.student_base:
            student.load(chosen.student_base)
        models.append(("student", student, chosen.student_rate))
    if chosen.compile:
        torch._dynamo.config.cache_size_limit = 64
        for layer in (layer for _, model, _ in models for layer in model.layers):
            layer.compile(dynamic=False)
    return [Learner(name, model.to(device), rate) for name, model, rate in models]


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


def save(learners: list[Learner], chosen: argparse.Namespace, steps: int, tokens: int) -> None:
    """Writes the weights and what was run."""
    chosen.out.mkdir(parents=True, exist_ok=True)
    for learner in learners:
        learner.model.save(chosen.out / "new.safetensors")
        os.replace(chosen.out / "new.safetensors", chosen.out / f"{learner.name}.safetensors")
    options = {k: str(v) if isinstance(v, Path) else v for k, v in vars(chosen).items()}
    options["documents"] = [str(path.name) for path in chosen.documents]
    run = dict(steps=steps, tokens=tokens, options=options)
    (chosen.out / "run.json").write_text(json.dumps(run, indent=1) + "\n")
    say(f"saved after {steps} steps, {tokens} tokens")


def say(text: str) -> None:
    """Prints a line at once."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
