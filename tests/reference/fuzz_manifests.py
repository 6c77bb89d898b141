"""Manifests that lie, with right checksums: real ones that say something else."""

import hashlib
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import fuzz_changes as changes
from fuzz_library import Case, Shelf, sealed, sealed_text

from longctx.core.sources.encodings import ENCODINGS
from longctx.core.store import shards
from longctx.core.store.manifest import MANIFEST, canonical_json


def manifest_case(shelf: Shelf, rng: random.Random) -> Case:
    """A manifest that says something else, with the right checksum."""
    template = shelf.template(rng)
    data = template.copy_of_manifest()
    kind = rng.randrange(8)
    if kind < 3:
        rng.choice(LIES)(rng, data)
    whole: Any = data
    if kind >= 2:
        for _ in range(rng.choice([1, 1, 2, 3])):
            whole = changes.mutated(rng, whole)
    text = sealed(whole)
    if kind == 7:
        text = sealed_text(changes.edited(rng, canonical_json(data).encode(), most=3))
    return {f"{template.place}/{MANIFEST}": text}


def _tokens_elsewhere(rng: random.Random, data: dict) -> None:
    """Sources with more or fewer tokens than they have, which are as many together."""
    _shared_anew(rng, data["sources"], "tokens", "first_token")


def _bytes_elsewhere(rng: random.Random, data: dict) -> None:
    """The same of bytes."""
    _shared_anew(rng, data["sources"], "size", "text_start")


def _shared_anew(rng: random.Random, sources: list[dict], count: str, start: str) -> None:
    total = sum(source[count] for source in sources)
    cuts = sorted(rng.choice([0, total, rng.randrange(total + 1)]) for _ in sources[1:])
    for source, (low, high) in zip(sources, pairwise([0, *cuts, total]), strict=True):
        source[count], source[start] = high - low, low


def _more_sources(rng: random.Random, data: dict) -> None:
    """Sources without text or tokens, here and there; or all in one; or hundreds."""
    sources = data["sources"]
    for _ in range(rng.choice([1, 2, 300])):
        at = rng.randrange(len(sources) + 1)
        follows = sources[at] if at < len(sources) else None
        last = sources[-1]
        empty = {**last, "size": 0, "tokens": 0, "sha256": hashlib.sha256().hexdigest()}
        empty["first_token"] = follows["first_token"] if follows else data["tokens"]
        end = last["text_start"] + last["size"]
        empty["text_start"] = follows["text_start"] if follows else end
        sources.insert(at, empty)


def _one_source(rng: random.Random, data: dict) -> None:
    first, last = data["sources"][0], data["sources"][-1]
    first.update(tokens=data["tokens"], size=last["text_start"] + last["size"])
    data["sources"] = [first] if rng.random() < 0.8 else []


def _another_encoding(rng: random.Random, data: dict) -> None:
    for source in data["sources"]:
        source["encoding"] = rng.choice(sorted(ENCODINGS))


def _another_origin(rng: random.Random, data: dict) -> None:
    kinds = ["page", "line", "cell", "\x1b[2J", "", None, "\ud800", "x" * 5000]
    for source in data["sources"]:
        source["origin"] = {
            **{"size": rng.choice([0, 3, 1 << 62]), "sha256": source["sha256"]},
            **{"part": changes.text(rng), "marks": rng.choice(kinds)},
        }


def _other_names(rng: random.Random, data: dict) -> None:
    for source in data["sources"]:
        source["name"] = changes.text(rng)
        source["path"] = rng.choice([None, changes.text(rng), "/" + changes.text(rng)])
        source["mtime_ns"] = rng.choice([None, *changes.NUMBERS])
    data["title"] = rng.choice([None, changes.text(rng), "x" * 200, "\u202etitle"])


def _another_boundary(rng: random.Random, data: dict) -> None:
    tokens = rng.choice([0, 1, 64, 65, data["tokens"], data["tokens"] - 1, *changes.NUMBERS])
    data["report"]["boundary"] = {"tokens": tokens, "forced_splits": rng.choice(changes.NUMBERS)}


def _another_state(rng: random.Random, data: dict) -> None:
    data["status"] = rng.choice(["reading", "complete", "damaged", ""])
    data["units"] = rng.choice(["document", "source", "x"])
    if changes.seldom(rng, 4):
        data["format"] = 2
        data.pop("title"), data.pop("units")


def _fewer_files(rng: random.Random, data: dict) -> None:
    """Groups that are not named; or more of one."""
    group = rng.choice(data["shards"])["group"]
    data["shards"] = [shard for shard in data["shards"] if shard["group"] != group]
    if group == "text" and rng.random() < 0.7:
        data["shards"] = [shard for shard in data["shards"] if shard["group"] != "lines"]
        for source in data["sources"]:
            source.update(size=0, text_start=0)
    if group == "tokens" and rng.random() < 0.7:
        data["tokens"] = 0
        for source in data["sources"]:
            source.update(tokens=0, first_token=0)


def _more_files(rng: random.Random, data: dict) -> None:
    shard = dict(rng.choice(data["shards"]))
    group = rng.choice([shard["group"], "aa", "zz", "memory", "marks", "kv", "words"])
    number = rng.choice([0, 1, 2, 10**8])
    end = "gz" if group == "text" else "safetensors"
    shard.update(group=group, file=f"{group}-{number:05d}.{end}", rows=rng.choice([0, 1, 2**62]))
    if rng.random() < 0.3:
        shard["size"], shard["blocks"] = 0, []
    data["shards"].append(shard)


def _other_sizes(rng: random.Random, data: dict) -> None:
    shard = rng.choice(data["shards"])
    size = rng.choice([0, 1, shard["size"] - 1, shard["size"] + 1, (1 << 20) + 1, 50 << 20])
    shard.update(size=size, blocks=["0" * 32] * -(-size // shards.BLOCK))
    if "members" in shard:
        shard["members"] = [size] if rng.random() < 0.5 else [1] * min(size, 64)


def _another_way(rng: random.Random, data: dict) -> None:
    """The method's options or the profile, of right types more often than not."""
    key = rng.choice(["options", "profile", "method", "recorded", "model", "report"])
    for _ in range(rng.choice([1, 1, 3])):
        data[key] = changes.mutated(rng, data[key])


LIES: list[Callable[[random.Random, dict], None]] = [
    *(_tokens_elsewhere, _bytes_elsewhere, _more_sources, _one_source, _another_encoding),
    *(_another_origin, _other_names, _another_boundary, _another_state, _fewer_files),
    *(_more_files, _other_sizes, _another_way, _another_way),
]
