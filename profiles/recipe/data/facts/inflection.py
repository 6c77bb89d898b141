"""Verb forms: the past and the participle, regular or from the list of irregular verbs."""

from longctx.profiles.recipe.data.words import words

IRREGULAR = dict(entry.split("/", 1) for entry in words("irregular"))


def past(verb: str) -> str:
    """bought, carried, stopped"""
    return IRREGULAR[verb].split("/")[0] if verb in IRREGULAR else regular(verb)


def participle(verb: str) -> str:
    """taken, carried"""
    return IRREGULAR[verb].split("/")[1] if verb in IRREGULAR else regular(verb)


def regular(verb: str) -> str:
    """The regular past."""
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + "ed"
