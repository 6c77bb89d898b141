"""Invents kinds of facts: frames whose relation is made of verbs and nouns from the books.

The hand-written frames are few enough to memorise; these never come twice, so that only reading
helps: active and passive, relative clauses, counts, labels, what something was done with.
For verbs and nouns of the `alike_` groups the question may use another word of the same meaning.
The patterns are in grammar.txt. Knows nothing of values: its frames have slots.
"""

import random
from pathlib import Path
from string import Template

from longctx.profiles.recipe.data.facts.templates import Fact, read_facts
from longctx.profiles.recipe.data.values.every import Values
from longctx.profiles.recipe.data.words import groups, phrases, sentences, words

ALIKE_VERBS, ALIKE_NOUNS = groups("alike_verbs"), groups("alike_nouns")
SUBJECTS, OBJECTS, MEANS = phrases("subjects"), phrases("objects"), phrases("means")
FIGURES, NAMED, OFFICES = phrases("figures"), phrases("named"), phrases("offices")
LABELLED, IN_A_STATE = phrases("labelled"), phrases("in_a_state")
STATES = [state.split("; ") for state in sentences("states")]
DEED, DONE_WITH, DID_WITH, OFFICE, COUNT, LABEL, RELATIVE, STATE = read_facts(
    Path(__file__).with_name("grammar.txt")
)
IRREGULAR = dict(entry.split("/", 1) for entry in words("irregular"))
SYNONYMS = {word: group for group in (*ALIKE_VERBS, *ALIKE_NOUNS) for word in group}


def written(pattern: Fact, **parts: str) -> Fact:
    """The pattern with its parts written in.

    Raises:
        KeyError: the pattern has a part that is not given.
    """

    def write(text: str) -> str:
        return Template(text).substitute(parts)

    return Fact(
        tuple(map(write, pattern.statements)),
        tuple((write(question), write(answer)) for question, answer in pattern.questions),
    )


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


def forms(verb: str, mark: str = "") -> dict[str, str]:
    """The parts that a verb gives: $do, $did and $done."""
    return {f"do{mark}": verb, f"did{mark}": past(verb), f"done{mark}": participle(verb)}


class Grammar:
    """Invents facts from a random source and the books' words."""

    def __init__(self, values: Values, rng: random.Random):
        self.values, self.rng = values, rng
        self.kinds = [self.deed, self.deed, self.means, self.means, self.office]
        self.kinds += [self.count, self.label, self.label, self.relative, self.state]

    def fact(self) -> Fact:
        """A new kind of fact."""
        return self.rng.choice(self.kinds)()

    def alike(self, word: str) -> str:
        """The word or a synonym."""
        return self.rng.choice(SYNONYMS.get(word, [word]))

    def verb(self) -> str:
        """A verb that takes an object; half the time, one with synonyms."""
        if self.rng.random() < 0.5:
            return self.rng.choice(self.rng.choice(ALIKE_VERBS))
        return self.values.make_verb()

    def noun(self) -> str:
        """A noun; two times in five, one with synonyms."""
        if self.rng.random() < 0.4:
            return self.rng.choice(self.rng.choice(ALIKE_NOUNS))
        return self.values.make_noun()

    def some(self, fact: Fact, count: int) -> Fact:
        """The fact with `count` of its statements, in any order, and all of its questions."""
        return Fact(tuple(self.rng.sample(fact.statements, count)), fact.questions)

    def deed(self) -> Fact:
        """Somebody did something to something, somewhere or at some time."""
        subject, thing = self.rng.choice(SUBJECTS), self.rng.choice(OBJECTS)
        verb = self.verb()
        verbs = forms(verb) | forms(self.alike(verb), "2")
        fact = written(
            DEED,
            s=subject,
            o=thing,
            where=self.rng.choice(["in {city3}", "{spot}"]),
            when=self.rng.choice(["on {date}", "on {day}", "in {year}", "at {time}"]),
            who="Who" if "animal" not in subject and subject != "{name}" else "What",
            what="What" if "{person2}" not in thing else "Whom",
            **verbs,
        )
        return Fact((*self.some(fact, 3).statements, fact.statements[0]), fact.questions)

    def means(self) -> Fact:
        """Something was done with, for or near something."""
        subject, verb, joint = self.rng.choice(SUBJECTS), self.verb(), self.rng.choice(MEANS)
        verbs = forms(verb) | forms(self.alike(verb), "2")
        answer = self.rng.choice([*FIGURES, *NAMED[:-1], "the {thing2}", "the {thing2}"])
        thing = self.rng.choice(["the {thing}", "the {noun}"])
        what = "whom" if answer == "{person2}" else "what"
        return written(
            DID_WITH if self.rng.random() < 0.5 else DONE_WITH,
            s=subject,
            o=thing,
            p=joint,
            P=joint.capitalize(),
            x=answer,
            what=what,
            What=what.capitalize(),
            **verbs,
        )

    def office(self) -> Fact:
        """Somebody is the something of something."""
        noun, place = self.noun(), self.rng.choice(OFFICES)
        other, holder = self.alike(noun), self.rng.choice(["{person}", "{person}", *NAMED])
        be = self.rng.choice(["is", "was", "became", "remains", "will be"])
        fact = written(
            OFFICE,
            n=noun,
            n2=other,
            o=place,
            x=holder,
            be=be,
            ask="is" if be in {"became", "remains"} else be,
            who="Who" if "person" in holder else "What",
        )
        return self.some(fact, 4)

    def count(self) -> Fact:
        """Somebody did something to a number of things."""
        subject, verb = self.rng.choice(SUBJECTS), self.verb()
        verbs = forms(verb) | forms(self.alike(verb), "2")
        things = self.values.make_plural()
        number = self.rng.choice(["{small}", "{small}", "{big}"])
        return self.some(written(COUNT, s=subject, p=things, x=number, **verbs), 3)

    def label(self) -> Fact:
        """Something's something is a figure or a name, in words or as a line of a table."""
        noun = self.noun()
        other, label = self.alike(noun), self.rng.choice([*FIGURES, *NAMED])
        owner, done = self.rng.choice(LABELLED), participle(self.verb())
        fact = written(LABEL, n=noun, n2=other, x=label, o=owner, done=done)
        return self.some(fact, 4)

    def relative(self) -> Fact:
        """A sentence with a sentence inside."""
        subject, verb, second = self.rng.choice(SUBJECTS), self.verb(), self.verb()
        answer = self.rng.choice([*FIGURES[:6], *NAMED[:-1]])
        noun = self.noun()
        return written(
            RELATIVE,
            s=subject,
            o="the {thing}",
            x=answer,
            n=noun,
            did=past(verb),
            then=past(second),
            did2=past(self.alike(verb)),
            then2=self.alike(second),
            n2=self.alike(noun),
            n3=self.alike(noun),
            do2=self.alike(verb),
            did3=past(self.alike(verb)),
            then3=self.alike(second),
        )

    def state(self) -> Fact:
        """How something looks, what it costs, how long it lasts, where it lies."""
        owner = self.rng.choice(IN_A_STATE)
        verb, question, answer = self.rng.choice(STATES)
        ask = Template(question).substitute(o=owner)
        return written(STATE, o=owner, verb=verb, x=answer, ask=ask)


class Blank(Grammar):
    """The grammar with its verbs and nouns left open."""

    def __init__(self, rng: random.Random):
        super().__init__(Values({"plurals": ["{plural}"]}, rng), rng)

    def verb(self) -> str:
        """A slot."""
        return "{verb}"

    def noun(self) -> str:
        """A slot."""
        return "{noun}"


def patterns(draws: int = 2000) -> list[Fact]:
    """What the grammar makes from blanks; `draws` draws are enough to get every pattern."""
    blank = Blank(random.Random(0))
    return list(dict.fromkeys(blank.fact() for _ in range(draws)))
