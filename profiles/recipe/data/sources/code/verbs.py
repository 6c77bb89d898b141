"""Verbs that begin docstrings, with others of the same meaning, and their third person."""

from pathlib import Path

import yaml

_READ: dict = yaml.safe_load(Path(__file__).with_name("wordings.yaml").read_text("utf-8"))
VERBS: dict[str, list[str]] = {verb: like.split(", ") for verb, like in _READ.pop("verbs").items()}
WORDINGS: dict[str, list[str]] = _READ


def third(verb: str) -> str:
    """The third person of a verb."""
    if verb.endswith(("s", "sh", "ch", "x")):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if verb.endswith("y") and verb[-2] not in "aeiou" else f"{verb}s"
