"""Varies the wording around a fact: alternatives, leads, additions, turns, near names.

Works on text, before or after its slots are filled. Knows nothing of needles.
"""

import random
import string

from longctx.profiles.recipe.data.facts import frames, templates
from longctx.profiles.recipe.data.values.every import Values
from longctx.profiles.recipe.data.words import phrases

TIMES = phrases("times")


def choose(template: str, rng: random.Random) -> str:
    """Settles a template's alternatives."""
    return templates.ALTERNATIVES.sub(lambda match: rng.choice(match[1].split("|")), template)


def stated(text: str, values: Values) -> str:
    """A capitalised sentence, sometimes with additions and a lead."""
    if text.endswith((".", '"')):
        text = adorned(text, values) if text.endswith(".") else text
        text = text[0].upper() + text[1:]
        if values.rng.random() < 0.12:
            text = values.rng.choice(frames.LEADS).format(statement=text)
    return text


def adorned(text: str, values: Values) -> str:
    """Sometimes adds where, when or how, so that the frame does not reveal a value's end."""
    rng = values.rng
    chance = rng.random()
    if chance < 0.5:
        return text
    extra = values.word("tails")
    if chance < 0.6:
        extra = rng.choice(TIMES)
    elif chance < 0.66:
        extra = values.word("adverbs")
    if chance < 0.82:
        joined = rng.choice([" ", " ", ", "])
        return f"{text[:-1]}{joined}{extra}."
    if chance < 0.9:
        return f"{extra}, {text}"
    if chance < 0.95:
        joint = rng.choice(["and", "but", "though", "while"])
        return f"{text[:-1]}, {joint} {values.make_clause()}."
    return f"{values.make_clause()}, {rng.choice(['and ', 'for ', 'so ', ''])}{text}"


def turned(question: str, rng: random.Random) -> str:
    """A question, sometimes with a few words around it."""
    chance = rng.random()
    if chance < 0.08:
        return rng.choice(frames.TURNS).format(question=question)
    if chance < 0.14:
        return question.rstrip("?.")
    return question[0].lower() + question[1:] if chance < 0.18 else question


def mutated(text: str, values: Values) -> str:
    """A similar name, which differs in a letter, a digit or a word."""
    rng = values.rng
    if " " in text and rng.random() < 0.6:
        words = text.split(" ")
        at = rng.randrange(len(words))
        words[at] = values.make_last() if words[at][:1].isupper() else values.make_word()
        return " ".join(words)
    places = [i for i, char in enumerate(text) if char.isalnum()] or [0]
    at = rng.choice(places)
    pool = string.digits if text[at : at + 1].isdigit() else string.ascii_lowercase
    pool = string.ascii_uppercase if text[at : at + 1].isupper() else pool
    return text[:at] + rng.choice(pool) + text[at + 1 :]
