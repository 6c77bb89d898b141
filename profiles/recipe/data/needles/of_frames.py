"""Needles from the frames of one fact: alone, in groups with similar names, with several values.

The frames are hand-written or the grammar's. Knows nothing of haystacks.
"""

from longctx.profiles.recipe.data.facts import frames
from longctx.profiles.recipe.data.facts.grammar import Grammar
from longctx.profiles.recipe.data.facts.phrasing import choose, mutated, stated, turned
from longctx.profiles.recipe.data.facts.slots import (
    KINDS,
    OWNED,
    Filling,
    filling_of,
    same_attribute,
)
from longctx.profiles.recipe.data.facts.templates import Fact, slots
from longctx.profiles.recipe.data.needles.needle import Needle
from longctx.profiles.recipe.data.values.every import Values


class FrameNeedles:
    """Makes needles of frames."""

    def __init__(self, values: Values):
        self.values, self.rng = values, values.rng
        self.grammar = Grammar(values, values.rng)

    def frame(self) -> Needle:
        """A fact from any frame."""
        fact = self.kind()
        statement = self.statement(fact)
        asked = self.ask(fact, statement)
        return self.needle(statement, asked, filling_of(slots(statement), self.values), "frame")

    def group(self, count: int, near: bool) -> list[Needle]:
        """Facts from one frame; if `near`, about things with nearly the same name."""
        fact = self.kind()
        statement = self.statement(fact)
        asked = self.ask(fact, statement)
        wanted = slots(statement) | slots(asked[0]) | slots(asked[1])
        first = filling_of(wanted, self.values)
        keys = sorted(slots(asked[0]) - slots(asked[1]))
        varied = self.rng.random() < 0.3
        found: dict[tuple[str, ...], Needle] = {}
        for _ in range(3 * count):
            filling = self.another(first, wanted, keys if near else [])
            said = self.statement(fact) if varied else statement
            if not slots(said) - OWNED <= wanted - OWNED:
                said = statement
            needle = self.needle(said, asked, filling, "near" if near else "group")
            found.setdefault(tuple(filling[key] for key in keys), needle)
        return list(found.values())[:count]

    def freely(self, count: int) -> list[Needle]:
        """Different facts, each asked for in words that its statement has none of."""
        found = []
        for fact in self.rng.sample(frames.FREELY, count):
            statement = self.statement(fact)
            filling = Filling(self.values)
            found.append(self.needle(statement, self.ask(fact, statement), filling, "freely"))
        return found

    def keyed(self, count: int) -> list[Needle]:
        """Facts from one frame about things whose numbers or codes differ in a sign or two."""
        fact = self.rng.choice(frames.KEYED)
        statement = self.statement(fact)
        asked = self.ask(fact, statement)
        first = Filling(self.values)
        found = {first["serial"]: self.needle(statement, asked, first, "keyed")}
        for _ in range(count):
            filling = Filling(self.values)
            serial = mutated(self.rng.choice([*found]), self.values)
            filling.made["serial"] = serial
            found.setdefault(serial, self.needle(statement, asked, filling, "keyed"))
        return [*found.values()]

    def several(self) -> Needle:
        """One thing with several values, all of them asked for."""
        filling = filling_of({"attr"}, self.values)
        kind = KINDS.get(filling["attr"], "word")
        kind = kind if kind not in {"clause", "phrase", "action", "uuid"} else "num"
        count = self.rng.choice([2, 2, 3, 4])
        values = list(dict.fromkeys(self.values.make(kind) for _ in range(count)))
        statement = self.statement(frames.FACTS[0])
        texts = []
        for value in values:
            filling.made["value"] = value
            texts.append(stated(filling.fill(statement), self.values))
        question = self.rng.choice(frames.EVERY)
        return Needle(tuple(texts), filling.fill(question), ", ".join(values), "several", 0, True)

    def kind(self) -> Fact:
        """A kind of fact: invented, reworded, many-sided (attributes, keys), or of any frame."""
        chance = self.rng.random()
        if chance < 0.28:
            return self.grammar.fact()
        if chance < 0.53:
            return self.rng.choice(frames.REWORDED)
        return self.rng.choice(frames.FACTS[:5] if chance < 0.68 else frames.FACTS)

    def statement(self, fact: Fact) -> str:
        """A statement of the fact, with slots not yet filled."""
        return choose(self.rng.choice(fact.statements), self.rng)

    def ask(self, fact: Fact, statement: str) -> tuple[str, str]:
        """A question that the statement answers, and its answer, with slots not yet filled."""
        given = slots(statement)
        fitting = [q for q in fact.questions if slots(q[0]) | slots(q[1]) <= given]
        told = [q for q in fitting if q[1] in statement or not slots(q[1]) <= given]
        question, answer = self.rng.choice(told or fitting or fact.questions)
        return choose(question, self.rng), answer

    def another(self, first: Filling, wanted: set[str], keys: list[str]) -> Filling:
        """Values for another fact of a group, one of the `keys` (if any) similar to `first`'s."""
        filling = filling_of(wanted, self.values)
        if "attr" in wanted:
            filling = same_attribute(first)
        if keys:
            changed = self.rng.choice([key for key in keys if key != "attr"] or keys)
            filling.made.update({key: first[key] for key in keys})
            filling.made[changed] = mutated(first[changed], self.values)
        return filling

    def needle(self, statement: str, asked: tuple[str, str], filling: Filling, kind: str) -> Needle:
        """One statement and one question, filled."""
        text, question, answer = (filling.fill(part) for part in (statement, *asked))
        text = stated(text, self.values)
        return Needle((text,), turned(question, self.rng), answer, kind)
