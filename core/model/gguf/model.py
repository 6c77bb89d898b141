"""A model in a GGUF file: its configuration, its tensors under transformers' names, its tokenizer.

The file is opened without reading its tensors, and they are decoded one at a time. Nothing is
fetched and nothing is run.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longctx.core.common import libraries
from longctx.core.common.foreign import foreign
from longctx.core.model.gguf import configs
from longctx.core.model.gguf.container import Stored, open_container
from longctx.core.model.gguf.facts import Facts, read_tensor
from longctx.core.model.gguf.forms import BARE, UNUSED, Form, form_of
from longctx.core.model.gguf.skeleton import shapes_of
from longctx.core.model.gguf.tokenizer import save_tokenizer
from longctx.core.model.gguf.types import require_decoder

NAME = re.compile(r"(?:blk\.(?P<layer>0|[1-9]\d{0,5})\.)?(?P<part>\w+)(?P<suffix>\.weight|\.bias)")
GATE, UP = "ffn_gate_exps", "ffn_up_exps"  # two tensors in a file, one in transformers
Read = Callable[[Stored], Tensor]


@dataclass(frozen=True)
class GgufModel:
    """A model in a GGUF file, not loaded.

    Attributes:
        path: the file, or the first of several.
        config: its transformers configuration.
        parameters: number of its weights.
        name, licence: as the file has them (`general.name`, `general.license`), or None.
    """

    path: Path
    config: Any
    parameters: int
    name: str | None
    licence: str | None
    _facts: Facts
    _form: Form

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Each tensor under the name of its parameter in transformers' model.

        Only one is in memory at a time. Values are float32, but float16 and bfloat16 where the
        file has these. A head that is tied to the embeddings is not among them.

        Raises:
            UsageError: the file cannot be read.
        """
        return _outputs(self._facts, self._form, read_tensor)

    def save_tokenizer(self, folder: Path) -> None:
        """Writes the tokenizer, its settings and the ids that end an answer.

        Args:
            folder: receives tokenizer.json, tokenizer_config.json and generation_config.json.

        Raises:
            UsageError: the tokenizer is of a kind that cannot be made exactly.
        """
        save_tokenizer(self._facts, folder)


def open_gguf(path: Path) -> GgufModel:
    """Opens a GGUF file and makes its model's configuration.

    Raises:
        UsageError: it is no GGUF file, damaged, or has a model or tensors that are not supported.
    """
    facts = Facts(open_container(path))
    form = form_of(facts)
    _require_tensors(facts, form)
    config = _config(facts, form)
    found = {name: tensor.shape for name, tensor in _outputs(facts, form, _unread)}
    with foreign(f"cannot use {str(path)!r}"):
        wanted = shapes_of(config)
    _require_same(facts, found, wanted)
    parameters = sum(shape.numel() for shape in found.values())
    name, licence = (facts.text(f"general.{key}") for key in ("name", "license"))
    return GgufModel(path, config, parameters, name, licence, facts, form)


def _config(facts: Facts, form: Form) -> Any:
    """The transformers configuration."""
    fields = configs.shared(facts) | form.fields(facts)
    facts.require_known()
    with foreign(f"cannot use {str(facts.container.path)!r}"):
        return libraries.transformers().AutoConfig.for_model(form.kind, dtype="float32", **fields)


def _require_tensors(facts: Facts, form: Form) -> None:
    """Refuses a file with tensors that have no place in its model, or cannot be decoded."""
    for name, stored in facts.container.tensors.items():
        layer, part, _ = _split(name)
        if part in UNUSED:
            continue
        if form.name(layer, part) is None:
            why = f"its tensor {name[:80]!a} is none that {facts.architecture} models have"
            raise facts.wrong(why, "Name another model, or this one in safetensors form.")
        require_decoder(stored.type, f"cannot read {str(facts.container.path)!r}")
    table = facts.container.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise facts.wrong("it has no embeddings (token_embd.weight)")


def _require_same(
    facts: Facts, found: dict[str, torch.Size], wanted: dict[str, torch.Size]
) -> None:
    """Refuses a file whose tensors are not those of the model that its metadata describes."""
    if missing := sorted(wanted.keys() - found.keys()):
        raise facts.wrong(f"it lacks {len(missing):,} tensors, among them {missing[0]}")
    if more := sorted(found.keys() - wanted.keys()):
        raise facts.wrong(f"it has {len(more):,} tensors too many, among them {more[0][:80]}")
    for name, shape in found.items():
        if shape != wanted[name]:
            why = f"{name} has the shape {(*shape,)}, and its metadata means {(*wanted[name],)}"
            raise facts.wrong(why)


# --- tensors ------------------------------------------------------------------------------------


def _outputs(facts: Facts, form: Form, read: Read) -> Iterator[tuple[str, Tensor]]:
    """transformers' tensors, made of those that `read` gives for the file's."""
    tensors = facts.container.tensors
    for name, stored in tensors.items():
        layer, part, suffix = _split(name)
        target = form.name(layer, part)
        if part in UNUSED or part == UP or target is None:
            continue
        with foreign(f"cannot read {name} of {str(stored.file)!r}"):
            tensor = read(stored)
            if part == GATE:
                tensor = form.join(tensor, read(tensors[name.replace(GATE, UP)]))
            if change := form.changes.get(part):
                tensor = change(tensor, facts)
        end = suffix if part not in BARE else {".weight": "", ".bias": "_bias"}[suffix]
        if "{}" in target:
            rows = ((target.format(i) + end, row.contiguous()) for i, row in enumerate(tensor))
            yield from rows
        else:
            yield target + end, tensor.contiguous()


def _split(name: str) -> tuple[int | None, str, str]:
    """A tensor's layer, part and suffix; an unknown form of name gives ("", "")."""
    found = NAME.fullmatch(name)
    if not found:
        return None, "", ""
    layer = found["layer"]
    return None if layer is None else int(layer), found["part"], found["suffix"]


def _unread(stored: Stored) -> Tensor:
    """A tensor with a shape and no values."""
    return torch.empty(stored.shape, device="meta")
