"""A model whose layers are on several devices.

Hidden states move to the next device where a layer's weights are. Nothing waits for that but what
uses them, so chunks that are read one after another are on different devices at the same time.
Embedding table, last norm and head stay on the first device.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from longctx.core.common.device import moved
from longctx.core.common.errors import LongctxError
from longctx.core.common.units import show_bytes
from longctx.core.model.adapter import Attends, Decoder, EarlyExit, Layer, Stretch
from longctx.core.model.architectures import Module
from longctx.core.model.balance import Reading, balanced, costs_of
from longctx.core.model.rope import Rope
from longctx.core.model.together import Together


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
        self.device, self.placed = home, Together(self.layers, home)
        self._turn_where_they_are()
        for layer, place in zip(base.layers, self.places, strict=True):
            _brings_to(layer, place)
        for name, child in base.named_children():
            if name not in ("layers", "rotary_emb"):
                _brings_to(child, str(home))

    def spread(self, reading: Reading, may_move: Callable[[], bool]) -> None:
        """Moves layers so that the devices take about the same time for a chunk.

        A chunk's operations are queued on all devices, so each works on a chunk of its own while
        the ones before it work on later chunks. Limits are kept; layers that do not run get the
        room that is left. What was made for the layers before must not be used any more.

        Args:
            reading: what runs.
            may_move: asked where layers would move; if it says no, all stay.
        """
        costs = costs_of(self, self._base.layers, reading)
        counts = balanced(costs, self.limits)
        above = _above(counts, self.limits, len(self.layers) - len(costs))
        places = [*self._spread(counts), *self._spread(above)]
        if places != self.places and may_move():
            self._place(places)

    def stretches(self, tokens: int, depth: int) -> list[Stretch]:
        """See `Decoder.stretches`: one for each device, where chunks pass in few operations."""
        chunks = self.chunks_by(tokens)
        if chunks is None:
            return super().stretches(tokens, depth)
        runs = chunks.stretches(depth)
        places = [torch.device(self.places[first]) for first, _ in runs]
        if places[:1] != [self.device]:  # which has no room for layers beside the embeddings
            runs, places = [(0, 0), *runs], [self.device, *places]

        def reads(first: int, end: int, embeds: bool) -> Callable[[Tensor, Attends], Tensor | None]:
            def read(given: Tensor, memory: Attends) -> Tensor | None:
                try:
                    state = chunks.embed(given[None]) if embeds else given
                    return chunks.run(state, memory, first, end)
                except EarlyExit:
                    return None

            return torch.inference_mode()(read)

        own = enumerate(zip(places, runs, strict=True))
        return [Stretch(place, reads(*run, embeds=n == 0)) for n, (place, run) in own]

    def _turn_where_they_are(self) -> None:
        """Gives the layers of each device a rotary embedding there."""
        ropes = {place: {} for place in self.devices}
        self.layers = tuple(
            _with_own_rope(layer, place, ropes[place])
            for layer, place in zip(self.layers, self.places, strict=True)
        )

    def _spread(self, counts: Sequence[int]) -> list[str]:
        """The device of each of so many layers."""
        return [d for d, n in zip(self.devices, counts, strict=True) for _ in range(n)]

    def _place(self, places: list[str]) -> None:
        """Moves each layer to its device, unless it is there."""
        elsewhere = [n for n, place in enumerate(places) if place != self.places[n]]
        # Where there is a limit, by way of the host: no device ever holds more than in the end.
        for number in elsewhere if self._capped else ():
            self._base.layers[number].to("cpu")
        for number in elsewhere:
            self._base.layers[number].to(places[number])
            _brings_to(self._base.layers[number], places[number])
        self.places = places
        self._turn_where_they_are()
        self._pass, self._tried = None, False  # its weights are where they were


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

    def there(value: Any) -> Any:
        if torch.is_tensor(value):
            return moved(value, device)
        return tuple(map(there, value)) if isinstance(value, tuple) else value

    def hook(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        return there(args), {name: there(value) for name, value in kwargs.items()}

    return hook
