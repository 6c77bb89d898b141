"""Tunes a pretrained model: one command, one GPU, in as many calls as its time needs.

    python -m longctx.profiles.recipe.tuning.train DOCUMENTS... --run RUN --until 200 --of 1000

Worker processes make the batches. The learning rate follows the clock of the whole run: a short
rise, a plateau, a fall to the end (`--of`); this call trains `--until` its second. Ctrl-C ends it
early and whole. RUN keeps the adapter, the optimizer and a table of losses.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import time
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.core.model.files import open_model_files
from longctx.core.profile.profile import PLACE, PromptTemplate
from longctx.core.profile.prompt import PromptEncoder
from longctx.core.tokens.safe_splits import plain_backend
from longctx.profiles.recipe.data import asked
from longctx.profiles.recipe.reading import profile_of
from longctx.profiles.recipe.tuning import settings, shelf, state
from longctx.profiles.recipe.tuning.batches import Reading, Readings
from longctx.profiles.recipe.tuning.losses import search_loss, search_scores
from longctx.profiles.recipe.tuning.model import Tuned, layer
from longctx.profiles.recipe.tuning.nearest import Searcher, best_windows
from longctx.profiles.recipe.tuning.passages import Passages, Window
from longctx.profiles.recipe.tuning.searches import Searches, Searching
from longctx.profiles.recipe.tuning.settings import Settings

ASK = "\n\nAsk a question about this text."
SEQUENCES = 640  # most of a batch of reading
SEARCH, PLAIN = 0.35, 0.5  # weights of searching, and of plain MaxSim in it
RISE, LEVEL, LAST = 60, 0.45, 0.02  # steps; share of the run before the fall; share of the rate
SAVE = 120  # seconds between saves
WARM = 3  # steps before the clock starts: all is compiled in them


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("documents", type=Path, nargs="+", help="files of documents with questions")
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_argument("--settings", type=Path, default=settings.TINY)
    parser.add_argument(
        "--nearest", type=float, default=0.0, help="seconds to search for hard windows first"
    )
    parser.add_argument("--until", type=float, required=True, help="second of the run to end at")
    parser.add_argument("--of", type=float, required=True, help="seconds of the whole run")
    parser.add_argument("--asking", type=float, default=0.0, help="share that learns to ask")
    parser.add_argument("--size", type=int, default=65_536, help="tokens of reading in a step")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


class Bench:
    """What training needs of a model's files: prompts, tokenizer, documents."""

    def __init__(self, options: Settings, documents: list[Path]):
        self.options, self.files = options, open_model_files(options.model)
        self.profile = profile_of(self.files, None)
        self.backend = plain_backend(self.files.tokenizer.backend_tokenizer)
        template = self.profile.prompt
        assert isinstance(template, PromptTemplate), "the profile has a template of its own"
        prompt = PromptEncoder(template, self.files.tokenizer)
        end = min(self.files.eos_ids())
        self.maker = shelf.Maker(prompt, self.backend, end, options.refusal)
        self.shelf = shelf.of_files(documents, self.maker, asked.read)
        # The request to ask is closed as a question is.
        self.ask = prompt.text(ASK + template.question.partition(PLACE)[2]).numpy()
        self.line = prompt.text("\n").numpy()

    def readings(self, found: dict[int, list[Window]], seed: int, asking: float) -> Readings:
        """Batches of reading."""
        passages = Passages(self.shelf, found)
        rng = random.Random(f"reading {seed}")
        return Readings(passages, rng, self.options.absent, self.ask, self.line, asking)

    def searches(self, found: dict[int, list[Window]], seed: int) -> Searches:
        """Batches of searching."""
        rng = random.Random(f"searching {seed}")
        return Searches(self.shelf, found, self.maker, self.backend, rng)


def changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """A batch with a change of each of its arrays or tensors."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {one.name: changed(getattr(value, one.name), change) for one in fields(value)}
        return type(value)(**parts)
    return change(value) if isinstance(value, Tensor | np.ndarray) else value


def moved(batch: Any, device: str) -> Any:
    """A batch of arrays as tensors on a device."""
    return changed(batch, lambda array: torch.from_numpy(array).to(device, non_blocking=True))


class Trainer:
    """The model, the optimizer, and one step.

    Args:
        bench: the model's files.
        args: the command line.
        device: cuda or cpu.
    """

    def __init__(self, bench: Bench, args: argparse.Namespace, device: str):
        self.options, self.args, self.device = bench.options, args, device
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        own = bench.options
        self.model = Tuned(bench.files, own.rank, own.whole, dtype).to(device)
        self.scales = torch.nn.Parameter(torch.tensor([0.3, 20.0], device=device).log())
        low = [*self.model.a.parameters(), *self.model.b.parameters()]
        groups = [
            dict(params=low, weight_decay=0.01, share=1.0),
            dict(params=[*self.model.full.parameters()], weight_decay=0.0, share=0.3),
            dict(params=[self.scales], weight_decay=0.0, share=2.0),
        ]
        self.optimizer = torch.optim.AdamW(
            groups, lr=own.rate, betas=(0.9, 0.98), fused=device == "cuda"
        )
        self.clock = state.load(args.run, self.model, self.optimizer)
        with torch.no_grad():
            self.scales.copy_(torch.tensor(self.clock.temperatures).log())
        self.resumed = self.clock.steps

    def rate(self) -> float:
        """The learning rate of the next step."""
        share = min(1.0, self.clock.seconds / self.args.of)
        fall = min(1.0, max(0.0, (share - LEVEL) / (1 - LEVEL)))
        level = LAST + (1 - LAST) * 0.5 * (1 + math.cos(math.pi * fall))
        return self.options.rate * level * min(1.0, (self.clock.steps - self.resumed + 1) / RISE)

    def step(self, reading: Reading, searching: Searching) -> dict[str, Tensor]:
        """One step on a batch of each task; the losses."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate() * group["share"]
        weights = self.model.merged()
        read, right = self.read(reading, weights)
        standard, plain, first = self.search(searching, weights)
        (read + SEARCH * (standard + PLAIN * plain)).backward()
        trained = [one for group in self.optimizer.param_groups for one in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.clock.steps += 1
        self.clock.tokens += len(reading.packed.ids) + len(searching.packed.ids)
        return dict(read=read, right=right, standard=standard, plain=plain, first=first, norm=norm)

    def read(self, batch: Reading, weights: dict[str, list[Tensor]]) -> tuple[Tensor, Tensor]:
        """The loss of a token of an answer, and the share of tokens predicted right."""
        states = self.model.embedded(batch.packed)
        layers, dropout = self.model.layers, self.options.dropout
        states = self.model.through(states, batch.packed, weights, 0, layers, dropout)
        logits = self.model.logits(states[batch.places]).float()
        right = (logits.argmax(-1) == batch.targets).float().mean()
        return F.cross_entropy(logits, batch.targets), right

    def search(
        self, batch: Searching, weights: dict[str, list[Tensor]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Both losses of searching, and the share found first."""
        own, packed = self.options, batch.packed
        states = self.model.through(self.model.embedded(packed), packed, weights, 0, own.layer)
        vectors = self.model.queries(states, weights, own.layer, own.heads).to(self.model.dtype)
        scores = search_scores(vectors[batch.texts], vectors[batch.queries], batch.words)
        scale, limits = self.scales.exp(), (2.0, 60.0)
        losses = [
            search_loss(score * scale[i].clamp(max=limits[i]), batch.right, batch.unsure)
            for i, score in enumerate(scores)
        ]
        return losses[0][0], losses[1][0], losses[0][1]

    def save(self) -> None:
        """Writes the run."""
        self.clock.temperatures = self.scales.detach().exp().tolist()
        state.save(self.args.run, self.model, self.optimizer, self.clock)


def work(bench: Bench, found: dict, args: argparse.Namespace, number: int, out: Any) -> None:
    """A worker: makes batches forever."""
    torch.set_num_threads(1)
    readings = bench.readings(found, args.seed * 1000 + number, args.asking)
    searches = bench.searches(found, args.seed * 1000 + number)
    while True:
        batches = readings.batch(args.size, SEQUENCES), searches.batch()
        # As arrays: tensors would travel through files of shared memory, which may be few.
        out.put(tuple(changed(one, Tensor.numpy) for one in batches))


def train(trainer: Trainer, take: Callable[[], tuple[Reading, Searching]]) -> None:
    """Steps until the call's second is reached; the clock starts when all is compiled."""
    clock, args = trainer.clock, trainer.args
    if trainer.device == "cuda":
        trainer.model.run = torch.compile(layer, dynamic=False)
    begun, began, warm, saved = clock.seconds, time.time(), WARM, time.time()
    smooth: dict[str, float] = {}
    started = time.time()
    waited = 0.0
    while clock.seconds < args.until:
        asked_at = time.time()
        batch = take()
        waited += time.time() - asked_at
        seen = trainer.step(*(moved(one, trainer.device) for one in batch))
        if warm:
            warm -= 1
            if not warm:
                print(f"ready after {time.time() - started:.0f} s", flush=True)
            float(seen["read"].detach())
            began = time.time()
        clock.seconds = begun + time.time() - began
        if clock.steps % 10 == 0:
            for name, value in seen.items():
                smooth[name] = 0.8 * smooth.get(name, float(value.detach())) + 0.2 * float(
                    value.detach()
                )
        if clock.steps % 100 == 0:
            _tell(trainer, smooth, waited / max(1e-9, time.time() - started))
        if time.time() - saved > SAVE:
            trainer.save()
            saved = time.time()


def _tell(trainer: Trainer, smooth: dict[str, float], waiting: float) -> None:
    clock = trainer.clock
    line = {"step": clock.steps, "seconds": round(clock.seconds, 1), "tokens": clock.tokens}
    line |= {"rate": trainer.rate(), "waiting": round(waiting, 3)}
    line |= {name: round(value, 4) for name, value in smooth.items()}
    clock.table.append(line)
    print(json.dumps(line), flush=True)


def main() -> None:
    """Starts the workers, trains, saves, stops the workers."""
    args = arguments()
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    bench = Bench(settings.load(args.settings), args.documents)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    print(f"{len(bench.shelf.ids):,} tokens, {len(bench.shelf.asked):,} questions", flush=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    trainer = Trainer(bench, args, device)
    own = bench.options
    searcher = Searcher(trainer.model, bench.shelf, own.layer, own.heads)
    found = state.load_found(args.run, bench.shelf)
    if args.nearest:
        found |= best_windows(searcher, bench.shelf, args.nearest)
        state.save_found(args.run, found, bench.shelf)
    context = multiprocessing.get_context("fork")  # workers share the documents, and use no GPU
    ready = context.Queue(maxsize=2 * args.workers)
    workers = [
        context.Process(target=work, args=(bench, found, args, number, ready), daemon=True)
        for number in range(args.workers)
    ]
    for worker in workers:
        worker.start()
    try:
        train(trainer, ready.get)
    except KeyboardInterrupt:
        print("stopped", flush=True)
    trainer.save()
    for worker in workers:
        worker.terminate()
    os._exit(0)  # queues' threads would wait for batches that nobody takes


if __name__ == "__main__":
    main()
