"""Makes the profile of a calibrated model: its old profile with the heads that were found.

Only heads and spans change. Method sizes that the profile does not set are derived from the model's
window.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import yaml

from longctx.core import methods
from longctx.core.engine.setup import Engine
from longctx.core.measure.calibrate.choosing import Head
from longctx.core.measure.calibrate.copying import RetrievalHead
from longctx.core.model.describe import describe
from longctx.core.profile import profile
from longctx.core.profile.chat import resolve
from longctx.core.profile.described import HEADS, Shape
from longctx.core.profile.profile import Profile
from longctx.core.profile.sampling import Sampling

REFORM, LTRI = "reform", "ltri"  # sections that are written
ANY_HEAD = ((0, "q", 0),)  # placeholder for REFORM's heads before they are known
FITTED = ("theta", "phi", "lam")
HEADER = "# Made by `longctx calibrate`; docs/profiles.md and docs/calibration.md explain it.\n"


def text(
    engine: Engine,
    name: str,
    description: str,
    heads: Sequence[Head],
    retrieval: Sequence[RetrievalHead],
    spans: dict[str, Any],
) -> str:
    """A complete and valid profile as YAML.

    Args:
        engine: the model, with its old profile.
        name: the profile's.
        description: one line.
        heads: REFORM's.
        retrieval: Ltri-LLM's, one per layer; none: its section stays as it was.
        spans: theta, phi and lam, by layer.

    Raises:
        UsageError: the old profile has invalid options.
    """
    before = engine.profile
    values: dict[str, Any] = {
        "name": name,
        "models": [engine.files.name],
        "description": description,
        "shape": asdict(Shape.of(engine.files.config)),
        "window": engine.window,
        "prompt": asdict(resolve(before.prompt, engine.files.tokenizer)),
        "max_new_tokens": before.max_new_tokens,
        **_changed(before),
        "method": before.method,
        "methods": _methods(before, usual(engine), heads, retrieval, spans),
    }
    how = {"sort_keys": False, "allow_unicode": True, "default_flow_style": None, "width": 1 << 16}
    written = HEADER + yaml.dump(_plain(values), Dumper=_Dumper, **how)
    _options(profile.load(written, f"profile {name!r}"))
    return written


def require_fit(engine: Engine) -> dict[str, Any]:
    """The new profile's options by method, before heads and spans are known.

    Args:
        engine: the model with the profile to calibrate with; an empty section of that means sizes
            by rule.

    Raises:
        UsageError: an unknown method, or invalid options of one.
    """
    before = engine.profile
    return _options(replace(before, methods=_methods(before, usual(engine), ANY_HEAD, (), {})))


def usual(engine: Engine) -> dict[str, Any]:
    """Sizes by rule of the sections that are written."""
    model, found = describe(engine.files, engine.files.name), {}
    for name in (REFORM, LTRI):
        rule = methods.load(name).Options.by_rule(model, engine.window)
        found[name] = {key: value for key, value in rule.items() if key != HEADS}
    return found


def _changed(before: Profile) -> dict[str, Any]:
    """Other settings that differ from the defaults."""
    usual = Profile("")
    found = {
        name: getattr(before, name)
        for name in ("decode", "decoding", "gather_by")
        if getattr(before, name) != getattr(usual, name)
    }
    if before.sampling != Sampling():
        given = asdict(before.sampling).items()
        found["sampling"] = {key: value for key, value in given if value is not None}
    return found


def _methods(
    before: Profile,
    sizes: dict[str, Any],
    heads: Sequence[Head],
    retrieval: Sequence[RetrievalHead],
    spans: dict[str, Any],
) -> dict[str, Any]:
    given = {name: values or {} for name, values in before.methods.items()}
    found = {**given, REFORM: _with(given.get(REFORM) or sizes[REFORM], {"heads": heads})}
    if retrieval:
        fitted = {name: [round(value, 4) for value in spans[name]] for name in FITTED}
        taken = [(each.layer, each.head, round(each.score, 3)) for each in retrieval]
        found[LTRI] = _with(given.get(LTRI) or sizes[LTRI], {"heads": taken, **fitted})
    return found


def _with(section: Any, found: dict[str, Any]) -> Any:
    """A section with what was found; `_options` refuses one that is not a mapping."""
    return {**section, **found} if isinstance(section, dict) else section


class _Dumper(yaml.SafeDumper):
    """Writes texts that contain line feeds on one line, in quotes."""

    def represent_text(self, text: str) -> yaml.Node:
        style = '"' if "\n" in text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


def _plain(values: Any) -> Any:
    """The same values in lists and mappings."""
    if isinstance(values, dict):
        return {key: _plain(value) for key, value in values.items()}
    return [_plain(value) for value in values] if isinstance(values, list | tuple) else values


def _options(made: Profile) -> dict[str, Any]:
    """Options by method; UsageError if some are invalid."""
    methods.load(made.method)
    return {
        name: profile.build(methods.load(name).Options, values, f"options of method {name!r}")
        for name, values in made.methods.items()
    }
