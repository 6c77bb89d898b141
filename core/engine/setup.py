"""From the names a user gives to a model ready to run, with its profile, method and device."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch

from longctx.core import methods
from longctx.core.common.device import (
    choose_device,
    choose_dtype,
    device_name,
    dtype_name,
    free_memory,
    is_out_of_memory,
    peak_memory,
    set_threads,
)
from longctx.core.common.errors import LongctxError, StateMismatch, UsageError
from longctx.core.common.telemetry import facts, stage
from longctx.core.contracts.memory import Method, Place, Rows, Snapshot, Stored
from longctx.core.decode import policies
from longctx.core.decode.policies import Decoding
from longctx.core.engine.encode import encode
from longctx.core.model.adapter import Decoder
from longctx.core.model.files import BUNDLED, ModelFiles, open_model_files, require_fit
from longctx.core.model.load import load_decoder
from longctx.core.model.weights import cached_json
from longctx.core.profile import profile
from longctx.core.profile.chat import resolve
from longctx.core.profile.profile import Profile
from longctx.core.profile.prompt import PromptEncoder
from longctx.core.retrieve import gather_by
from longctx.core.store.document import Document
from longctx.core.store.manifest import UNITS, Manifest
from longctx.core.store.shards import AGAIN
from longctx.kernels import choice

_log = logging.getLogger(__name__)

ROOM = 0.95  # of a GPU's free memory is used
WORKING = 2 << 30  # bytes that are left for what a chunk needs for a moment


@dataclass(frozen=True)
class Setup:
    """What a user may choose about the model; every field has a flag of its name.

    Attributes:
        model: `tiny`, a folder, or a hub name; None: the bundled model, or the document's own.
        profile: a profile's name or YAML file; None: the one made for the model.
        method: reading method; None: the profile's. Of a document: the way to ask it.
        keep_kv: keep keys and values too, if the method can; when reading.
        kv_dtype: how they are kept; None: as the profile says; when reading.
        decode: decode policy, `NAME` or `NAME:OPTION=VALUE,...`; None: the profile's; when asking.
        device: auto, cpu, mps, cuda or cuda:N.
        dtype: auto, bf16, fp16 or fp32.
        threads: CPU threads; None: PyTorch's choice.
    """

    model: str | None = None
    profile: str | None = None
    method: str | None = None
    keep_kv: bool = False
    kv_dtype: str | None = None
    decode: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None


@dataclass(frozen=True)
class Recorded:
    """What a document's manifest says of how it was read.

    Attributes:
        model: the model's name.
        profile: the profile's fields.
        method, options: the reading method and its options; they cannot be chosen anew.
    """

    model: str | None = None
    profile: dict[str, Any] | None = None
    method: str | None = None
    options: dict[str, Any] | None = None


@dataclass
class Engine:
    """A chosen model with all that belongs to it; the weights are loaded when first needed.

    Attributes:
        files: the model's files.
        profile: its profile, with the prompt as text, wherever that came from.
        method_name: the reading method.
        options: that method's options.
        device, dtype: where and in what to compute.
        prompt: encodes prefix and question.
        window: tokens that the model was trained on.
        asked_with: the method that the user names for a document; None: the usual one.
        decoding: how answers are decoded, unless a question says otherwise.
        notes: what was decided otherwise than the profile says, for people.
        dtype_chosen: the user named the dtype; else what was begun is gone on with in its own.
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
    _decoder: Decoder | None = field(default=None, repr=False)

    @property
    def decoder(self) -> Decoder:
        """The loaded model.

        Raises:
            LongctxError: it does not fit, or does not run exactly.
        """
        if self._decoder is None:
            key = str(self.files.folder), self.device, self.dtype
            self._decoder = _staying.get(key) or self._load()
            if _stays:
                _staying[key] = self._decoder
        return self._decoder

    def _load(self) -> Decoder:
        require_fit(self.files, self.device, self.dtype, free_memory(self.device))
        with stage(_log, "load_model", f"model {self.files.name}: weights loaded"):
            return load_decoder(
                str(self.files.folder),
                self.files.config,
                self.device,
                self.dtype,
                cached_json("self-checks.json"),
            )

    def new_method(
        self,
        snapshot: Snapshot | None = None,
        stored: Stored | None = None,
        reading: bool = False,
        tokens: int = 0,
    ) -> Method:
        """A memory of the chosen method, fresh or as a document left it.

        Args:
            snapshot, stored: of the document; tensors on the CPU, in the dtype in which they were
                computed.
            reading: it will go on reading the document; else it is asked.
            tokens: about how many tokens it will hold, where that is known.
        """
        layers = self.decoder.layers
        place = Place(self.device, self.dtype, tokens, self._room())
        method = methods.load(self.method_name).Method(self.options, layers, place)
        if snapshot is not None:
            method.restore(snapshot, stored, reading)
        return method

    def method_of(self, document: Document, snapshot: Snapshot | None) -> Method:
        """The memory of a document, to be asked.

        Args:
            document: the open document.
            snapshot: its own, as of `saved_snapshot`; None: it is made again, by reading the
                prefix, and behind it the document's tokens where they were read as one text.

        Raises:
            StateMismatch: the document is damaged, or of another method.
        """
        if snapshot is None:
            snapshot = self._snapshot_again(document)
        return self.new_method(snapshot, document)

    def _snapshot_again(self, document: Document) -> Snapshot:
        method, prefix = self.new_method(), self._prefix_of(document)
        whole = document.manifest.units == UNITS[0]
        ids = self._ids_of(document) if whole else ()
        with stage(_log, "read_again", f"{document.manifest.name}: its snapshot made again"):
            for _ in encode(self.decoder, method, prefix, ids, _Nowhere()):
                pass
        return {name: tensor.cpu() for name, tensor in method.snapshot().items()}

    def _prefix_of(self, document: Document) -> torch.Tensor:
        """What was read before a document; the user may ask with another profile."""
        own = recorded(document.manifest).profile
        if not isinstance(own, dict):
            return self.prompt.prefix()
        template = profile.parse(own, "the document's profile").prompt
        return PromptEncoder(resolve(template, self.files.tokenizer), self.files.tokenizer).prefix()

    def _ids_of(self, document: Document) -> Iterator[torch.Tensor]:
        for _, rows in document.rows("tokens", ("ids",)):
            ids = rows["ids"].long()
            if ((ids < 0) | (ids >= self.files.config.vocab_size)).any():
                why = "it has tokens that the model does not have"
                raise StateMismatch(f"'{document.manifest.name}' is damaged", why, AGAIN)
            yield ids

    def _room(self) -> int | None:
        """Bytes that what is kept may take beside the model; None: the device is the host."""
        if not self.device.startswith("cuda"):
            return None
        return max(0, int(ROOM * (free_memory(self.device) or 0)) - WORKING)

    def recorded(self) -> dict[str, str]:
        """How this engine computes; told in the manifest, not part of the model's identity."""
        import transformers

        return {
            "device": self.device,
            "dtype": dtype_name(self.dtype),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }


class _Nowhere:
    """Takes rows that the store has already."""

    def append(self, group: str, rows: Rows) -> None:
        """Drops them."""


def saved_snapshot(document: Document) -> Snapshot | None:
    """A document's snapshot; None where it was left out, because it can be made again.

    Raises:
        StateMismatch: the document is damaged.
    """
    return document.snapshot() if document.has_snapshot else None


_stays: list[None] = []  # one for each `weights_stay` that has been entered
_staying: dict[tuple[str, str, torch.dtype], Decoder] = {}


@contextmanager
def weights_stay() -> Iterator[None]:
    """Inside, a model is loaded once for all engines that want it, and stays until the end.

    For work that reads and asks many documents, each with an engine of its own. The model's files
    must not change meanwhile.
    """
    _stays.append(None)
    try:
        yield
    finally:
        _stays.pop()
        if not _stays:
            _staying.clear()


def recorded(manifest: Manifest) -> Recorded:
    """What a document says of how it was read.

    A profile with a `threshold` is one of before words and meaning decided together: its
    `gather_by` was `method` where nobody had chosen anything, so today's default is taken.
    """
    own = manifest.profile
    if isinstance(own, dict) and "threshold" in own:
        gone = {"threshold", *(["gather_by"] if own.get("gather_by") == gather_by.METHOD else [])}
        own = {key: value for key, value in own.items() if key not in gone}
    return Recorded(manifest.model["name"], own, manifest.method, manifest.options)


@contextmanager
def memory_told(engine: Engine, remedy: str) -> Iterator[None]:
    """Turns running out of memory into an error with the figures.

    Args:
        engine: what runs inside.
        remedy: what to do about it, beside another dtype, model or device.

    Raises:
        LongctxError: the device has no more memory.
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
            f"the model's weights take {weights / 1e9:.2f} GB in {dtype_name(engine.dtype)}, this "
            f"process held up to {peak / 1e9:.2f} GB, and {free / 1e9:.2f} GB are free",
            f"{remedy} Or use --dtype bf16, a smaller model, or another --device.",
        ) from error


def prepare(setup: Setup, recorded: Recorded | None = None) -> Engine:
    """Finds everything that a setup names; loads no weights.

    Args:
        setup: the user's choices.
        recorded: what a document says it was read with; it stands where the user chose nothing.

    Raises:
        UsageError: a name that does not exist, an option that does not fit the method or decode
            policy, a profile's `gather_by` that there is not, a chat template that gives no
            prompt, or a value of LONGCTX_KERNELS that asks for what there is not.
    """
    recorded = recorded or Recorded()
    name = setup.model or recorded.model or BUNDLED
    device = choose_device(setup.device)
    dtype = choose_dtype(setup.dtype, device)
    _require_kernels(device)
    set_threads(setup.threads)
    files = open_model_files(name)
    if recorded.profile is not None and setup.profile is None:
        chosen = profile.parse(recorded.profile, "the document's profile")
    else:
        chosen = _choose_profile(setup, name)
    chosen = replace(chosen, prompt=resolve(chosen.prompt, files.tokenizer))
    policies.check(chosen.decoding)
    gather_by.check(chosen.gather_by)
    method = recorded.method or _method(setup, chosen)
    values = recorded.options or _values(setup, chosen, method)
    window = chosen.window or files.config.max_position_embeddings
    wanted, options = _options(method, values, window)
    engine = Engine(
        files=files,
        profile=chosen,
        method_name=method,
        options=options,
        device=device,
        dtype=dtype,
        prompt=PromptEncoder(chosen.prompt, files.tokenizer),
        window=window,
        asked_with=setup.method if recorded.method else None,
        decoding=policy(setup.decode, chosen),
        notes=tuple(_differences(wanted, options, window)),
        dtype_chosen=setup.dtype != "auto",
    )
    if _log.isEnabledFor(logging.INFO):
        _tell(engine)
    return engine


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
        *(engine.profile.name, engine.method_name, engine.decoding.name),
        profile=engine.profile.name,
        method=engine.method_name,
        decode=engine.decoding.name,
    )
    _log.debug("options of %s: %s", engine.method_name, engine.options)
    for note in engine.notes:
        _log.info("%s", note)


def beside(engine: Engine, recorded: Recorded) -> Engine:
    """The same model for another document: with the method and options by which that was read.

    Args:
        engine: whose profile, device and weights, if they are loaded, stay in use.
        recorded: what the document says of itself.

    Raises:
        UsageError: an option that does not fit the method.
    """
    _, options = _options(recorded.method, recorded.options, engine.window)
    return replace(engine, method_name=recorded.method, options=options, notes=())


def _options(method: str, values: dict[str, Any], window: int) -> tuple[Any, Any]:
    """A method's options as they are given, and as they fit a model's window."""
    module = methods.load(method)
    wanted = profile.build(module.Options, values, f"options of method {method!r}")
    return wanted, module.fit(wanted, window) if hasattr(module, "fit") else wanted


def policy(text: str | None, chosen: Profile) -> Decoding:
    """The decode policy that a user names, or else the profile's.

    Raises:
        UsageError: an unknown policy or option, or a value that does not fit it.
    """
    return policies.choose(chosen.decode if text is None else text, chosen.decoding)


def _method(setup: Setup, chosen: Profile) -> str:
    """The method to read with.

    Raises:
        UsageError: it cannot keep keys and values, where that is wanted.
    """
    name = setup.method or chosen.method
    if not setup.keep_kv:
        return name
    with_kv = getattr(methods.load(name), "WITH_KV", None)
    if with_kv is None:
        raise UsageError(
            f"--keep-kv is not for the method {name!r}",
            "it is for methods that keep something else, and can keep keys and values beside it",
            "Leave it out, or use --method reform.",
        )
    return with_kv


def _values(setup: Setup, chosen: Profile, method: str) -> dict[str, Any]:
    """A method's options as the profile and the user give them.

    Raises:
        UsageError: the user gives some that the method does not have.
    """
    module, given = methods.load(method), chosen.methods
    parts = getattr(module, "PARTS", ())
    values = {part: _section(given, part) for part in parts} or _section(given, method)
    if setup.kv_dtype is None:
        return values
    taken = False
    for part in parts or (method,):
        if "kv_dtype" in {option.name for option in fields(methods.load(part).Options)}:
            (values[part] if parts else values)["kv_dtype"] = setup.kv_dtype
            taken = True
    if not taken:
        raise UsageError(
            f"--kv-dtype is not for the method {method!r}",
            "it cannot choose how keys and values are kept",
            "Leave it out, or add --keep-kv, or use --method reattention.",
        )
    return values


def _section(given: dict[str, Any], method: str) -> dict[str, Any]:
    """A method's part of a profile, which may be left empty.

    Raises:
        UsageError: it is no mapping.
    """
    values = given.get(method)
    if not isinstance(values, dict | None):
        what, kind = f"cannot use the options of method {method!r}", type(values).__name__
        raise UsageError(what, f"it is {kind}, not a mapping", "Correct the profile.")
    return dict(values or {})


def _differences(wanted: Any, got: Any, window: int) -> Iterator[str]:
    """What was changed of a method's options so that they fit the model's window."""
    for option in fields(got):
        before, after = getattr(wanted, option.name), getattr(got, option.name)
        if is_dataclass(after):
            yield from _differences(before, after, window)
        elif before != after:
            yield f"{option.name} is {after}, not {before}: the model's window is {window:,} tokens"


def _require_kernels(device: str) -> None:
    try:
        choice.require(device)
    except choice.CannotChoose as error:
        raise UsageError(*error.args) from error


def _choose_profile(setup: Setup, model: str) -> Profile:
    """The profile that is named or made for the model, or an empty one where nothing needs it."""
    if setup.profile is None and setup.method and profile.made_for(model) is None:
        options = fields(methods.load(setup.method).Options)
        if not any(f.default is MISSING and f.default_factory is MISSING for f in options):
            return Profile(Path(model).name)
    return profile.find(setup.profile, model)
