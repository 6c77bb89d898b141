"""Which searches are computed here exactly; every other is left to torch.

A case that is not listed is not covered: a model, option or device of which nothing is known here.
What is wrong with a document or model is not covered either: `core/ask/` says what it is.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from longctx.core.common import accelerators
from longctx.core.engine.choice import Setup, recorded
from longctx.core.light.llama import Llama, layer_bytes
from longctx.core.light.reading import Cache, Options, floats_of
from longctx.core.model.files import BUNDLED, ModelFiles, open_model_files
from longctx.core.model.plain_config import PlainConfig
from longctx.core.profile import profile
from longctx.core.profile.profile import PromptTemplate
from longctx.core.profile.prompt import PromptEncoder
from longctx.core.store.document import Document
from longctx.core.store.facts import Facts
from longctx.core.store.manifest import UNITS, Manifest

READ_BY = "reform"  # the method whose memory is in `reading.py`
ROWS = "embeddings"  # its group of rows
AT_ONCE = 4096  # tokens of a short document that are read again, at most
WEIGHTS = 256 << 20  # bytes in float32 of the layers that run, at most
SEARCHES = frozenset({"hybrid", "maxsim"})  # gather sources
NOT_USED = frozenset({"pool", "gather"})  # options that `find` does not need


class NotCovered(Exception):
    """This search is left to torch."""


@dataclass(frozen=True)
class Case:
    """What a search needs of a model and a document.

    Attributes:
        files: of the model.
        gathers_by: the gather source.
        profile: the name of the document's profile.
        options: of the method.
        model: its lowest layers.
        prompt: encodes prefix and question.
        caches: of each layer, as stored; None: the prefix is read, or all of a short document.
        window: tokens that the model was trained on.
    """

    files: ModelFiles
    gathers_by: str
    profile: str
    options: Options
    model: Llama
    prompt: PromptEncoder
    caches: dict[int, Cache] | None
    window: int


def may_be(setup: Setup, manifest: Manifest | Facts, gather_by: str | None) -> bool:
    """Whether a search may be covered, by what is known before anything is opened.

    Args:
        setup: the user's choices.
        manifest: of the document, or its facts.
        gather_by: the gather source that the user names.
    """
    return (
        setup.method is setup.profile is setup.answer_model is None
        and setup.model in (None, BUNDLED)
        and setup.dtype in ("auto", "fp32")
        and (setup.device == "cpu" or (setup.device == "auto" and accelerators.has_none()))
        and (gather_by is None or gather_by in SEARCHES)
        and (manifest.status, manifest.method) == ("complete", READ_BY)
        and manifest.model["name"] == BUNDLED
        and not os.environ.get("LONGCTX_KERNELS")  # who chooses kernels wants them
    )


def case_of(document: Document, gather_by: str | None) -> Case:
    """What is needed to search a document.

    Raises:
        NotCovered: torch must do it.
        LongctxError: the files of the model or the document cannot be used.
    """
    manifest = document.manifest
    own = recorded(manifest).profile
    files = open_model_files(manifest.model["name"])
    if not isinstance(own, dict) or not isinstance(files.config, PlainConfig):
        raise NotCovered
    document.require_model(files.fingerprint().as_dict())
    chosen = profile.parse(own, "the document's profile")
    gathers_by = gather_by or chosen.gather_by
    if not isinstance(chosen.prompt, PromptTemplate) or gathers_by not in SEARCHES:
        raise NotCovered
    options = _options(manifest.options)
    model = _model(files, options)
    caches = _caches(document, model) if document.has_snapshot else None
    if caches is None and not (manifest.is_bare or manifest.units != UNITS[0]):
        raise NotCovered
    _require_rows(document, model, options)
    prompt = PromptEncoder(chosen.prompt, files.tokenizer)
    window = chosen.window or files.config.max_position_embeddings
    return Case(files, gathers_by, chosen.name, options, model, prompt, caches, window)


def _options(recorded: dict[str, Any]) -> Options:
    """The options that a document records."""
    given = {name: value for name, value in recorded.items() if name not in NOT_USED}
    if given.pop("accumulate", None) is not False:
        raise NotCovered
    try:
        heads = tuple((layer, kind, head) for layer, kind, head in given.pop("heads"))
        options = Options(heads, **given)
    except (KeyError, TypeError, ValueError) as error:
        raise NotCovered from error
    sizes = (options.chunk, options.budget, options.first, options.last, options.queries)
    if not heads or any(type(size) is not int or size < 0 for size in sizes):
        raise NotCovered
    if not (options.queries <= options.chunk and options.first + options.last <= options.budget):
        raise NotCovered
    return options


def _model(files: ModelFiles, options: Options) -> Llama:
    """The layers that the heads of the options need."""
    config = files.config
    counts = {"q": config.num_attention_heads, "k": config.num_key_value_heads}
    counts["v"] = counts["k"]
    for layer, kind, head in options.heads:
        if not (0 <= layer < config.num_hidden_layers and 0 <= head < counts.get(kind, 0)):
            raise NotCovered
    if config.attention_bias or config.mlp_bias or layer_bytes(config, options.depth) > WEIGHTS:
        raise NotCovered
    try:
        return Llama(config, Path(files.loadable("fp32")), options.depth)
    except ValueError as error:
        raise NotCovered from error


def _caches(document: Document, model: Llama) -> dict[int, Cache]:
    """The caches of the layers below the last one, if they are all that a snapshot has."""
    found = document.snapshot_arrays()
    count, (_, G) = model.depth - 1, model.heads
    names = {f"{kind}.{i}" for kind in ("keys", "values", "positions") for i in range(count)}
    if set(found) != {*names, "seen"} or not int(found["seen"][1]):
        raise NotCovered
    seen, caches = int(found["seen"][1]), {}
    for index in range(count):
        dtype, positions = found[f"positions.{index}"]
        in_order = dtype == "int64" and positions.ndim == 2 and len(positions) == G
        if not (in_order and positions.size and (np.diff(positions) > 0).all()):
            raise NotCovered
        if positions.min() < 0 or positions.max() >= seen:
            raise NotCovered
        parts = [floats_of(*found[f"{kind}.{index}"]) for kind in ("keys", "values")]
        shape = (*positions.shape, model.head_dim)
        if any(part is None or part.shape != shape for part in parts):
            raise NotCovered
        caches[index] = Cache(*(part for part in parts if part is not None))
    return caches


def _require_rows(document: Document, model: Llama, options: Options) -> None:
    """Lets through a document with rows of these heads, or a short one that is read again."""
    manifest = document.manifest
    if manifest.is_bare:
        if manifest.tokens > AT_ONCE:
            raise NotCovered
        return
    heads = len(options.heads)
    form = {"vectors": ("int8", (heads, model.head_dim)), "scales": ("float16", (heads,))}
    if document.form(ROWS) != (form, manifest.tokens):
        raise NotCovered
