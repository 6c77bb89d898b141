"""Model folders that are broken in one way each, made from a whole one.

`BROKEN` has a function for each way, by name; it gets a copy of the folder and breaks it.
"""

import json
import os
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

CONFIG, TOKENIZER, WEIGHTS = "config.json", "tokenizer.json", "model.safetensors"
SETTINGS, INDEX = "tokenizer_config.json", "model.safetensors.index.json"
GENERATION, TEMPLATE = "generation_config.json", "chat_template.jinja"
FIRST = "model.layers.0.self_attn.q_proj.weight"  # a tensor
DEEP = "[" * 100_000

BROKEN: dict[str, Callable[[Path], None]] = {}


def _put(name: str, data: bytes, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).write_bytes(data)


def _cut(name: str, size: int, folder: Path) -> None:
    os.truncate(folder / name, size)


def _make_folder(name: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()


def _link(name: str, to: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(to)


def _remove(name: str, folder: Path) -> None:
    (folder / name).unlink()


def _set(name: str, key: str, value: Any, folder: Path) -> None:
    """Sets a value of a JSON file; dots lead to inner ones."""
    path = folder / name
    values = json.loads(path.read_text("utf-8")) if path.exists() else {}
    *outer, last = key.split(".")
    inner = values
    for part in outer:
        inner = inner[int(part)] if isinstance(inner, list) else inner.setdefault(part, {})
    inner[last] = value
    path.write_text(json.dumps(values), "utf-8")


def _drop(name: str, key: str, folder: Path) -> None:
    values = json.loads((folder / name).read_text("utf-8"))
    del values[key]
    (folder / name).write_text(json.dumps(values), "utf-8")


def _header(change: Callable[[dict], None], folder: Path) -> None:
    """Changes the header of the weights."""
    data = (folder / WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    values = json.loads(data[8 : 8 + length])
    change(values)
    header = json.dumps(values).encode()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(header)) + header + data[8 + length :])


def _length(number: int, folder: Path) -> None:
    """Says another length of the header of the weights."""
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", number) + data[8:])


def _tensor(key: str, value: Any, folder: Path) -> None:
    _header(lambda header: header[FIRST].__setitem__(key, value), folder)


def _sharded(name: str, folder: Path, size: int | None = None, **more: Any) -> None:
    """Puts the weights into one shard of an index that names it, and FIRST in another."""
    shard = folder / "model-00001-of-00002.safetensors"
    (folder / WEIGHTS).rename(shard)
    length = struct.unpack("<Q", shard.read_bytes()[:8])[0]
    header = json.loads(shard.read_bytes()[8 : 8 + length])
    names = {key: shard.name for key in header if key != "__metadata__"}
    names[FIRST] = name
    if size is not None:
        (folder / name).write_bytes(shard.read_bytes()[:size])
    _put(INDEX, json.dumps({"metadata": {}, "weight_map": names, **more}).encode(), folder)


def _outside(name: str, folder: Path) -> None:
    """Names weights that are there, and are not the folder's."""
    other = folder.parent / f"{folder.name}-other.safetensors"
    other.write_bytes((folder / WEIGHTS).read_bytes())
    _sharded(name.format(other=other.name, full=other), folder)


def _unreadable(name: str, folder: Path) -> None:
    """A file that not even root can read: its own link."""
    _link(name, name, folder)


def _name(name: str, break_it: Callable[[Path], None]) -> None:
    assert name not in BROKEN
    BROKEN[name] = break_it


# --- every file ---
for file in (CONFIG, TOKENIZER, WEIGHTS, SETTINGS, GENERATION):
    _name(f"{file} empty", partial(_put, file, b""))
    _name(f"{file} garbage", partial(_put, file, bytes(range(256)) * 8))
    _name(f"{file} a folder", partial(_make_folder, file))
    _name(f"{file} a link to itself", partial(_unreadable, file))
    _name(f"{file} a link to nothing", partial(_link, file, "gone"))
for file in (CONFIG, TOKENIZER, WEIGHTS):
    _name(f"{file} missing", partial(_remove, file))
    _name(f"{file} cut", partial(_cut, file, 200))
for file in (CONFIG, TOKENIZER, SETTINGS, GENERATION, INDEX):
    for kind, text in {
        "list": "[]",
        "number": "1",
        "null": "null",
        "no UTF-8": '{"\xff": 1}',
        "deep": DEEP,
        "surrogate": '{"model_type": "\\ud800"}',
    }.items():
        _name(f"{file} {kind}", partial(_put, file, text.encode("latin-1")))

# --- the configuration ---
for key, values in {
    "model_type": [None, 1, [], "", "nothing", "../llama", "deepseek_v3"],
    "hidden_size": [0, -1, None, "32", 32.5, 10**30, 2**40],
    "num_hidden_layers": [0, -1, None, "3", 2, 10**6, 10**30],
    "num_attention_heads": [0, -1, None, "4", 3, 10**30],
    "num_key_value_heads": [0, -1, None, "2", 3, 10**30],
    "head_dim": [0, -1, None, "8", 7, 10**30],
    "vocab_size": [0, -1, None, "400", 1, 10**30],
    "intermediate_size": [0, -1, None, "48", 10**30],
    "max_position_embeddings": [0, -1, None, "256", 1, 10**30],
    "rms_norm_eps": [None, "small", -1, [], 1e308],
    "rope_parameters": [
        None,
        "none",
        [],
        {"rope_type": "nothing"},
        {"rope_type": "yarn"},
        {"rope_type": "default", "rope_theta": 0},
        {"rope_type": "default", "rope_theta": "x"},
        {"rope_type": "linear", "factor": 0, "rope_theta": 10000.0},
        {"rope_type": 3},
    ],
    "hidden_act": [None, 1, "nothing"],
    "eos_token_id": ["x", -1, [None], {}, 10**30, 10**6],
    "bos_token_id": ["x", -1, {}, 10**30],
    "pad_token_id": ["x", -5, 10**6, 10**30],
    "tie_word_embeddings": ["x", None],
    "architectures": ["x", 1, ["Nothing"], None],
    "dtype": ["x", 1, "int8", "complex64"],
    "quantization_config": [1, {}, {"quant_method": "nothing"}, {"quant_method": "bitsandbytes"}],
    "auto_map": [{"AutoConfig": "own.Config"}, 1],
    "layer_types": ["x", ["x"], ["full_attention"]],
    "attention_bias": [True, "x"],
}.items():
    for value in values:
        _name(f"{key}={str(value)[:50]}", partial(_set, CONFIG, key, value))

# --- the weights ---
_name(
    "half downloaded", lambda folder: _cut(WEIGHTS, (folder / WEIGHTS).stat().st_size // 2, folder)
)
_name("a byte short", lambda folder: _cut(WEIGHTS, (folder / WEIGHTS).stat().st_size - 1, folder))
_name("seven bytes", partial(_cut, WEIGHTS, 7))
for number in (0, 1, 2**31, 2**63, 2**64 - 1):
    _name(f"header of {number} bytes", partial(_length, number))
for key, values in {
    "shape": [[], [0], [-1, 32], [32, 16, 2], [10**30], "x", None, [32, 16]],
    "dtype": ["", "X", None, "I64", "F64", "BF16", "I8", "F8_E4M3", "F4"],
    "data_offsets": [[], [0], [5, 1], [-8, 0], [0, 10**30], "x", None],
}.items():
    for value in values:
        _name(f"tensor's {key}={value}", partial(_tensor, key, value))
_name("a tensor missing", partial(_header, lambda header: header.pop(FIRST)))
_name("no tensors", partial(_header, lambda header: header.clear()))
_name("a tensor that is a number", partial(_header, lambda header: header.update({FIRST: 1})))
_name(
    "a tensor too many",
    partial(_header, lambda header: header.update({"x": {**header[FIRST]}})),
)
_name("a pickle for weights", partial(_put, WEIGHTS, b"\x80\x04\x95"))
_name("other weights beside it", lambda folder: (folder / "z.safetensors").write_bytes(b"\0" * 8))
_name("a pickle alone", lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"))

# --- an index ---
_name("a shard missing", partial(_sharded, "model-00002-of-00002.safetensors"))
for size in (0, 4, 100, 20_000):
    _name(
        f"a shard of {size} bytes", partial(_sharded, "model-00002-of-00002.safetensors", size=size)
    )
for name in ("../{other}", "{full}", "..\\{other}", "x/../../{other}", "sub/../../{other}"):
    _name(f"weights outside: {name}", partial(_outside, name))
for name in ("", ".", "..", "a\0b", "a" * 5000, "\ud800", 3, None, [], "config.json"):
    _name(f"a shard named {str(name)[:20]!a}", lambda folder, name=name: _sharded(name, folder))
for value in (None, 1, [], "x"):
    _name(f"weight_map={value}", partial(_set, INDEX, "weight_map", value))
    _name(
        f"weight_map={value} alone",
        lambda folder, value=value: _sharded("x.safetensors", folder, weight_map=value),
    )
_name("an index without a map", partial(_put, INDEX, b"{}"))

# --- the tokenizer ---
for key in ("model", "added_tokens", "pre_tokenizer"):
    for value in (None, 1, [], "x", {"type": "Nothing"}):
        _name(f"tokenizer's {key}={value}", partial(_set, TOKENIZER, key, value))
for key in ("version", "model", "added_tokens"):
    _name(f"tokenizer without {key}", partial(_drop, TOKENIZER, key))
_name("no vocabulary", partial(_set, TOKENIZER, "model.vocab", {}))
_name("an id too large", partial(_set, TOKENIZER, "model.vocab.zzz", 2**32))
_name("an id that the model lacks", partial(_set, TOKENIZER, "model.vocab.e", 10**6))
_name("an id below zero", partial(_set, TOKENIZER, "model.vocab.zzz", -1))
_name("merges of what is not there", partial(_set, TOKENIZER, "model.merges", ["q zzzz"]))
_name(
    "a pattern that is none",
    partial(
        _set,
        TOKENIZER,
        "pre_tokenizer",
        {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False},
    ),
)
for key, values in {
    "tokenizer_class": [1, "Nothing", "LlamaTokenizer", None],
    "bos_token": [1, [], "nothing of it", None],
    "eos_token": [1, "nothing of it", None],
    "auto_map": [{"AutoTokenizer": ["own.T", "own.T"]}],
    "model_max_length": ["x", -1, None],
    "chat_template": [
        1,
        "{% for %}",
        "{{ nothing.of.it }}",
        "{{ raise_exception('no') }}",
        "{{ 1 // 0 }}",
        "{{ messages[9].x }}",
        "{% for i in range(10**9) %}x{% endfor %}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages | nothing }}",
        "",
        "no place",
        [{"name": "default"}],
        {"default": 1},
        "{{ messages[0]['content'] }}" * 2,
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "(" * 5 + "{{" + "(" * 5000,
    ],
}.items():
    for value in values:
        _name(f"{key}={str(value)[:50]}", partial(_set, SETTINGS, key, value))
_name("a template that is no UTF-8", partial(_put, TEMPLATE, b"\xff{{ messages }}"))
_name("a template that is a folder", partial(_make_folder, TEMPLATE))
_name("a template that ends early", partial(_put, TEMPLATE, b"{% if messages"))

# --- how answers are generated ---
for value in ("x", [None], {}, -1, 10**30, ["x"], [[1]], 1.5, True):
    _name(f"generation's eos_token_id={value}", partial(_set, GENERATION, "eos_token_id", value))
_name("generation's temperature=x", partial(_set, GENERATION, "temperature", "x"))
_name("generation's top_p=9", partial(_set, GENERATION, "top_p", 9))
_name(
    "an adapter beside it",
    partial(_put, "adapter_config.json", b'{"base_model_name_or_path": "a/b"}'),
)
_name("an adapter that is garbage", partial(_put, "adapter_config.json", b"\xff"))
