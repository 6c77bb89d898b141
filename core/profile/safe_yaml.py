"""YAML that is only data: mappings with string keys, lists, strings, numbers, true, false, null.

Tags make no objects, aliases are refused (a few lines of them can expand to gigabytes), nesting is
limited, and dates stay text. Knows nothing of the meaning of the data.
"""

import math
from pathlib import Path
from typing import Any

import yaml

from longctx.core.common.errors import UsageError
from longctx.core.common.regular_files import read_text

LARGEST = 1 << 20  # bytes of a hand-written file
DEEPEST = 32  # nested lists and mappings
TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null")}
TAGS |= {"tag:yaml.org,2002:seq", "tag:yaml.org,2002:map", "!"}
REMEDY = "Correct its YAML."


def read_file(path: Path, where: str) -> Any:
    """Reads a YAML file.

    Args:
        path: the file.
        where: what to call it in a message.

    Raises:
        UsageError: it cannot be read, is too large, is not UTF-8, or see `read`.
    """
    try:
        text = read_text(path, LARGEST)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"cannot read {where}", why, "Check the path.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {where}", "it is not UTF-8 text", REMEDY) from error
    return read(text, where)


def read(text: str, where: str) -> Any:
    """Reads YAML text.

    Raises:
        UsageError: not YAML, or not plain data.
    """
    try:
        _require_plain(text)
        values = yaml.load(text, _Loader)
        require_json(values)
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"cannot read {where}", str(error), REMEDY) from error
    return values


class _Loader(yaml.SafeLoader):
    """Makes only plain data; dates stay text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (pyyaml's own name and form)
        first: [(tag, pattern) for tag, pattern in found if tag in TAGS]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        """A mapping; a key that is not a string, or occurs twice, is an error."""
        mapping = super().construct_mapping(node, deep=True)
        wrong = [key for key in mapping if not isinstance(key, str)]
        if wrong:
            raise ValueError(f"the key {wrong[0]!r:.40} is no text: put it in quotes")
        if len(mapping) < len(node.value):
            raise ValueError(f"a key comes twice in line {node.start_mark.line + 1}")
        return mapping


def _require_plain(text: str) -> None:
    """ValueError for aliases, tags that make objects, and deep nesting, before anything is made."""
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ValueError(f"anchors and aliases are not read{_line(event)}")
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in TAGS:
            raise ValueError(f"{tag[:60]!r} makes an object, and only data is read{_line(event)}")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"it is nested deeper than {DEEPEST} levels{_line(event)}")


def _line(event: yaml.Event) -> str:
    return f", in line {event.start_mark.line + 1}"


def require_json(value: Any) -> None:
    """ValueError for a value that cannot be written to JSON, where it is stored."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no number to reckon with")
    if isinstance(value, str):
        _require_text(value)
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for item in value:
            require_json(item)


def _require_text(value: str) -> None:
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(f"{value!r:.40} has half a character in it")
