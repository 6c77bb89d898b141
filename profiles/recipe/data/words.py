"""The recipe's word lists, read from words.yaml. Data only."""

from pathlib import Path

import yaml

_READ = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text("utf-8"))


def words(name: str) -> list[str]:
    """A list of words."""
    return _READ[name].split()


def groups(name: str) -> list[list[str]]:
    """A list of groups of words."""
    return [group.split(", ") for group in _READ[name].split("; ")]


def phrases(name: str) -> list[str]:
    """A list of phrases, any of which may be a single word."""
    return _READ[name].split("; ")


def sentences(name: str) -> list[str]:
    """A list of sentences with slots."""
    return _READ[name]


ATTRIBUTES = {
    name: kind for kind, names in _READ["attributes"].items() for name in names.split("; ")
}
ENTITIES = sentences("entities")
