"""The catalogue of a library: the facts of its complete documents in one file.

Reading ten thousand manifests takes seconds; looking whether each is still the one that was read
takes a tenth of one. So the facts of each stand beside its manifest's times, size and inode, and
where any of these differs the manifest is read. The file, `index/catalogue.json`, is made only for
libraries of many documents, by whoever lists them and may write there; where it is missing, damaged
or of another version, all manifests are read. It says nothing that they do not.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

from xxhash import xxh3_128_hexdigest

from longctx.core.common.errors import LongctxError
from longctx.core.store.confined import Confined
from longctx.core.store.durable import write_text
from longctx.core.store.facts import Facts, Stamp
from longctx.core.store.naming import NAME, is_title

INDEX = "index"  # the folder of files that are made again when they are missing
CATALOGUE = "catalogue.json"
MANY = 200  # documents: reading so many manifests takes a tenth of a second
_VERSION = 1
_MOST_BYTES = 1 << 30
_FIELDS = 11  # of a row


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
            values = json.loads(text) if text else {"models": [], "rows": []}
            models = [_model(model) for model in values["models"]]
            known = [_facts(row, models) for row in values["rows"]]
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            return {}
        return {facts.folder: facts for facts in known}

    def write(self, documents: Iterable[Facts]) -> None:
        """Replaces it, if that is possible; a library that cannot be written goes without."""
        models: dict[str, int] = {}
        rows = [_row(facts, models) for facts in documents]
        text = json.dumps({"models": [json.loads(model) for model in models], "rows": rows})
        with suppress(LongctxError, OSError):
            self._folder.mkdir(exist_ok=True, durable=False)
            write_checked(self._folder, CATALOGUE, _VERSION, text)


def checked(folder: Confined, name: str, version: int, most: int) -> bytes:
    """The text of a file behind its first line, which has version and checksum; empty if wrong."""
    try:
        head, _, text = (folder / name).read_bytes(most).partition(b"\n")
    except OSError:
        return b""
    return text if head == _head(version, text) else b""


def write_checked(folder: Confined, name: str, version: int, text: str) -> None:
    """Writes a file that `checked` reads.

    Raises:
        LongctxError: it cannot be written.
    """
    write_text(folder, name, f"{_head(version, text.encode('ascii')).decode()}\n{text}")


def stamp_from(value: Any) -> Stamp:
    """A stamp as it stands in a file; ValueError where it is none."""
    if type(value) is not list or [type(number) for number in value] != [int] * 4:
        raise ValueError("no stamp")
    return value[0], value[1], value[2], value[3]


def _head(version: int, text: bytes) -> bytes:
    return f"longctx {version} {xxh3_128_hexdigest(text)}".encode()


def _row(facts: Facts, models: dict[str, int]) -> list:
    model = json.dumps(dict(facts.model), sort_keys=True)
    return [
        *(facts.folder, [*facts.stamp], facts.title, facts.status, facts.tokens, facts.bytes),
        *(facts.method, models.setdefault(model, len(models)), dict(facts.groups)),
        *(facts.one_text, [*facts.paths]),
    ]


def _model(value: Any) -> dict[str, str]:
    _require(type(value) is dict and all(type(part) is str for part in value.values()))
    return value


def _facts(row: Any, models: list[dict[str, str]]) -> Facts:
    """The facts of a row; ValueError or TypeError where it cannot be one."""
    _require(type(row) is list and len(row) == _FIELDS)
    row = cast("list[Any]", row)
    folder, stamp, title, status, tokens, size, method, model, groups, one_text, paths = row
    _require(type(folder) is str and NAME.fullmatch(folder) is not None)
    _require(title is None or (type(title) is str and is_title(title)))
    _require(status == "complete" and type(method) is str and type(one_text) is bool)
    _require(all(type(number) is int and number >= 0 for number in (tokens, size, model)))
    _require(type(groups) is dict and all(type(n) is int and n >= 0 for n in groups.values()))
    _require(type(paths) is list and all(type(path) is str for path in paths))
    return Facts(
        folder=folder,
        title=title,
        status=status,
        tokens=tokens,
        bytes=size,
        method=method,
        model=models[model],
        groups=groups,
        one_text=one_text,
        error="",
        paths=tuple(paths),
        stamp=stamp_from(stamp),
    )


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("no row of a catalogue")
