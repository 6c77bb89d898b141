"""Documents with needles: facts hidden in a haystack, then questions about some of them."""

from dataclasses import replace

from longctx.profiles.recipe.data.documents.document import NEEDLE, TEXT, Document
from longctx.profiles.recipe.data.documents.prose import ProseDocuments
from longctx.profiles.recipe.data.documents.questions import Asked, Questions
from longctx.profiles.recipe.data.haystacks import Haystacks
from longctx.profiles.recipe.data.needles.needle import Needle
from longctx.profiles.recipe.data.needles.tasks import Tasks

Piece = tuple[int, int]  # which fact, which of its texts


class NeedleDocuments:
    """Makes documents of exactly `length` tokens; if no question fits, of `prose` alone."""

    def __init__(self, hay: Haystacks, tasks: Tasks, questions: Questions, prose: ProseDocuments):
        self.hay, self.tasks, self.questions, self.prose = hay, tasks, questions, prose
        self.rng = hay.rng

    def needles(self, length: int) -> Document:
        """Facts in a haystack, with questions about some of them."""
        return self.hidden(length, self.rng.choice([1, 2, 3, 4, 6, 8, 8, 10, 12]), dense=False)

    def dense(self, length: int) -> Document:
        """Many facts with little between them."""
        return self.hidden(length, self.rng.randint(4, max(5, length // 55)), dense=True)

    def hidden(self, length: int, count: int, dense: bool) -> Document:
        """About `count` facts, or as many as the length allows, and questions about some."""
        facts = self.tasks.mixture(max(1, min(count, length // 60)))
        self.rng.shuffle(facts)
        separator = self.rng.choice([" ", "\n", " ", "\n", "\n\n"])
        encoded = [[self.hay.encode(separator + text) for text in fact.texts] for fact in facts]
        room = length - 1 - sum(len(ids) for texts in encoded for ids in texts)
        chosen = self.choose(facts, room)
        room -= sum(map(self.questions.size, chosen.values()))
        if room < 0 or not chosen:
            return self.prose.text(length)
        order = list(chosen)
        self.rng.shuffle(order)
        document = Document.opened(self.hay.bos)
        alone = dense and self.rng.random() < 0.5
        spans = self.hide(document, facts, encoded, room, alone)
        asked = [replace(chosen[i], span=spans.get((i, facts[i].holder))) for i in order]
        self.questions.put(document, asked)
        return self.questions.pad(document, length)

    def choose(self, facts: list[Needle], room: int) -> dict[int, Asked]:
        """Questions about some facts, by the facts' numbers, that fit into `room` tokens."""
        chosen: dict[int, Asked] = {}
        wanted = self.rng.choice([1, 2, 3, 4, 6, 8, 10])
        order = self.rng.sample(range(len(facts)), len(facts))
        for index in sorted(order, key=lambda i: not facts[i].texts):  # absent facts last
            fact = facts[index]
            item = self.questions.asked(fact.question, fact.answer, fact.kind)
            if len(chosen) < wanted and self.questions.size(item) <= room:
                room -= self.questions.size(item)
                chosen[index] = item
        return chosen

    def hide(
        self,
        document: Document,
        facts: list[Needle],
        encoded: list[list[list[int]]],
        count: int,
        alone: bool,
    ) -> dict[Piece, tuple[int, int]]:
        """Appends `count` tokens of haystack with all texts inside; returns where each one is.

        If `alone`, the texts come together after the haystack.
        """
        ids, kind = self.hay.make(count)
        pieces = self.pieces(facts)
        if alone:
            cuts = [len(ids)] * len(pieces)
        else:
            cuts = sorted(self.hay.cut(ids, kind) for _ in pieces)
        spans, last = {}, 0
        for cut, (index, part) in zip(cuts, pieces, strict=True):
            document.add(ids[last:cut], TEXT)
            spans[index, part] = document.add(encoded[index][part], NEEDLE)
            last = cut
        document.add(ids[last:], TEXT)
        return spans

    def pieces(self, facts: list[Needle]) -> list[Piece]:
        """All texts in random order, except that an ordered fact's texts keep theirs."""
        pieces = [
            (index, part) for index, fact in enumerate(facts) for part in range(len(fact.texts))
        ]
        self.rng.shuffle(pieces)
        for index, fact in enumerate(facts):
            if fact.ordered:
                places = [i for i, piece in enumerate(pieces) if piece[0] == index]
                for part, place in enumerate(places):
                    pieces[place] = (index, part)
        return pieces
