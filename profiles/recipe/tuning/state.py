"""A run on disk: its adapter, the optimizer's moments, its clock and its table.

A run that is longer than one call goes on from here; one file at a time is replaced, and the clock
comes last. With the adapter alone a run goes on too, and the moments start anew.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from longctx.profiles.recipe.tuning.model import Tuned
from longctx.profiles.recipe.tuning.passages import Window
from longctx.profiles.recipe.tuning.shelf import Shelf

ADAPTER, MOMENTS, CLOCK = "adapter.safetensors", "moments.safetensors", "run.json"
FOUND = "found.safetensors"


@dataclass
class Clock:
    """How far a run is.

    Attributes:
        seconds: of training, compilation aside.
        steps, tokens: done.
        temperatures: of the two scores of searching.
        table: a line for every hundred steps.
    """

    seconds: float = 0.0
    steps: int = 0
    tokens: int = 0
    temperatures: list[float] = field(default_factory=lambda: [0.3, 20.0])
    table: list[dict[str, float]] = field(default_factory=list)


def save(folder: Path, model: Tuned, optimizer: torch.optim.Optimizer, clock: Clock) -> None:
    """Writes everything."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / ("new-" + ADAPTER), torch.float32)
    save_file(_moments(optimizer), folder / ("new-" + MOMENTS))
    (folder / ("new-" + CLOCK)).write_text(json.dumps(asdict(clock), indent=1), "utf-8")
    for name in (ADAPTER, MOMENTS, CLOCK):
        os.replace(folder / ("new-" + name), folder / name)


def load(folder: Path, model: Tuned, optimizer: torch.optim.Optimizer) -> Clock:
    """Reads what there is; a run without a folder begins."""
    if (folder / ADAPTER).is_file():
        model.load(folder / ADAPTER)
    if (folder / MOMENTS).is_file():
        _restore(optimizer, load_file(folder / MOMENTS))
    file = folder / CLOCK
    return Clock(**json.loads(file.read_text("utf-8"))) if file.is_file() else Clock()


def save_found(folder: Path, found: dict[int, list[Window]], shelf: Shelf) -> None:
    """Writes the windows that a search found, for further calls over the same documents."""
    folder.mkdir(parents=True, exist_ok=True)
    longest = max(map(len, found.values()), default=0)
    rows = [row + [(-1, -1)] * (longest - len(row)) for row in found.values()]
    windows = torch.tensor(rows, dtype=torch.int32).reshape(len(rows), longest, 2)
    questions = torch.tensor([*found], dtype=torch.int32)
    save_file(dict(questions=questions, windows=windows, of=_size(shelf)), folder / FOUND)


def load_found(folder: Path, shelf: Shelf) -> dict[int, list[Window]]:
    """Reads what `save_found` wrote; nothing if there is none, or it is of other documents."""
    if not (folder / FOUND).is_file():
        return {}
    held = load_file(folder / FOUND)
    if not torch.equal(held["of"], _size(shelf)):
        return {}
    rows = zip(held["questions"].tolist(), held["windows"].tolist(), strict=True)
    return {question: [(d, w) for d, w in row if d >= 0] for question, row in rows}


def _size(shelf: Shelf) -> Tensor:
    return torch.tensor([len(shelf.ids), len(shelf.asked), int(shelf.ids.sum(dtype="int64"))])


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [one for group in optimizer.param_groups for one in group["params"]]


def _moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    found = {}
    for number, parameter in enumerate(_parameters(optimizer)):
        for name, value in optimizer.state[parameter].items():
            found[f"{number}.{name}"] = torch.as_tensor(value).detach().cpu().contiguous()
    return found


def _restore(optimizer: torch.optim.Optimizer, found: dict[str, Tensor]) -> None:
    for key, value in found.items():
        number, _, name = key.partition(".")
        parameter = _parameters(optimizer)[int(number)]
        optimizer.state[parameter][name] = value.to(parameter.device)
