"""The values of one fact's slots: any slot by its name; an attribute, its owner and value together.

Knows nothing of the sentences that the slots are in.
"""

from dataclasses import dataclass, field

from longctx.profiles.recipe.data.facts import templates
from longctx.profiles.recipe.data.values.every import Values
from longctx.profiles.recipe.data.words import ATTRIBUTES as KINDS
from longctx.profiles.recipe.data.words import ENTITIES

ATTRIBUTES = list(KINDS)
VALUE_KINDS = list(dict.fromkeys(KINDS.values()))
OWNED = {"attr", "entity", "value"}  # made together


@dataclass
class Filling:
    """The values of one fact's slots, made when first needed."""

    values: Values
    made: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, slot: str) -> str:
        if slot not in self.made:
            self.made[slot] = self.values.make(slot)
        return self.made[slot]

    def fill(self, template: str) -> str:
        """The template with its slots filled."""
        return templates.SLOT.sub(lambda match: self[match[1]], template)


def filling_of(slots: set[str], values: Values) -> Filling:
    """Values for a fact with these slots."""
    return attribute(values) if "attr" in slots else Filling(values)


def attribute(values: Values) -> Filling:
    """An attribute, listed or invented, with its owner and a value of its kind."""
    name = values.rng.choice(ATTRIBUTES)
    kind = KINDS[name]
    if values.rng.random() < 0.45:
        front = values.word(values.rng.choice(["adjectives", "nouns"]))
        name = f"{front} {values.make_noun()}"
        kind = values.rng.choice(VALUE_KINDS)
    return owned(name, kind, values)


def same_attribute(first: Filling) -> Filling:
    """Another owner of the same attribute, with a value of the same kind."""
    return owned(first["attr"], KINDS.get(first["attr"], "code"), first.values)


def owned(name: str, kind: str, values: Values) -> Filling:
    """An attribute of this name, with an owner and a value of this kind."""
    entity = Filling(values).fill(values.rng.choice(ENTITIES))
    return Filling(values, dict(attr=name, entity=entity, value=values.make(kind)))
