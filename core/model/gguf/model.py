"""A model in a GGUF file: its configuration, its tensors under transformers' names, its tokenizer.

The file is opened without reading its tensors, and they are decoded one at a time. Nothing is
fetched and nothing is run.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from longctx.core.common.foreign import foreign
from longctx.core.common.regular_files import open_regular
from longctx.core.model.gguf.container import Stored, open_container
from longctx.core.model.gguf.facts import Facts
from longctx.core.model.gguf.forms import LAYER, TOP, UNUSED, Form, form_of, shared_fields
from longctx.core.model.gguf.tokenizer import save_tokenizer
from longctx.core.model.gguf.types import decoded, require_decoder

PART = re.compile(r"(?:blk\.(?P<layer>0|[1-9]\d{0,5})\.)?(?P<part>\w+)(?P<suffix>\.weight|\.bias)")


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
        """Each tensor under transformers' name; only one is in memory at a time.

        Values are float32, but float16 and bfloat16 where the file has these.

        Raises:
            UsageError: the file cannot be read, or a tensor does not fit the configuration.
        """
        for name, stored in self._facts.container.tensors.items():
            layer, part, suffix = _split(name)
            if part in UNUSED:
                continue
            with foreign(f"cannot read {name} of {str(stored.file)!r}"):
                tensor = _values(stored)
                if change := self._form.changes.get(part):
                    tensor = change(tensor, self._facts).contiguous()
            yield _renamed(self._form, layer, part) + suffix, tensor

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
    with foreign(f"cannot use {str(path)!r}"):
        from transformers import AutoConfig

        fields = shared_fields(facts) | form.fields(facts)
        config = AutoConfig.for_model(form.kind, dtype="float32", **fields)
    used = [s for name, s in facts.container.tensors.items() if _split(name)[1] not in UNUSED]
    parameters = sum(math.prod(stored.shape) for stored in used)
    name, licence = (facts.text(f"general.{key}") for key in ("name", "license"))
    return GgufModel(path, config, parameters, name, licence, facts, form)


def _require_tensors(facts: Facts, form: Form) -> None:
    """Refuses a file with tensors that cannot be placed or decoded, and one that lacks layers."""
    layers: dict[int, set[str]] = {}
    for name, stored in facts.container.tensors.items():
        layer, part, suffix = _split(name)
        if part in UNUSED:
            continue
        known = TOP if layer is None else {**LAYER, **form.names}
        if not suffix or part not in known:
            why = f"its tensor {name[:80]!a} is none that {facts.architecture} models have"
            raise facts.wrong(why, "Name another model, or this one in safetensors form.")
        require_decoder(stored.type, f"cannot read {str(facts.container.path)!r}")
        if layer is not None:
            layers.setdefault(layer, set()).add(part + suffix)
    table = facts.container.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2 or table.shape[1] != facts.count("embedding_length"):
        raise facts.wrong("it has no embeddings (token_embd.weight) of the size that it states")
    count = facts.count("block_count")
    if len(layers) != count or max(layers, default=0) >= count:
        raise facts.wrong(f"it has tensors of {len(layers):,} layers, and states {count:,}")


def _split(name: str) -> tuple[int | None, str, str]:
    """A tensor's layer, part and suffix; an unknown form of name gives ("", "")."""
    found = PART.fullmatch(name)
    if not found:
        return None, "", ""
    layer = found["layer"]
    return None if layer is None else int(layer), found["part"], found["suffix"]


def _renamed(form: Form, layer: int | None, part: str) -> str:
    if layer is None:
        return TOP[part]
    return f"model.layers.{layer}.{({**LAYER, **form.names})[part]}"


def _values(stored: Stored) -> Tensor:
    """A tensor as the file has it."""
    data = bytearray(stored.size)
    with open_regular(stored.file) as stream:
        stream.seek(stored.start)
        if stream.readinto(data) != stored.size:
            raise ValueError("the file became shorter while it was read")
    return decoded(data, stored.type, stored.shape)
