"""A model whose layers are on several devices: as a whole, and as stages that run side by side.

As a whole it is a `Decoder`: hidden states move to the next device where a layer's weights are. A
stage runs some of its layers by itself, so that one chunk can be in one stage while the next chunk
is in the one before. Each stage has its own rotary module, and nothing that another changes.
Embedding table, last norm and head stay on the first device.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from longctx.core.common.errors import LongctxError
from longctx.core.common.units import show_bytes
from longctx.core.model.adapter import Attends, Decoder, EarlyExit, Layer
from longctx.core.model.architectures import Module
from longctx.core.model.balance import Reading, balanced, costs_of
from longctx.core.model.chunk_pass import FEWEST
from longctx.core.model.rope import Rope
from longctx.core.model.running import attending, embedded, position_free


class SplitDecoder(Decoder):
    """A decoder over several devices.

    Args:
        decoder: it, whole, on the CPU or on the first device; its layers are moved.
        devices: where to, in order; the same device may be named twice.
        max_memory: bytes of weights that each device may hold; None: any number.

    Attributes:
        places: the device of each layer.
        limits: the most layers of each device.

    Raises:
        LongctxError: the layers do not fit.
    """

    def __init__(self, decoder: Decoder, devices: Sequence[str], max_memory: int | None = None):
        model = decoder._model
        self.devices = tuple(devices)
        self._capped = max_memory is not None
        self.limits = _limits(model, self.devices, max_memory)
        whole = Reading(len(model.base_model.layers))
        costs = costs_of(decoder, model.base_model.layers, whole)
        self.places = self._spread(balanced(costs, self.limits))
        base, home = model.base_model, torch.device(self.devices[0])
        for name, child in base.named_children():
            if name != "layers":
                child.to(home)
        model.get_output_embeddings().to(home)
        for layer, place in zip(base.layers, self.places, strict=True):
            layer.to(place)
        super().__init__(model, decoder.checks)
        self.device = home
        ropes = {place: {} for place in self.devices}
        self.layers = tuple(
            _with_own_rope(layer, place, ropes[place])
            for layer, place in zip(self.layers, self.places, strict=True)
        )
        for layer, place in zip(base.layers, self.places, strict=True):
            _brings_to(layer, place)
        for name, child in base.named_children():
            if name not in ("layers", "rotary_emb"):
                _brings_to(child, str(home))

    def stages(self, reading: Reading) -> "list[Stage]":
        """The layers that a method runs, as stages that take about the same time, one a device.

        Layers are moved for this, within the limits; those above get the room that is left.

        Args:
            reading: what runs.
        """
        costs = costs_of(self, self._base.layers, reading)
        counts = balanced(costs, self.limits)
        above = _above(counts, self.limits, len(self.layers) - len(costs))
        self._place([*self._spread(counts), *self._spread(above)])
        ends = [*accumulate(counts)]
        spans = [*zip([0, *ends], ends, self.devices, strict=False)]
        self.chunks_by(FEWEST)  # makes what stages use, before they run side by side
        return [Stage(self, *span) for span in spans if span[0] < span[1]]

    def _spread(self, counts: Sequence[int]) -> list[str]:
        """The device of each of so many layers."""
        return [d for d, n in zip(self.devices, counts, strict=True) for _ in range(n)]

    def _place(self, places: list[str]) -> None:
        """Moves each layer to its device, unless it is there."""
        moved = [n for n, place in enumerate(places) if place != self.places[n]]
        if not moved:
            return
        for number in moved if self._capped else ():  # so no device ever holds more than in the end
            self._base.layers[number].to("cpu")
        layers = [*self.layers]
        for number in moved:
            self._base.layers[number].to(places[number])
            _brings_to(self._base.layers[number], places[number])
            layers[number] = replace(layers[number], device=places[number])
        self.layers, self.places = tuple(layers), places
        self._pass, self._tried = None, False  # its weights are where they were


class Stage:
    """Some neighbouring layers of a model on one device, run by themselves.

    What computes a chunk is chosen as for the whole model, so the states have the same bits.

    Args:
        decoder: the whole model, whose layers are on their devices.
        first, end: which ones run here.
        device: where they are.
    """

    def __init__(self, decoder: Decoder, first: int, end: int, device: str):
        self.first, self.end, self.device = first, end, device
        self._decoder, base = decoder, decoder._base
        self._base = copy.copy(base)
        self._base._modules = {
            name: _here(name, child, device, first) for name, child in base.named_children()
        }
        self._base.layers = nn.ModuleList(base.layers[first:end])
        own: dict[int, Rope] = {}
        self._layers = tuple(
            _with_own_rope(layer, device, own) if first <= layer.index < end else layer
            for layer in decoder.layers
        )

    @torch.inference_mode()
    def run(self, given: Tensor, memory: Attends) -> Tensor | None:
        """Runs T tokens through these layers.

        Args:
            given: ids (T,) for the first stage; else the hidden states (1, T, E) that the stage
                before gave, on any device.
            memory: as for `Decoder.read`.

        Returns:
            The hidden states (1, T, E); None where the memory ended the pass.

        Raises:
            UsageError: ids on the host for which there are no weights.
        """
        if self.first == 0 and given.device.type == "cpu" and len(given):
            self._decoder.require_known(given)
        given = given.to(self.device, non_blocking=True)
        tokens = len(given) if self.first == 0 else given.shape[1]
        chunks = self._decoder.chunks_by(tokens)
        try:
            if chunks is None:
                return self._by_the_model(given, tokens, memory)
            chunks = chunks.over(self._layers, partial(embedded, self._base))
            state = given[0] if self.first else chunks.embed(given[None])
            return chunks.run(state, memory, self.first, self.end)[None]
        except EarlyExit:
            return None

    def _by_the_model(self, given: Tensor, tokens: int, memory: Attends) -> Tensor:
        """The hidden states that the model's own layers give."""
        inputs = {"input_ids": given[None]} if self.first == 0 else {"inputs_embeds": given}
        places = torch.zeros(1, tokens, dtype=torch.long, device=self.device)
        kept: list[Tensor] = []
        handles = [self._base.layers[-1].register_forward_hook(_keeping(kept))]
        if self.first:  # some models scale their embeddings first
            hook = _replaced_by(given)
            handles.append(self._base.layers[0].register_forward_pre_hook(hook, with_kwargs=True))
        try:
            with attending(memory, self._layers), position_free(self._base):
                self._base(**inputs, position_ids=places, use_cache=False)
        finally:
            for handle in handles:
                handle.remove()
        return kept[0]


def _here(name: str, child: Module, device: str, first: int) -> Module:
    """A part of a decoder for one stage: its own, but for weights that it does not use."""
    if name == "layers" or (name.startswith("embed") and first):
        return child
    if name.startswith("embed"):
        return child.to(device)
    part = copy.deepcopy(child).to(device)
    _brings_to(part, device)
    return part


def _with_own_rope(layer: Layer, device: str, own: dict[int, Any]) -> Layer:
    """A layer with a rotary embedding of its device; layers that share one share the copy."""
    if not isinstance(layer.rope, Rope):
        return replace(layer, device=device)
    key = id(layer.rope)
    if key not in own:
        own[key] = layer.rope.copied(device)
    return replace(layer, rope=own[key], device=device)


def _limits(model: Module, devices: tuple[str, ...], most: int | None) -> list[int]:
    """The most layers of each device, of which the first one has embeddings and head too."""
    layers = model.base_model.layers
    if most is None:
        return [len(layers)] * len(devices)
    each = max(sum(weight.nbytes for weight in layer.parameters()) for layer in layers)
    inside = {id(weight) for layer in layers for weight in layer.parameters()}
    ends = sum(weight.nbytes for weight in model.parameters() if id(weight) not in inside)
    limits = [max(0, most - ends) // each, *(most // each for _ in devices[1:])]
    if sum(limits) < len(layers):
        whole = sum(weight.nbytes for weight in model.parameters())
        raise LongctxError(
            f"the model does not fit in {show_bytes(most)} of each of {len(devices)} devices",
            f"its weights take {show_bytes(whole)}",
            "Name more devices, raise --max-memory, or use --dtype bf16.",
        )
    return limits


def _above(counts: Sequence[int], limits: Sequence[int], layers: int) -> list[int]:
    """How many of the layers above each device gets, so that all hold as many as possible alike."""
    held = [*counts]
    for _ in range(layers):
        free = [n for n in range(len(held)) if held[n] < limits[n]]
        held[min(free, key=held.__getitem__)] += 1
    return [now - before for now, before in zip(held, counts, strict=True)]


def _brings_to(module: Module, device: str) -> None:
    """Has what a module is given moved to its device first, in place of an earlier one."""
    hooks = module._forward_pre_hooks
    for number in [number for number, hook in hooks.items() if hasattr(hook, "longctx_device")]:
        del hooks[number]
        module._forward_pre_hooks_with_kwargs.pop(number, None)
    hook = _moved_to(device)
    hook.longctx_device = device
    module.register_forward_pre_hook(hook, with_kwargs=True)


def _moved_to(device: str) -> Any:
    """A hook that moves a module's tensors to a device before it runs."""

    def moved(value: Any) -> Any:
        if torch.is_tensor(value):
            return value.to(device, non_blocking=True)
        return tuple(map(moved, value)) if isinstance(value, tuple) else value

    def hook(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        return moved(args), {name: moved(value) for name, value in kwargs.items()}

    return hook


def _replaced_by(states: Tensor) -> Any:
    """A hook that gives a layer these states, whatever it would get."""

    def hook(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        if args:
            return (states, *args[1:]), kwargs
        return args, kwargs | {"hidden_states": states}

    return hook


def _keeping(kept: list[Tensor]) -> Any:
    """A hook that keeps what a layer gives."""

    def hook(module: nn.Module, args: object, out: Any) -> None:
        kept.append(out if torch.is_tensor(out) else out[0])

    return hook
