"""Choices: the names that a user gives or a document records, and a method's options.

Imports no model libraries; `core/engine/setup.py` opens what is chosen.
"""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from longctx.core import methods
from longctx.core.common.errors import UsageError
from longctx.core.profile import profile
from longctx.core.profile.profile import Profile
from longctx.core.retrieve import gather_by
from longctx.core.store.manifest import Manifest


@dataclass(frozen=True)
class Setup:
    """What a user can choose about the model; each field has a flag of its name.

    Attributes:
        model: `tiny`, `small`, a GGUF file, a folder, or a hub name; None: the bundled model, or
            the document's own.
        profile: a profile's name or YAML file; None: the one made for the model.
        method: reading method; None: the profile's. For a document: the way to ask it.
        keep_kv: when reading, keep keys and values too, if the method can.
        kv_dtype: when reading, how they are kept; None: as the profile says.
        decode: when asking, decode policy, `NAME` or `NAME:OPTION=VALUE,...`; None: the profile's.
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
    was `method` by default, so today's default replaces that.
    """
    own = manifest.profile
    if isinstance(own, dict) and "threshold" in own:
        gone = {"threshold", *(["gather_by"] if own.get("gather_by") == gather_by.METHOD else [])}
        own = {key: value for key, value in own.items() if key not in gone}
    return Recorded(manifest.model["name"], own, manifest.method, manifest.options)


def profile_of(setup: Setup, recorded: Recorded, model: str) -> Profile:
    """The document's profile unless the user names one, else the one named or made for the model.

    It is empty where nothing needs it.

    Raises:
        UsageError: there is no such profile, or it cannot be used.
    """
    if recorded.profile is not None and setup.profile is None:
        return profile.parse(recorded.profile, "the document's profile")
    if setup.profile is None and setup.method and profile.made_for(model) is None:
        options = fields(methods.load(setup.method).Options)
        if not any(f.default is MISSING and f.default_factory is MISSING for f in options):
            return Profile(Path(model).name)
    return profile.find(setup.profile, model)


def method_of(
    setup: Setup, recorded: Recorded, chosen: Profile, window: int
) -> tuple[str, Any, tuple[str, ...]]:
    """The method, its options fitted to a model's window, and what was changed to fit them.

    Raises:
        UsageError: as `options_of`, or the user asks for what the method cannot do.
    """
    method = recorded.method or _method(setup, chosen)
    wanted, options = options_of(method, recorded.options or _values(setup, chosen, method), window)
    return method, options, tuple(_differences(wanted, options, window))


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


def _values(setup: Setup, chosen: Profile, method: str) -> dict[str, Any]:
    """A method's options from the profile and the user.

    Raises:
        UsageError: the user gives an option that the method does not have.
    """
    given, parts = chosen.methods, methods.load(method).Options.parts
    values: dict[str, Any] = {part: _section(given, part) for part in parts}
    values = values or _section(given, method)
    if setup.kv_dtype is None:
        return values
    taken = False
    for part in parts or (method,):
        if methods.load(part).Options.kv_dtype is not None:
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
