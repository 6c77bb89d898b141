"""The catalogue of a library: the facts of its complete documents in one file.

Reading ten thousand manifests takes seconds; looking whether each is still the one that was read
takes a tenth of one. So the facts of each stand beside its manifest's times, size and inode, and
where any of these differs the manifest is read. The file, `index/catalogue.json`, is made only for
libraries of many documents, by whoever lists them and may write there; where it is missing, damaged
or of another version, all manifests are read. It says nothing that they do not.
"""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from typing import Any, cast

from xxhash import xxh3_128_hexdigest

from longctx.core.common.errors import LongctxError
from longctx.core.store.confined import Confined
from longctx.core.store.durable import write_text
from longctx.core.store.facts import UNKNOWN, Facts, Stamp
from longctx.core.store.manifest import FINGERPRINT, LARGEST, check_parts
from longctx.core.store.naming import NAME, is_title

INDEX = "index"  # the folder of files that are made again when they are missing
CATALOGUE = "catalogue.json"
MANY = 200  # documents: reading so many manifests takes a tenth of a second
_VERSION = 3
_MOST_BYTES = 1 << 30
_MODEL = {"name", *FINGERPRINT}  # what a manifest says of one
# Facts, each with a list of its own, since Python checks a list faster than as many rows.
_COLUMNS = (
    *("folder", "title", "tokens", "bytes", "method", "model", "groups", "one_text", "paths"),
    *("language", "stamp"),
)


class Catalogue:
    """The catalogue of one library.

    Args:
        library: its folder.
    """

    def __init__(self, library: Confined):
        self._folder = library / INDEX

    def read(self) -> dict[str, Facts]:
        """The facts by folder; empty where there is no catalogue to rely on."""
        text = checked(self._folder, CATALOGUE, _VERSION, _MOST_BYTES)
        try:
            return {facts.folder: facts for facts in _known(json.loads(text))} if text else {}
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            return {}

    def write(self, documents: Iterable[Facts]) -> None:
        """Replaces it, if that is possible; a library that cannot be written goes without."""
        text = json.dumps(_values([*documents]))
        with suppress(LongctxError, OSError):
            self._folder.mkdir(exist_ok=True, durable=False)
            write_checked(self._folder, CATALOGUE, _VERSION, text)


def checked(folder: Confined, name: str, version: int, most: int) -> bytes:
    """The text of a file behind its first line, which has version and checksum; empty if wrong."""
    try:
        head, _, text = (folder / name).read_bytes(most).partition(b"\n")
        check_parts(text)
    except (OSError, ValueError):
        return b""
    return text if head == _head(version, text) else b""


def write_checked(folder: Confined, name: str, version: int, text: str) -> None:
    """Writes a file that `checked` reads.

    Raises:
        LongctxError: it cannot be written.
    """
    write_text(folder, name, f"{_head(version, text.encode('ascii')).decode()}\n{text}")


def stamps_from(values: Any) -> list[Stamp]:
    """Stamps as they stand in a file; ValueError or TypeError where one is none."""
    _require(_are(values, list) and {*map(len, values)} <= {len(UNKNOWN)})
    _require(_are([*chain.from_iterable(values)], int))
    return [*map(cast("Callable[[list[int]], Stamp]", tuple), values)]


def folders_from(values: Any) -> list[str]:
    """Names of folders as they stand in a file; ValueError or TypeError where one is none."""
    _require(_are(values, str) and all(map(NAME.fullmatch, values)))
    return values


def _head(version: int, text: bytes) -> bytes:
    return f"longctx {version} {xxh3_128_hexdigest(text)}".encode()


def _values(documents: list[Facts]) -> dict[str, Any]:
    """What the file says: the models, and a list for each fact, with the numbers of the models."""
    models = [json.dumps(dict(facts.model), sort_keys=True) for facts in documents]
    numbers = {model: number for number, model in enumerate(dict.fromkeys(models))}
    columns = {name: [getattr(facts, name) for facts in documents] for name in _COLUMNS}
    columns |= {"model": [numbers[model] for model in models]}
    return {"models": [json.loads(model) for model in numbers], **columns}


def _known(values: Any) -> list[Facts]:
    """The facts of a catalogue; one of the errors in `Catalogue.read` where it cannot be one."""
    known, columns = values["models"], [values[name] for name in _COLUMNS]
    folders, titles, tokens, sizes, methods, models, groups, one_text, paths, *more = columns
    languages, stamps = more
    _require(_are(known, dict) and all(model.keys() == _MODEL for model in known))
    _require(_are([*chain.from_iterable(map(dict.values, known))], str))
    _require(_are(titles, str, type(None)) and _are(methods, str) and _are(one_text, bool))
    _require(_are(languages, str))
    _require(all(title is None or is_title(title) for title in titles))
    _require(_are(groups, dict) and _are(paths, list))
    _require(_are([*chain.from_iterable(paths)], str))
    counts = [*chain.from_iterable(map(dict.values, groups))]
    _require(all(map(_are_counts, (tokens, sizes, models, counts))))
    rows = zip(
        *(folders_from(folders), titles, tokens, sizes, methods, map(known.__getitem__, models)),
        *(groups, one_text, map(tuple, paths), languages, stamps_from(stamps)),
        strict=True,
    )
    return [
        Facts(folder, title, "complete", tokens, size, method, model, groups, one, "", *rest)
        for folder, title, tokens, size, method, model, groups, one, *rest in rows
    ]


def _are(values: Any, *kinds: type) -> bool:
    return type(values) is list and {*map(type, values)} <= {*kinds}


def _are_counts(values: Any) -> bool:
    return _are(values, int) and 0 <= min(values, default=0) <= max(values, default=0) <= LARGEST


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("no catalogue")
