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
from longctx.core.profile import profile
from longctx.core.profile.chat import resolve
from longctx.core.profile.profile import Profile
from longctx.core.profile.sampling import Sampling

REFORM, LTRI = "reform", "ltri"  # sections that are written
ANY_HEAD = ((0, "q", 0),)  # placeholder for REFORM's heads before they are known
FITTED = ("theta", "phi", "lam")
LARGEST, MOST = 8192, 16384  # tokens: of chunk and budget; gathered for a question
EDGE = 256  # first and last tokens that are always kept
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
        "window": engine.window,
        "prompt": asdict(resolve(before.prompt, engine.files.tokenizer)),
        "max_new_tokens": before.max_new_tokens,
        **_changed(before),
        "method": before.method,
        "methods": _methods(before, engine.window, heads, retrieval, spans),
    }
    how = {"sort_keys": False, "allow_unicode": True, "default_flow_style": None, "width": 1 << 16}
    written = HEADER + yaml.dump(_plain(values), Dumper=_Dumper, **how)
    _options(profile.load(written, f"profile {name!r}"))
    return written


def require_fit(before: Profile, window: int) -> dict[str, Any]:
    """The new profile's options by method, before heads and spans are known.

    Args:
        before: the profile to calibrate with; an empty section means the method's defaults.
        window: tokens that the model was trained on.

    Raises:
        UsageError: an unknown method, or invalid options of one.
    """
    return _options(replace(before, methods=_methods(before, window, ANY_HEAD, (), {})))


def sizes(window: int) -> dict[str, int]:
    """REFORM's sizes for a window."""
    chunk = min(LARGEST, window // 4)
    edge = min(EDGE, chunk // 8)
    gather = min(MOST, window // 2)
    return {"chunk": chunk, "budget": chunk, "first": edge, "last": edge, "gather": gather}


def blocks(window: int) -> dict[str, int]:
    """Ltri-LLM's sizes for a window that is smaller than its defaults need; else nothing."""
    usual = methods.load(LTRI).Options()
    if usual.window <= window:
        return {}
    local = max(1, window // 4 // usual.block) * usual.block
    gather = min(usual.gather, window // 2)
    return {"local": local, "chunk": min(usual.chunk, local), "gather": gather}


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
    usual_reading = asdict(usual.reading)
    if differs := {k: v for k, v in asdict(before.reading).items() if v != usual_reading[k]}:
        found["reading"] = differs
    return found


def _methods(
    before: Profile,
    window: int,
    heads: Sequence[Head],
    retrieval: Sequence[RetrievalHead],
    spans: dict[str, Any],
) -> dict[str, Any]:
    given = {name: values or {} for name, values in before.methods.items()}
    found = {**given, REFORM: _with(given.get(REFORM) or sizes(window), {"heads": heads})}
    if retrieval:
        fitted = {name: [round(value, 4) for value in spans[name]] for name in FITTED}
        taken = [(each.layer, each.head, round(each.score, 3)) for each in retrieval]
        found[LTRI] = _with(given.get(LTRI) or blocks(window), {"heads": taken, **fitted})
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
