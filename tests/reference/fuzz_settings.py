"""Profiles and config files that say anything; and what reading one must come to."""

import json
import os
import random
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import fuzz_changes as changes
import typer
import yaml
from fuzz_running import refused_at_most, require_told

from longctx.cli import settings
from longctx.cli.main import app
from longctx.core import methods
from longctx.core.profile import profile
from longctx.core.profile.profile import build, load, parse
from longctx.core.retrieve import gather_by
from longctx.core.store.manifest import canonical_json

WHOLE = {
    "name": "random",
    "models": ["a/b"],
    "description": "words",
    "window": 256,
    "prompt": {"prefix": "<s>", "question": "\nQuestion: {question}\nAnswer:"},
    "method": "reform",
    "methods": {
        "reform": {"chunk": 32, "budget": 24, "first": 4, "last": 4, "heads": [[1, "q", 3]]},
        "reattention": {"first": 4, "local": 24, "chunk": 12, "kv_dtype": "int8"},
        "full": {},
        "streaming": {"budget": 24, "first": 4},
    },
    "max_new_tokens": 8,
    "sampling": {"temperature": 0.5, "top_k": 3, "stop": ["END"], "seed": 1},
    "decode": "quest:budget=64",
    "decoding": {"recycled": {"budget": 64, "stride": 5}, "quest": {"budget": 64}},
    "gather_by": "method",
}


def use(chosen: profile.Profile, tokenizer) -> None:
    """What is done with a profile before a model is loaded; errors of our own may come."""
    from longctx.core.decode import policies  # these import torch
    from longctx.core.profile.prompt import PromptEncoder

    module = methods.load(chosen.method)
    options = build(module.Options, chosen.methods.get(chosen.method, {}), "options")
    options.fitted(chosen.window or 256)
    policies.check(chosen.decoding)
    gather_by.check(chosen.gather_by)
    policies.choose(chosen.decode, chosen.decoding)
    if isinstance(chosen.prompt, profile.PromptTemplate):
        encoder = PromptEncoder(chosen.prompt, tokenizer)
        encoder.prefix()
        encoder.question("who?")


def require_sound(text: str, tokenizer) -> None:
    """A profile that a document's manifest can keep, or an error of our own."""
    with refused_at_most():
        chosen = load(text, "profile fuzz")
        kept = json.loads(canonical_json(asdict(chosen)))
        assert canonical_json(asdict(parse(kept, "kept"))) == canonical_json(asdict(chosen))
        use(chosen, tokenizer)


# --- cases ---

TEXT = yaml.safe_dump(WHOLE).encode()
SIGNS = "{}[]:,-?&*!|>%@`#'\"\\ \n\t~<=.0179eExX_abn"
YAML = [
    *(b"&a [*a]", b"!!python/object/apply:os.system ['true']", b"a: 2026-13-45", b"? {a: 1}\n: b"),
    *(b"0o17", b"0x1f", b"1_000", b"1:30:00", b".inf", b".nan", b"yes", b"~", b"!!binary aGk="),
    *(b"!!set {a}", b"<<: {a: 1}\n", b"|\n  x\n", b">-\n  x\n", b"[" * 40, b"- " * 40),
]
CONFIG = """\
device = "cpu"
threads = 1
json = false
stop = "The end"
[ask]
max-new-tokens = 8
temperature = 0.5
[find]
limit = 3
[list]
quiet = true
"""
TOML = [
    *(b"[ask]\n", b"[[ask]]\n", b"[ask.x]\n", b"a.b.c = 1\n", b"1979-05-27T07:32:00Z", b"inf"),
    *(b"nan", b"0x1f", b"1e400", b'"""', b"'''", b"{a = 1}", b"[1, 2]", b"library = 3\n"),
    *(b"gather-by = 1\n", b"decode = []\n", b'doc = "a b"\n', b"\\ud800", b"\\U0011ffff"),
]
COMMANDS = ["ask", "find", "list", "verify", "show", "ingest", "niah"]
WORDS = {"ask": ["x"], "find": ["x"], "show": ["x"], "ingest": ["x"]}


def profile_case(rng: random.Random) -> bytes:
    """A profile as text."""
    kind = rng.randrange(8)
    if kind == 0:
        return "".join(rng.choices(SIGNS, k=rng.randrange(60))).encode()
    if kind == 1:
        return rng.randbytes(rng.randrange(80))
    if kind < 5:
        return changes.edited(rng, TEXT, [*YAML, *changes.BYTES])
    whole: Any = WHOLE
    for _ in range(rng.choice([1, 1, 2, 3])):
        whole = changes.mutated(rng, whole)
    return json.dumps(whole).encode()  # which is YAML too


def read_profile(file: Path, data: bytes, tokenizer: Any) -> None:
    """Reads a profile from a file, and uses it as what a document keeps, as text and as JSON.

    Args:
        file: where it is written.
        data: the profile.
        tokenizer: of a model that it is for.
    """
    file.write_bytes(data)
    with refused_at_most():
        use(profile.find(str(file)), tokenizer)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    require_sound(text, tokenizer)
    try:
        kept = json.loads(text)
    except (ValueError, RecursionError):
        return
    with refused_at_most():
        use(parse(kept, "the document's profile"), tokenizer)


def config_case(rng: random.Random) -> bytes:
    """A config file as text."""
    kind = rng.randrange(4)
    if kind == 0:
        signs = "[]{}=.,\"'#\n\t -_0179eExbadefi+:\\"
        return "".join(rng.choices(signs, k=rng.randrange(60))).encode()
    if kind == 1:
        names = rng.choices(sorted(known()), k=rng.randrange(1, 4))
        values = [changes.value(rng) for _ in names]
        table = rng.choice(["", "[ask]\n", "[list]\n", "[eval]\n", "[x]\n"])
        pairs = zip(names, values, strict=True)
        return (table + "".join(f"{n} = {json.dumps(v)}\n" for n, v in pairs)).encode()
    return changes.edited(rng, CONFIG.encode(), [*TOML, *changes.BYTES])


@cache
def program() -> Any:
    """The program as click has it."""
    return typer.main.get_command(app)


@cache
def known() -> frozenset[str]:
    """All settings of all commands."""
    commands = program().commands.values()
    return frozenset(key for command in commands for key in settings._settings(command))


def read_config(file: Path, data: bytes) -> None:
    """Reads a config file, and makes of what it says the options of commands.

    Args:
        file: where it is written.
        data: the file.
    """
    file.write_bytes(data)
    with mock.patch.dict(os.environ, LONGCTX_CONFIG=str(file)), refused_at_most():
        found = settings.defaults(program().commands)
        for name in COMMANDS:
            try:
                words = list(WORDS.get(name, []))
                program().commands[name].make_context(name, words, default_map=found[name])
            except typer.TyperException as error:
                require_told(error)
