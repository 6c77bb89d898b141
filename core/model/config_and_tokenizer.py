"""Reads the configuration and the tokenizer in a model's folder; refuses what cannot be used."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from longctx.core.common import libraries
from longctx.core.common.errors import UsageError
from longctx.core.common.foreign import REMEDY, foreign
from longctx.core.model import known, plain_config, wrong
from longctx.core.model.architectures import language_model, require_known
from longctx.core.model.known import Known, KnownTokenizer
from longctx.core.model.weights import loaded_files, read_object, require_file

# A model's JSON objects, read here; the tokenizer is large, and only its library reads it.
CONFIG, SETTINGS, GENERATION = "config.json", "tokenizer_config.json", "generation_config.json"
TOKENIZER = "tokenizer.json"
OBJECTS = (CONFIG, SETTINGS, GENERATION, "special_tokens_map.json")
READ = (".json", ".jinja", ".safetensors")  # files that a library may open by itself
ADAPTER = "adapter_config.json"
# Code that comes with a model is never run, and the user is never asked to allow it.
OWN_CODE = {"local_files_only": True, "trust_remote_code": False}
# Sizes of a model: at least 1 if present.
SIZES = (
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_size",
    "vocab_size",
    "max_position_embeddings",
)


def require_whole(folder: Path, weights: bool) -> None:
    """Refuses a folder with an incomplete model, or with files that must not be opened.

    Args:
        folder: the model's.
        weights: it must have its weights too.

    Raises:
        UsageError: names the file in question.
    """
    with foreign(f"cannot read the folder {str(folder)!r}", "Name another folder."):
        names = sorted(folder.iterdir())
    if folder / CONFIG not in names:
        raise wrong.folder(folder)
    for file in names:
        if file.suffix in READ:
            require_file(file)
    if folder / ADAPTER in names:
        raise UsageError(
            f"cannot use the model in {str(folder)!r}",
            f"it has an adapter ({ADAPTER}), which would not be applied",
            "Merge the adapter into the model first, or take it out of the folder.",
        )
    for name in OBJECTS:
        if folder / name in names:
            read_object(folder / name)
    if weights:
        loaded_files(folder)


def described(folder: Path, name: str) -> tuple[Any, Any]:
    """The configuration and the fast tokenizer of a folder's model.

    What transformers made of the same files before is not made again, and where `plain.py` runs the
    model, transformers is not imported at all.

    Raises:
        UsageError: one of them cannot be used.
    """
    with foreign(f"cannot read model {name!r}"):
        key = known.key_of(folder)
    told, config = known.recall(key), None
    if told is None:
        config, tokenizer = _config(folder, name), _fast_tokenizer(folder, name)
        told = Known.of(config, tokenizer)
        if not told.is_same(config, tokenizer):
            return config, tokenizer
        known.keep(key, told)
    if plain_config.fits(told.config):
        config = plain_config.PlainConfig(told.config)
    elif config is None:
        config = _config(folder, name)
    return config, KnownTokenizer(told.tokenizer, lambda: _fast_tokenizer(folder, name))


def _config(folder: Path, name: str) -> Any:
    """The configuration of the language model.

    Raises:
        UsageError: it cannot be used.
    """
    what = f"cannot read model {name!r}"
    require_known(read_object(folder / CONFIG), str(folder))
    with foreign(what), _own_code_told(name):
        AutoConfig = libraries.transformers().AutoConfig
        config = language_model(AutoConfig.from_pretrained(folder, **OWN_CODE))
    for size in SIZES:
        value = getattr(config, size, None)
        if value is not None and (type(value) is not int or value < 1):
            why = f"its {CONFIG} says that {size} is {str(value)[:80]!a}"
            raise UsageError(what, why, REMEDY)
    if getattr(config, "transformers_weights", None) is not None:
        why = f"its {CONFIG} names other weights than usual (transformers_weights)"
        raise UsageError(what, why, "Take that out, and call them model.safetensors.")
    return config


def _fast_tokenizer(folder: Path, name: str) -> Any:
    """The tokenizer, with truncation and padding turned off.

    Some come with a length, from training, to which every text is truncated or padded.

    Raises:
        UsageError: it cannot be used.
    """
    with foreign(f"cannot read the tokenizer of model {name!r}"), _own_code_told(name):
        AutoTokenizer = libraries.transformers().AutoTokenizer
        tokenizer = AutoTokenizer.from_pretrained(folder, **OWN_CODE)
        if tokenizer.is_fast:
            tokenizer.decode(tokenizer("a").input_ids)  # fails here if anything is wrong with it
            tokenizer.backend_tokenizer.no_truncation()
            tokenizer.backend_tokenizer.no_padding()
    if not tokenizer.is_fast:
        raise UsageError(
            f"cannot use the tokenizer of model {name!r}",
            "it has no fast version, so its tokens have no offsets in the text",
            "Save it with a tokenizer.json first.",
        )
    return tokenizer


@contextmanager
def _own_code_told(name: str) -> Iterator[None]:
    """Reports plainly that a model needs to run its own code."""
    try:
        yield
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        why = "it needs code of its own, which is never run"
        raise UsageError(f"cannot read model {name!r}", why) from error
