"""Facts hidden in prose: statements of the recipe's frames among paragraphs, and what is asked.

Keeps to facts whose question no other fact of the document could answer. A question without an
answer is that of a fact which was left out, as a rule while its rivals stayed.
"""

import re
from collections.abc import Sequence

from longctx.profiles.recipe.data.asked import AskedDocument, Question
from longctx.profiles.recipe.data.made.pages import Line, Page
from longctx.profiles.recipe.data.made.prose import paragraph
from longctx.profiles.recipe.data.needles.needle import Needle
from longctx.profiles.recipe.data.needles.of_chains import ChainNeedles
from longctx.profiles.recipe.data.needles.of_frames import FrameNeedles
from longctx.profiles.recipe.data.values.every import Values

NEAR = 0.3  # of the groups of rivals have similar names
MANY = 0.15  # of the documents have up to 24 facts, as many as 22 of them of one wording
LEFT_OUT = 0.1  # of the facts; those without rivals stay more often
SENTENCE_END = re.compile(r"(?<=[a-z]{3}[.!?]) (?=[A-Z\"“])")
WORD = re.compile(r"\w+")


class HiddenFacts:
    """Makes documents of prose with facts in it."""

    def __init__(self, values: Values, filler: Sequence[str]):
        self.values, self.rng, self.filler = values, values.rng, filler
        self.frames, self.chains = FrameNeedles(values), ChainNeedles(values)

    def document(self) -> AskedDocument:
        """Paragraphs with facts in them, and a question for each fact."""
        needles: list[Needle] = []
        while len(needles) < 4:
            many = self.rng.random() < MANY
            needles = self.needles(self.rng.randint(*((14, 24) if many else (4, 14))), many)
        left_out = self.left_out(needles)
        lines = {
            id(one): [Line(text) for text in one.texts] for one in needles if one not in left_out
        }
        size = int((5600 if many else 1400) * (2 if many else 8) ** self.rng.random())
        placed = [
            place
            for needle in needles
            if id(needle) in lines
            for place in self.places(needle, lines[id(needle)])
        ]
        page = Page("facts", among(self.prose(size), placed), [], [])
        text, spans = page.laid_out()
        questions = [
            Question(
                needle.question,
                said(needle),
                tuple(sorted(spans[line] for line in lines[id(needle)])),
            )
            if id(needle) in lines
            else Question(needle.question, None, ())
            for needle in needles
        ]
        self.rng.shuffle(questions)
        return AskedDocument("facts", text, tuple(questions))

    def needles(self, count: int, many: bool = False) -> list[Needle]:
        """At most `count` facts, in groups of one kind, each with a question of its own.

        Args:
            count: facts.
            many: the first group has most of them.
        """
        found = self.frames.freely(self.rng.randint(0, 3))
        if many:
            found += self.frames.group(count - 3, near=self.rng.random() < NEAR)
        while len(found) < count:
            found += self.group()
        found = found[:count]
        words = [words_of(" ".join(needle.texts)) for needle in found]
        kept = []
        for index, needle in enumerate(found):
            key = words_of(needle.question) & words[index]
            others = words[:index] + words[index + 1 :]
            # Where question and statement share nothing, the meaning alone tells the facts apart.
            if needle.kind == "freely" or not any(key <= other for other in others):
                kept.append(needle)
        return kept

    def group(self) -> list[Needle]:
        """One fact, or rivals: facts of one frame about other things, or about similar names."""
        chance = self.rng.random()
        size = self.rng.choice([2, 3, 4, 6, 8])
        if chance < 0.12:
            return [self.frames.frame()]
        if chance < 0.5:
            return self.frames.group(size, near=chance < 0.34)
        if chance < 0.66:
            return self.frames.keyed(size)
        if chance < 0.88:
            return self.chains.chain(self.rng.choice([1, 2, 3]))
        if chance < 0.97:
            return self.chains.links(self.rng.choice([1, 2, 2]))
        return [self.frames.several()]

    def left_out(self, needles: list[Needle]) -> list[Needle]:
        """The facts of which only the question stays; three facts stay at least."""
        plain = [one for one in needles if one.kind in {"group", "near", "keyed"}]
        plain = plain or [one for one in needles if one.kind == "frame"]
        count = sum(self.rng.random() < LEFT_OUT for _ in needles)
        count = min(count, len(plain), len(needles) - 3)
        return self.rng.sample(plain, max(0, count))

    def prose(self, size: int) -> list[Line]:
        """Paragraphs of about `size` characters together, sentence by sentence.

        The caller's follow one another as they were given.
        """
        found: list[Line] = []
        at = self.rng.randrange(max(1, len(self.filler)))
        while size > 0:
            if self.filler:
                text = self.filler[at % len(self.filler)].strip("\n")
                end = "\n" if "\n" in text else " "  # lines of code and logs stay lines
                sentences = text.split("\n") if end == "\n" else SENTENCE_END.split(text.strip())
            else:
                sentences, end = paragraph(self.values), " "
            at += 1
            for sentence in sentences:
                found.append(Line(sentence, end))
                size -= len(sentence) + 1
                if size < -300:  # within a long paragraph
                    break
            found[-1].end = "\n\n"
        return found

    def places(self, needle: Needle, lines: list[Line]) -> list[tuple[float, Line]]:
        """Where in the prose, from 0 to 1, a fact's texts stand."""
        at = [self.rng.random() for _ in lines]
        return list(zip(sorted(at) if needle.ordered else at, lines, strict=True))


def among(prose: list[Line], placed: list[tuple[float, Line]]) -> list[Line]:
    """The prose with lines put in: sentences in a paragraph, other lines between paragraphs.

    Among lines, they are lines.
    """
    put: dict[int, list[Line]] = {}
    for place, line in sorted(placed, key=lambda one: one[0]):
        put.setdefault(int(place * len(prose)), []).append(line)
    found: list[Line] = []
    for index, sentence in enumerate(prose):
        by_line = sentence.end == "\n" or (bool(found) and found[-1].end == "\n")
        for line in put.get(index, []):
            line.end = " " if line.text.endswith((".", "!", "?")) else "\n\n"
            line.end = "\n" if by_line else line.end
            if line.end == "\n\n" and found:
                found[-1].end = "\n\n"
            found.append(line)
        found.append(sentence)
    return found


def said(needle: Needle) -> str:
    """The answer in the letters of the text that holds it."""
    text = needle.texts[needle.holder]
    at = text.lower().find(needle.answer.lower())
    return needle.answer if at < 0 else text[at : at + len(needle.answer)]


def words_of(text: str) -> set[str]:
    """The words of a text, in small letters."""
    return set(WORD.findall(text.lower()))
