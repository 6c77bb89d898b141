"""A model with everything it needs to run; its weights are loaded when first needed."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

import torch

from longctx.core import methods
from longctx.core.common.device import (
    choose_device,
    choose_devices,
    choose_dtype,
    device_name,
    dtype_name,
    free_memory,
    idle_memory,
    is_out_of_memory,
    peak_memory,
    set_threads,
)
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.common.telemetry import facts, stage
from longctx.core.common.units import show_bytes
from longctx.core.contracts.memory import Place, Snapshot, Stored
from longctx.core.contracts.method import Method, Way, can_be_made_again
from longctx.core.decode import policies
from longctx.core.decode.policies import Decoding
from longctx.core.engine.choice import (
    Recorded,
    Setup,
    answering,
    method_of,
    options_of,
    profile_of,
)
from longctx.core.engine.staying import always, staying
from longctx.core.model import narrow
from longctx.core.model.adapter import Decoder
from longctx.core.model.balance import Reading
from longctx.core.model.chunk_pass import computed_by
from longctx.core.model.describe import describe
from longctx.core.model.files import BUNDLED, ModelFiles, open_model_files, require_fit
from longctx.core.model.load import load_decoder
from longctx.core.model.split import SplitDecoder
from longctx.core.model.weights import cached_json
from longctx.core.profile.chat import resolve
from longctx.core.profile.profile import Profile
from longctx.core.profile.prompt import PromptEncoder
from longctx.core.retrieve import gather_by
from longctx.core.store.manifest import Manifest
from longctx.kernels import choice

_log = logging.getLogger(__name__)

ROOM = 0.95  # the share of a GPU's free memory that is used
WORKING = 2 << 30  # bytes left for temporary tensors of a chunk


@dataclass
class Engine:
    """A chosen model with everything it needs; the weights are loaded when first needed.

    Attributes:
        files: the model's files.
        profile: its profile, with the prompt as text, whatever its origin.
        method_name: the reading method.
        options: that method's options.
        device, dtype: where to compute, and in which number format.
        devices: several devices that the layers are split over; `device` is the first of them.
        max_memory: bytes of weights that each of these may hold; None: any number.
        prompt: encodes prefix and question.
        window: tokens that the model was trained on.
        asked_with: the way to ask that the user names for a document; None: the usual one.
        decoding: how answers are decoded, unless a question overrides it.
        notes: what people should know of the choice of profile and options.
        precision: of the products while documents are read, `fp8`; None: the dtype's.
        dtype_chosen: the user named the dtype; else an unfinished document resumes in its own.
        answerer: another model that answers; None: this one does.
        lender: an engine of the same model, whose weights are used; None: it has its own.
    """

    files: ModelFiles
    profile: Profile
    method_name: str
    options: Any
    device: str
    dtype: torch.dtype
    prompt: PromptEncoder
    window: int
    asked_with: str | None = None
    decoding: Decoding = policies.USUAL
    notes: tuple[str, ...] = ()
    dtype_chosen: bool = False
    answerer: "Engine | None" = None
    lender: "Engine | None" = field(default=None, repr=False)
    devices: tuple[str, ...] = ()
    max_memory: int | None = None
    precision: str | None = None
    _decoder: Decoder | None = field(default=None, repr=False)
    _reader: Decoder | None = field(default=None, repr=False)

    @property
    def key(self) -> tuple[str, str, torch.dtype]:
        """What its weights in memory depend on."""
        places = ",".join([*self.devices, str(self.max_memory)]) if self.devices else self.device
        return str(self.files.folder), places, self.dtype

    @property
    def answering(self) -> "Engine":
        """The engine of the model that answers."""
        return self.answerer or self

    @property
    def decoder(self) -> Decoder:
        """The loaded model.

        Raises:
            LongctxError: it does not fit, or does not run exactly.
        """
        if self.lender is not None:
            return self.lender.decoder
        if self._decoder is None:
            weights = staying()
            self._decoder = (weights and weights.held.get(self.key)) or self._load()
            if weights:
                weights.held[self.key] = self._decoder
        return self._decoder

    @property
    def reader(self) -> Decoder:
        """The model as documents are read with it, in `precision`.

        Raises:
            LongctxError: as of `decoder`, or model or device cannot be used in it.
        """
        if self.precision is None:
            return self.decoder
        if self._reader is None:
            decoder = self.decoder
            with stage(_log, "round_weights", f"weights rounded to {self.precision}"):
                self._reader = narrow.reader_of(decoder)
        return self._reader

    def _load(self) -> Decoder:
        places = dict.fromkeys(self.devices or [self.device])
        free = [free_memory(place) for place in places]
        room = None if None in free else sum(count or 0 for count in free)
        require_fit(self.files, self.device, self.dtype, room)
        folder = self.files.loadable(dtype_name(self.dtype))
        with stage(_log, "load_model", f"model {self.files.name}: weights loaded"):
            decoder = load_decoder(
                str(folder),
                self.files.config,
                "cpu" if self.devices else self.device,  # from there each layer goes to its own
                self.dtype,
                cached_json("self-checks.json"),
            )
            if self.devices:
                return SplitDecoder(decoder, self.devices, self.max_memory)
            return decoder

    def new_method(
        self,
        snapshot: Snapshot | None = None,
        stored: Stored | None = None,
        reading: bool = False,
        tokens: int = 0,
    ) -> Method:
        """A memory of the chosen method, fresh or restored from a document.

        Args:
            snapshot, stored: of the document; tensors on the CPU, in the dtype in which they were
                computed.
            reading: it will read, or go on reading, the document; else it is asked.
            tokens: about how many tokens it will hold, if known.
        """
        if reading and self.devices:
            self._spread()
        decoder = self.reader if reading else self.decoder  # before the room that they leave
        place = Place(self.device, self.dtype, tokens, self._room())
        method = methods.load(self.method_name).Method(self.options, decoder.layers, place)
        if snapshot is not None:
            method.restore(snapshot, stored, reading)
        return method

    def _spread(self) -> None:
        """Has each device read about as long, before a method keeps anything of its layers."""
        made, decoder = methods.load(self.method_name).Method, self.decoder
        reading = self.options.reading
        if isinstance(decoder, SplitDecoder):
            method = made(self.options, decoder.layers, Place(self.device, self.dtype))
            cached, part = reading.budget or method.chunk, made.capabilities.last_in_part
            weights = staying()
            may_move = always if weights is None else weights.before_moving
            decoder.spread(Reading(method.depth, method.chunk, cached, part), may_move)

    def can_leave_out(self, method: Method, tokens: int) -> bool:
        """Whether a document need not keep what its method made; see `can_be_made_again`.

        Args:
            method: it has read the document.
            tokens: of prefix and document.
        """
        return can_be_made_again(method, tokens, self.window, len(self.decoder.layers))

    def ways(self, method: Method) -> Mapping[str, Way]:
        """The ways to ask what a method has read, by name, the usual one first."""
        return method.ways or {self.method_name: method}

    def _room(self) -> int | None:
        """Bytes for what is kept on each device, beside the model; None: it is the host."""
        if not self.device.startswith("cuda"):
            return None
        places = self.devices or [self.device]
        # PyTorch keeps what a document that was closed has had.
        free = min((free_memory(name) or 0) + idle_memory(name) for name in places)
        return max(0, int(ROOM * free) - WORKING)

    def recorded(self) -> dict[str, str]:
        """How this engine computes; recorded in the manifest, not part of the model's identity."""
        found = {
            "device": self.device,
            "dtype": dtype_name(self.dtype),
            "torch": torch.__version__,
            "transformers": metadata.version("transformers"),
        }
        kernels = narrow.with_precision(computed_by(self.device), self.precision)
        found |= {} if kernels is None else {"kernels": kernels}
        return found if self.precision is None else {**found, "precision": self.precision}


@contextmanager
def memory_told(engine: Engine, remedy: str) -> Iterator[None]:
    """Turns running out of memory into an error that gives the sizes.

    Args:
        engine: the one that runs inside.
        remedy: what to do, besides another dtype, model or device.

    Raises:
        LongctxError: the device ran out of memory.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch's own errors are RuntimeErrors
        if not is_out_of_memory(error):
            raise
        weights = engine.files.num_parameters() * engine.dtype.itemsize
        peak, free = peak_memory(engine.device) or 0, free_memory(engine.device) or 0
        raise LongctxError(
            f"out of memory on {engine.device}",
            f"the model's weights take {show_bytes(weights)} in {dtype_name(engine.dtype)}, this "
            f"process held up to {show_bytes(peak)}, and {show_bytes(free)} are free",
            f"{remedy} Or use --dtype bf16, a smaller model, or another --device.",
        ) from error


def prepare(setup: Setup, recorded: Recorded | None = None) -> Engine:
    """Resolves everything that a setup names; loads no weights.

    Args:
        setup: the user's choices.
        recorded: what a document was read with; it applies where the user chose nothing.

    Raises:
        UsageError: an unknown name, an option that does not fit the method or decode policy, an
            unknown `gather_by` in the profile, a chat template that gives no prompt, or a value of
            LONGCTX_KERNELS that asks for unavailable kernels.
    """
    recorded = recorded or Recorded()
    name = setup.model or recorded.model or BUNDLED
    devices = chosen_devices(setup)
    device = devices[0] if devices else choose_device(setup.device)
    dtype = choose_dtype(setup.dtype, device)
    _require_kernels(device)
    set_threads(setup.threads)
    files = open_model_files(name)
    described = describe(files, name)
    chosen, told = profile_of(setup, recorded, described)
    chosen = replace(chosen, prompt=(prompt := resolve(chosen.prompt, files.tokenizer)))
    policies.check(chosen.decoding)
    gather_by.check(chosen.gather_by)
    window = chosen.window or files.config.max_position_embeddings
    method, options, notes = method_of(setup, recorded, chosen, described, window)
    engine = Engine(
        files=files,
        profile=chosen,
        method_name=method,
        options=options,
        device=device,
        dtype=dtype,
        prompt=PromptEncoder(prompt, files.tokenizer),
        window=window,
        asked_with=setup.method if recorded.method else None,
        decoding=policy(setup.decode, chosen),
        notes=(*told, *notes),
        dtype_chosen=setup.dtype != "auto",
        precision=narrow.chosen(setup.precision, device, dtype, bool(devices)),
        devices=devices,
        max_memory=setup.max_memory,
    )
    other = answering(setup)
    if other is not None:
        engine.answerer = prepare(other)
        if engine.answerer.key == engine.key:
            engine.answerer.lender = engine
    if _log.isEnabledFor(logging.INFO):
        _tell(engine)
    return engine


def chosen_devices(setup: Setup) -> tuple[str, ...]:
    """Several devices, to split layers over; empty: one is used.

    Raises:
        UsageError: they are not there, or do not go with another option.
    """
    if setup.devices is None:
        if setup.max_memory is not None:
            why = "it limits each of several devices"
            raise UsageError("--max-memory needs --devices", why, "Name them, or leave it out.")
        return ()
    if setup.device != "auto":
        raise UsageError("cannot take both --device and --devices", "", "Give one of them.")
    return choose_devices(setup.devices)


def _tell(engine: Engine) -> None:
    """Logs what was chosen."""
    files, dtype = engine.files, dtype_name(engine.dtype)
    parameters = files.num_parameters()
    facts(
        _log,
        "model %s (%s, %s parameters, window %s) on %s in %s with %s threads",
        *(files.name, files.config.model_type, f"{parameters:,}", f"{engine.window:,}"),
        *(engine.device, dtype, torch.get_num_threads()),
        model={
            "name": files.name,
            "type": files.config.model_type,
            "parameters": parameters,
            "window": engine.window,
        },
        device={
            "device": engine.device,
            "name": device_name(engine.device),
            "dtype": dtype,
            "threads": torch.get_num_threads(),
        },
    )
    facts(
        _log,
        "profile %s, method %s, decoding %s",
        *(engine.profile.name, engine.method_name, engine.answering.decoding.name),
        profile=engine.profile.name,
        method=engine.method_name,
        decode=engine.answering.decoding.name,
    )
    _log.debug("options of %s: %s", engine.method_name, engine.options)
    for note in engine.notes:
        _log.info("%s", note)


def beside(engine: Engine, manifest: Manifest) -> Engine:
    """The same model for another document, with the method and options that document was read with.

    Args:
        engine: its profile, device and weights, if loaded, stay in use.
        manifest: the document's.

    Raises:
        UsageError: an option that does not fit the method.
    """
    _, options = options_of(manifest.method, manifest.options, engine.window)
    return replace(engine, method_name=manifest.method, options=options, notes=())


def policy(text: str | None, chosen: Profile) -> Decoding:
    """The decode policy that a user names, else the profile's.

    Raises:
        UsageError: an unknown policy or option, or a value that does not fit it.
    """
    return policies.choose(chosen.decode if text is None else text, chosen.decoding)


def _require_kernels(device: str) -> None:
    try:
        choice.require(device)
    except choice.CannotChoose as error:
        raise UsageError(*error.args) from error
