"""How papers are laid out: letters and mails, talk by lines, lists of points.

Says of every scene who wrote it and when, where the paper shows it.
"""

from abc import ABC, abstractmethod
from datetime import datetime, timedelta

from longctx.profiles.recipe.data.facts.slots import Filling
from longctx.profiles.recipe.data.made.pages import Line, Record
from longctx.profiles.recipe.data.made.scenes import Scene, played, staged
from longctx.profiles.recipe.data.made.texts import texts
from longctx.profiles.recipe.data.made.values import MadeValues

GREETINGS = ["Dear {},", "Hello {},", "Hi {},", "{},"]
CLOSINGS = ["Best wishes,", "Regards,", "Yours,", "Until soon,", "Cheers,"]
SUBJECTS = ["the {adj} {noun}", "{plural} and {plural2}", "{noun} in {city}", "{name}", "{thing}"]
HEADS = ["Minutes of {dated}", "Report on the {noun}", "Memo, {dated}", "Agreement", "The {thing}"]
TOPICS = ["The {noun}", "{plural}", "Of the {adj} {noun}", "About {city}", "{noun}"]
Turn = list[tuple[Record, int, Line]]


class Writing(ABC):
    """A paper while it is written.

    Attributes:
        lines: what is written.
        records: what is said.
    """

    idle_file = "chatter.txt"

    def __init__(self, values: MadeValues, scenes: list[Scene]):
        self.values, self.rng, self.scenes = values, values.rng, scenes
        self.idle = texts(self.idle_file)
        r = self.rng.randint
        self.people = [values.make_full() for _ in range(r(2, 5))]
        self.time = datetime(r(1890, 2030), r(1, 12), r(1, 28), r(7, 20), r(0, 59))
        self.lines: list[Line] = []
        self.records: list[Record] = []

    def write(self, size: int) -> None:
        """Writes about this many characters."""
        written = 0
        while written < size:
            before = len(self.lines)
            self.part()
            written += sum(len(line.text) + 1 for line in self.lines[before:])

    @abstractmethod
    def part(self) -> None:
        """Writes the next part."""

    def filled(self, template: str) -> str:
        """A template with new values."""
        return Filling(self.values).fill(template)

    def turns(self) -> list[Turn]:
        """What one says in a new scene, and what is answered."""
        scene = self.rng.choice(self.scenes)
        earlier = [one for one in self.records[-9:] if one.kind == scene.name]
        record, said = played(scene, self.values, earlier)
        lines = [Line(text, " ") for _, text in said]
        self.records.append(staged(scene, record, lines))
        found: list[Turn] = [[]]
        for number, ((before, _), line) in enumerate(zip(said, lines, strict=True), 1):
            if before == "reply":
                found.append([])
            found[-1].append((record, number, line))
        return found

    def note(self, turn: Turn, name: str, value: str, line: Line | None = None) -> None:
        """Adds a field to the records of a turn, said in `line` or in the turn's own lines."""
        for record, number, own in turn:
            record.fields[f"{name}{number}"] = value
            record.apart.setdefault(f"{name}{number}", []).append(line or own)

    def day(self) -> str:
        """The day it is now."""
        return f"{self.time.day} {self.time.strftime('%B %Y')}"

    def paragraph(self, turn: Turn) -> list[Line]:
        """What is said, with idle sentences before, between and after it."""
        found: list[Line] = []
        for line in [*(line for _, _, line in turn), None]:
            while self.rng.random() < 0.3:
                found.append(Line(self.filled(self.rng.choice(self.idle)), " "))
            found += [line] if line else []
        found[-1].end = "\n\n"
        return found


class Letters(Writing):
    """Letters, or mails and the answers to them."""

    def __init__(self, values: MadeValues, scenes: list[Scene]):
        super().__init__(values, scenes)
        self.on_paper = self.rng.random() < 0.25
        self.addresses = {
            name: f"{name.lower().replace(' ', '.')}@{values.make_domain()}" for name in self.people
        }

    def part(self) -> None:
        """A message, and the answers to what it asks."""
        sender, receiver = self.rng.sample(self.people, 2)
        first: Turn = []
        answers: list[Turn] = []
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            turn, *others = self.turns()
            first += turn
            answers += others
        subject = self.filled(self.rng.choice(SUBJECTS))
        self.message(sender, receiver, subject, first)
        for turn in answers:
            self.message(receiver, sender, f"Re: {subject}", turn)

    def message(self, sender: str, receiver: str, subject: str, turn: Turn) -> None:
        """One message."""
        self.time += timedelta(minutes=self.rng.randint(20, 9000))
        body = self.paragraph(turn)
        greeting = self.rng.choice(GREETINGS).format(receiver.split()[0])
        closing = Line(self.rng.choice(CLOSINGS))
        if self.on_paper:
            signed, dated = Line(sender, "\n\n\n"), Line(f"{self.values.make_city()}, {self.day()}")
            dated.end = "\n\n"
            self.lines += [dated, Line(greeting, "\n\n"), *body, closing, signed]
        else:
            signed = Line(f"From: {sender} <{self.addresses[sender]}>")
            dated = Line(f"Date: {self.day()}, {self.time:%H:%M}")
            head = [signed, Line(f"To: {receiver}"), dated, Line(f"Subject: {subject}", "\n\n")]
            end = Line(sender.split()[0], "\n\n\n")
            self.lines += [*head, Line(greeting, "\n\n"), *body, closing, end]
            self.records.append(self.header(sender, receiver, subject, head))
        self.note(turn, "by", sender, signed)
        self.note(turn, "at", self.day(), dated)

    def header(self, sender: str, receiver: str, subject: str, head: list[Line]) -> Record:
        """What the head of a mail says."""
        by, to, at, about = head
        said = {
            "by": (sender, by),
            "email": (self.addresses[sender], by),
            "to": (receiver, to),
            "sent": (self.day(), at),
            "subject": (subject, about),
        }
        fields = {name: value for name, (value, _) in said.items()}
        return Record("message", fields, by, {name: [line] for name, (_, line) in said.items()})


class Talk(Writing):
    """A chat, or a diary."""

    def __init__(self, values: MadeValues, scenes: list[Scene]):
        super().__init__(values, scenes)
        self.diary = self.rng.random() < 0.4
        self.shape = self.rng.choice(
            ["[{at}] {by}: {text}", "{at} {by}: {text}", "{by} ({at}): {text}"]
        )
        if self.diary:
            self.scenes = [scene for scene in scenes if not any(b for b, _ in scene.lines)]
        self.people = [name.split()[0] for name in self.people]

    def part(self) -> None:
        """An entry, or what two say."""
        if self.diary:
            self.time += timedelta(days=self.rng.randint(1, 9))
            head = Line(f"{self.time:%A}, {self.day()}")
            turn = [one for _ in range(self.rng.choice([1, 1, 2])) for one in self.turns()[0]]
            self.lines += [head, *self.paragraph(turn)]
            self.note(turn, "at", self.day(), head)
            return
        speakers = self.rng.sample(self.people, 2)
        for number, turn in enumerate(self.turns()):
            for line in self.paragraph(turn):
                self.time += timedelta(minutes=self.rng.randint(1, 40))
                told = {"at": f"{self.time:%H:%M}", "by": speakers[number % 2]}
                line.text, line.end = self.shape.format(text=line.text, **told), "\n"
                self.lines.append(line)
                for name, value in told.items():
                    self.note([one for one in turn if one[2] is line], name, value)


class Lists(Writing):
    """Points under headings: minutes, contracts, recipes, instructions."""

    idle_file = "remarks.txt"

    def __init__(self, values: MadeValues, scenes: list[Scene]):
        super().__init__(values, scenes)
        self.mark = self.rng.choice(["{}. ", "- ", "§ {} ", "{}) ", "* "])
        self.lines.append(Line(self.filled(self.rng.choice(HEADS)), "\n\n"))
        self.number = 0

    def part(self) -> None:
        """A few points, sometimes under a heading."""
        if self.rng.random() < 0.4:
            topic = self.filled(self.rng.choice(TOPICS))
            self.lines[-1].end = "\n\n"
            self.lines.append(Line(topic[0].upper() + topic[1:], "\n\n"))
        for line in self.paragraph(self.turns()[0]):
            self.number += 1
            line.text, line.end = self.mark.format(self.number) + line.text, "\n"
            self.lines.append(line)
