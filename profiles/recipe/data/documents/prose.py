"""Documents of running text: alone, or with the questions that were mined from its sentences."""

from longctx.profiles.recipe.data.documents.document import TEXT, Document
from longctx.profiles.recipe.data.documents.questions import Questions
from longctx.profiles.recipe.data.haystacks import Haystacks


class ProseDocuments:
    """Makes documents of exactly `length` tokens."""

    def __init__(self, hay: Haystacks, questions: Questions):
        self.hay, self.questions, self.rng = hay, questions, hay.rng

    def text(self, length: int) -> Document:
        """Text alone: mostly prose."""
        document = Document.opened(self.hay.bos)
        source = self.rng.choices(["prose", "code", "logs"], [8, 1.5, 0.5])[0]
        document.add(self.hay.slice(getattr(self.hay.corpus, source), length - 1), TEXT)
        return document

    def mined(self, length: int) -> Document:
        """Prose and questions on its own sentences, at times one that another page answers."""
        wanted = self.rng.choice([1, 2, 3, 4, 6]) if length > 500 else 1
        room = length - 1 - 70 * wanted
        if room < 150:
            return self.text(length)
        ids, found = self.hay.asked_prose(room, wanted)
        document = Document.opened(self.hay.bos)
        document.add(ids, TEXT)
        asked = [
            self.questions.asked(question, answer, "mined", (first + 1, last + 1))
            for first, last, question, answer in found
        ]
        if self.rng.random() < self.hay.settings.absent:
            asked.append(self.questions.absent(self.rng.choice(self.hay.corpus.asked)[2]))
            self.rng.shuffle(asked)
        return self.questions.finish(document, asked, length)
