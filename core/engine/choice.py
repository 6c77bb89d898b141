"""Choices: the names that a user gives or a document records, and a method's options.

Imports no model libraries; `core/engine/setup.py` opens what is chosen.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from longctx.core import methods
from longctx.core.common import dtypes, pasting
from longctx.core.common.errors import UsageError
from longctx.core.profile import profile
from longctx.core.profile.described import HEADS, Described
from longctx.core.profile.profile import Profile
from longctx.core.retrieve import gather_by
from longctx.core.store.manifest import Manifest


@dataclass(frozen=True)
class Setup:
    """What a user can choose about the model; each field has a flag of its name.

    Attributes:
        model: `tiny`, a GGUF file, a folder, or a hub name; None: the bundled model, or the
            document's own.
        profile: a profile's name or YAML file; None: the one made for the model.
        method: reading method; None: the profile's. For a document: the way to ask it.
        keep_kv: when reading, keep keys and values too, if the method can.
        kv_dtype: when reading, how they are kept; None: as the profile says.
        precision: when reading, of a chunk's products: `full`, as the dtype says, or `fp8`; None:
            as the document was begun, else full.
        decode: when asking, decode policy, `NAME` or `NAME:OPTION=VALUE,...`; None: the profile's.
        answer_model: when asking, the model that answers from the gathered text; None: the one
            that searches.
        answer_profile: its profile's name or YAML file; None: the one made for it.
        answer_with: when asking, the address of a server whose model answers from the gathered
            text; None: none does, and nothing leaves this computer.
        server_model: that model, as the server names it; None: the only one that it has.
        device: auto, cpu, mps, cuda or cuda:N.
        devices: several devices, with commas, over which the layers are split, or `all` GPUs; None:
            only `device`.
        max_memory: bytes of weights that each of these may hold; None: any number.
        dtype: auto, bf16, fp16 or fp32; of this and `kv_dtype`, torch's names become ours.
        threads: CPU threads; None: see `set_threads`.
    """

    model: str | None = None
    profile: str | None = None
    method: str | None = None
    keep_kv: bool = False
    kv_dtype: str | None = None
    decode: str | None = None
    answer_model: str | None = None
    answer_profile: str | None = None
    answer_with: str | None = None
    server_model: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None
    devices: str | None = None
    max_memory: int | None = None
    precision: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtypes.short(self.dtype))
        if self.kv_dtype is not None:
            object.__setattr__(self, "kv_dtype", dtypes.short(self.kv_dtype))


WHOLE = "full"  # the method of a model that only answers: its prompt is attended to as it is


def answering(setup: Setup) -> Setup | None:
    """The setup of another model that answers; None: the one that searches answers too.

    Raises:
        UsageError: a profile is named for a model that is not.
    """
    if setup.answer_model is None:
        if setup.answer_profile is not None:
            raise UsageError(
                f"cannot use the answering model's profile {setup.answer_profile!r}",
                "no such model is named",
                "Give --answer-model too, or --profile in its place.",
            )
        return None
    return Setup(
        model=setup.answer_model,
        profile=setup.answer_profile,
        method=WHOLE,
        decode=setup.decode,
        device=setup.device,
        dtype=setup.dtype,
        threads=setup.threads,
    )


@dataclass(frozen=True)
class Recorded:
    """What a document's manifest says about how it was read.

    Attributes:
        model: the model's name.
        profile: the profile's fields.
        method, options: the reading method and its options; they cannot be changed.
    """

    model: str | None = None
    profile: dict[str, Any] | str | None = None
    method: str | None = None
    options: dict[str, Any] | None = None


def recorded(manifest: Manifest) -> Recorded:
    """What a document records about how it was read.

    A profile with a `threshold` predates retrieval by words and meaning together. Its `gather_by`
    was `method` by default, so today's default replaces that. `reading`, which older profiles have,
    said how passages were put before a model that is gone.
    """
    own = manifest.profile
    if isinstance(own, dict):
        gone = {"threshold", "reading"}
        if "threshold" in own and own.get("gather_by") == gather_by.METHOD:
            gone.add("gather_by")
        own = {key: value for key, value in own.items() if key not in gone}
    return Recorded(manifest.model["name"], own, manifest.method, manifest.options)


def profile_of(setup: Setup, recorded: Recorded, model: Described) -> tuple[Profile, list[str]]:
    """The document's profile unless the user names one, else the one made for the model.

    It is empty where there is none; `method_of` then goes by rule.

    Returns:
        The profile, and what a person should know of its choice.

    Raises:
        UsageError: there is no such profile, or it cannot be used.
    """
    if setup.profile is not None:
        chosen = profile.find(setup.profile)
        other = model.shape.differences(chosen.shape) if chosen.shape else []
        told = f"profile {chosen.name!r} is for another shape: the model has {'; '.join(other)}"
        return chosen, [told] if other else []
    if recorded.profile is not None:
        return profile.parse(recorded.profile, "the document's profile"), []
    made = profile.made_for(model)
    if made is None:
        return Profile(Path(model.names[0]).name), []
    if profile.is_called(model, made):
        return made, []
    return _by_shape(made, model), [
        f"the model's name is not known: it has the shape of profile {made.name!r}, so that one's "
        "heads and sizes are used (--profile names another)"
    ]


def _by_shape(made: Profile, model: Described) -> Profile:
    """The profile of what a model was probably made from; its prompt and window are its own."""
    prompt = None if model.has_template else made.prompt
    return replace(made, prompt=prompt, window=min(made.window or model.window, model.window))


def method_of(
    setup: Setup, recorded: Recorded, chosen: Profile, model: Described, window: int
) -> tuple[str, Any, tuple[str, ...]]:
    """The method, its options fitted to a model's window, and what people should know of them.

    Raises:
        UsageError: as `options_of`, or the user asks for what the method cannot do, or the options
            name heads that the model does not have.
    """
    method = recorded.method or _method(setup, chosen)
    values, by_rule = recorded.options, False
    if values:
        values = methods.load(method).Options.recorded(values)
    else:
        values, by_rule = _values(setup, chosen, method, model, window)
    wanted, options = options_of(method, values, window)
    options.require_heads(model)
    notes = [_by_rule(model)] if by_rule else []
    return method, options, (*notes, *_differences(wanted, options, window))


def _by_rule(model: Described) -> str:
    name = pasting.word(model.names[0], "MODEL")
    return (
        "no profile names heads of this model: they are chosen by rule (docs/profiles.md); "
        f"`longctx calibrate {name}` would do better"
    )


def options_of(method: str, values: dict[str, Any], window: int) -> tuple[Any, Any]:
    """A method's options as given, and as fitted to a model's window.

    Raises:
        UsageError: an option is unknown, or does not fit.
    """
    options = methods.load(method).Options
    wanted = profile.build(options, values, f"options of method {method!r}")
    return wanted, wanted.fitted(window)


def _method(setup: Setup, chosen: Profile) -> str:
    """The method to read with.

    Raises:
        UsageError: it cannot keep keys and values, but `keep_kv` asks for that.
    """
    name = setup.method or chosen.method
    if not setup.keep_kv:
        return name
    with_kv = methods.load(name).Method.capabilities.with_kv
    if with_kv is None:
        raise UsageError(
            f"--keep-kv is not for the method {name!r}",
            "it is for methods that keep something else, and can keep keys and values beside it",
            "Leave it out, or use --method reform.",
        )
    return with_kv


def _values(
    setup: Setup, chosen: Profile, method: str, model: Described, window: int
) -> tuple[dict[str, Any], bool]:
    """A method's options from the profile and the user, and whether heads among them are by rule.

    Raises:
        UsageError: the user gives an option that the method does not have.
    """
    parts = methods.load(method).Options.parts
    sections, by_rule = {}, False
    for part in parts or (method,):
        options, given = methods.load(part).Options, _section(chosen.methods, part)
        lacks_heads = HEADS not in given and HEADS in {each.name for each in fields(options)}
        if lacks_heads or not given:
            rule = options.by_rule(model, window)
            given = {HEADS: rule[HEADS], **given} if given else rule
        sections[part], by_rule = given, by_rule or lacks_heads
    if setup.kv_dtype is not None:
        _set_kv_dtype(setup.kv_dtype, method, sections)
    return sections if parts else sections[method], by_rule


def _set_kv_dtype(kv_dtype: str, method: str, sections: dict[str, dict[str, Any]]) -> None:
    """Writes the user's choice into the options of the methods that can make it.

    Raises:
        UsageError: none can.
    """
    able = [part for part in sections if methods.load(part).Options.kv_dtype is not None]
    if not able:
        raise UsageError(
            f"--kv-dtype is not for the method {method!r}",
            "it cannot choose how keys and values are kept",
            "Leave it out, or add --keep-kv, or use --method reattention.",
        )
    for part in able:
        sections[part]["kv_dtype"] = kv_dtype


def _section(given: dict[str, Any], method: str) -> dict[str, Any]:
    """A method's part of a profile, which may be left empty.

    Raises:
        UsageError: it is not a mapping.
    """
    values = given.get(method)
    if not isinstance(values, dict | None):
        what, kind = f"cannot use the options of method {method!r}", type(values).__name__
        raise UsageError(what, f"it is {kind}, not a mapping", "Correct the profile.")
    return dict(values or {})


def _differences(wanted: Any, got: Any, window: int) -> Iterator[str]:
    """The changes to a method's options that fit them to the model's window."""
    for option in fields(got):
        before, after = getattr(wanted, option.name), getattr(got, option.name)
        if is_dataclass(after):
            yield from _differences(before, after, window)
        elif before != after:
            yield f"{option.name} is {after}, not {before}: the model's window is {window:,} tokens"
