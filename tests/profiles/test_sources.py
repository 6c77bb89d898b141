"""Records, books and source code as documents with questions: answers and evidence are in place."""

import ast
import random
from itertools import pairwise

import pytest

from longctx.profiles.recipe.data.asked import AskedDocument, Question
from longctx.profiles.recipe.data.sources import alike, books, evidence, prose_questions, records
from longctx.profiles.recipe.data.sources.code import __main__ as code
from longctx.profiles.recipe.data.sources.code import asking, packages
from longctx.profiles.recipe.data.sources.code.parts import SIZE, parts
from longctx.profiles.recipe.data.sources.code.source import Fact, parsed, spoken
from longctx.profiles.recipe.data.sources.code.verbs import WORDINGS, third
from longctx.profiles.recipe.data.sources.context import Context
from longctx.profiles.recipe.data.sources.shortest import shortest
from longctx.profiles.recipe.data.sources.written import Written, opening

TALE = "Once a miller had a goose. The goose laid an egg of gold! He sold it in Dover for a crown."
MODULE = '''# Copyright (c) 2020 Ada Lamb
"""Speaks to the mail server."""

import os
from queue import Empty

RETRY_DELAY = 2.5  # seconds between two tries
PORTS = {"plain": 25, "secure": 465}
SERVER = os.environ.get("MAIL_SERVER", "localhost")


class Connection(Base):
    """A connection to one server."""

    def __init__(self, host, timeout=30):
        self.host = host


def fetch_letters(connection, folder="inbox"):
    """Get the letters of a folder, newest first.

    .. versionadded:: 3.2

    :param folder: the folder that letters are taken from
    """
    if not connection:
        raise ConnectionError("the server has gone away")
    return []


\x0c
def is_local():
    return "perhaps"
'''
FILLING = "\n\ndef filling_{0}(a):\n" + "    a = a + 1\n" * 60 + "    return a\n"


def shown(document: AskedDocument, question: Question) -> str:
    return "\n".join(document.text[start:end] for start, end in question.evidence)


def facts_of(text: str) -> list[Fact]:
    source = parsed(text)
    assert source is not None
    return [fact for rule in code.RULES for fact in rule(source)]


def record(context: str, question: str, *answers: str, source: str = "qed-nq-dev") -> dict:
    return dict(context=context, question=question, answers=[*answers], source=source)


def test_alike_texts_stand_in_one_group():
    texts = [
        f"{word} " * 5 + f"thing{n}" for n in range(4) for word in ("goose", "anchor", "violin")
    ]
    made = alike.groups(texts, 4, 4, random.Random(0))
    assert sorted(index for group in made for index in group) == list(range(len(texts)))
    assert all(len({texts[index].split()[0] for index in group}) == 1 for group in made)


def test_an_answer_is_found_in_the_sentence_that_fits_the_question():
    text = "He paid a crown for hay. " + TALE
    found = evidence.located(text, "A Crown.", "For how much was the egg sold in Dover?")
    assert found is not None
    assert found[0] == "a crown"
    assert text[slice(*found[1])] == "He sold it in Dover for a crown."
    assert evidence.located(text, "crow", "What bird?") is None


def test_a_free_answer_has_the_sentences_that_share_its_words():
    spans = evidence.likely(TALE, "What was special about the goose?", "its eggs were of gold")
    assert TALE[slice(*spans[0])] == "The goose laid an egg of gold!"
    assert evidence.likely(TALE, "Why?", "nobody knows") == ((0, len(TALE)),)


def test_records_of_evaluations_are_left_out():
    kept = record("A  b.", "Who?", " x ")
    given = [
        kept,
        record("Seen text.", "New?", "x"),
        record("New text.", "IS this not  the question seen just before?", "x"),
        short := record("Newer text.", "Who?", "x"),
        record("New.", "What?", " "),
    ]
    evaluated = (
        record("Seen text.", "Is this not the question seen just before?"),
        record("Seen.", "Who?"),
    )
    assert records.usable(given, evaluated) == [
        kept | dict(context="A b.", answers=["x"]),
        short,
    ]


@pytest.mark.parametrize(
    ("question", "answer", "short"),
    [
        ("How many crowns did it cost?", "353354 crowns", "353354"),
        ("Which satellite was it?", "the Astra 2A satellite", "the Astra 2A"),
        ("What kind of dam holds water back?", "a gravity dam", "gravity"),
        ("Where do historians place it?", "in Khorasan", "Khorasan"),
        ("When did it end?", "At least a year later", "At least a year later"),
        ("Why did he leave?", "because of the box", "because of the box"),
        ("Which river is it?", "river", "river"),
        ("How long is it?", "27 nucleotides", "27 nucleotides"),
        ("In which street is it?", "La Salle Street", "La Salle Street"),
        ("Which door did he take?", "the third door", "the third door"),
    ],
)
def test_answers_lose_what_their_questions_say(question, answer, short):
    assert shortest(question, answer) == short


def test_further_questions_know_their_context():
    context = "Ada wrote the first program for a machine that nobody built, in 1843, in London."
    record = dict(context=context, question="Who wrote it?", answers=["Ada"], source="qed-nq-dev")
    asked = {opening(context): [Written(opening(context), "in 1843", "When was it?", "in 1843")]}
    (more,) = records.further([record, record], asked)
    assert (more["context"], more["source"]) == (context, "qed-nq-dev")
    (one,) = records.contexts_of([more], longest=False)
    assert [(q.text, q.answer) for q in one.questions] == [("When was it?", "1843")]


def test_grouped_records_keep_their_evidence():
    given = [
        record(f"{n} geese flew to Rome{n}.", f"How many flew to Rome{n}?", str(n))
        for n in range(9)
    ]
    given += [record("9 geese flew to Rome1.", "How many flew to Rome1?", "9")]
    documents = [*records.grouped(given, random.Random(0))]
    questions = [(document, one) for document in documents for one in document.questions]
    assert {document.kind for document in documents} == {"wiki"}
    for document, one in questions:
        assert shown(document, one).startswith(f"{one.answer} geese flew to")
    for document in documents:
        texts = [one.text for one in document.questions]
        assert len(texts) == len({*texts}), "a question that two contexts have is not asked"


def test_single_sentences_are_asked_what_is_clear_without_them():
    others = ["The mayor of Leeds opened the bridge in June."]
    sentence = "The mayor of York opened the new market hall in May."
    asked = [
        ("Who opened the market hall?", ["The mayor of York"]),
        ("When did he open the market hall?", ["May"]),
        ("What opened?", ["the hall"]),
        ("Whose mayor opened what?", ["York"]),
    ]
    made = records.chosen(Context.of(sentence, asked), others)
    assert [one.text for one in made.questions] == ["Who opened the market hall?"]


def test_stretches_are_all_of_a_book_and_wrapping_moves_nothing():
    book = "\n\n".join(f"Paragraph {n} goes on and on. " + "word " * 150 for n in range(80))
    cut = [*books.stretches(book, random.Random(1))]
    assert all(books.SIZE[0] <= len(one) <= books.SIZE[1] + 2 for one in cut)
    numbers = [int(word) for one in cut for word in one.split() if word.isdigit()]
    assert numbers == list(range(len(numbers)))
    wrapped = books.wrapped(cut[0], 60)
    assert max(map(len, wrapped.split("\n"))) <= 60
    assert wrapped.replace("\n", " ") == cut[0].replace("\n", " ")


def test_prose_is_asked_who_did_what_with_whole_sentences():
    text = (
        "Mrs. Greyle looked at the old harbour of Leith. "
        '"I have never seen so many boats at once," said Miss Audrey Hay, and she laughed. '
        "Copplestone walked along the quay to the lighthouse. "
        "He walked along the wall to the gate.\n"
    )
    asked = prose_questions.asked_of(text, random.Random(0))
    assert {one.answer for one in asked} == {"Copplestone", "Miss Audrey Hay"}
    for one in asked:
        start, end = one.evidence[0]
        assert text[start - 1 : start].strip() == ""
        assert text[end - 1] in ".!?"


@pytest.mark.parametrize(
    ("kind", "answer", "line"),
    [
        ("copyright", "Ada Lamb", "# Copyright"),
        ("constant", "2.5", "RETRY_DELAY"),
        ("commented", "RETRY_DELAY", "RETRY_DELAY"),
        ("entry", "465", "PORTS"),
        ("variable_of_name", "MAIL_SERVER", "SERVER"),
        ("variable_default", "localhost", "SERVER"),
        ("base", "Base", "class Connection"),
        ("default", "30", "def __init__"),
        ("default", "inbox", "def fetch_letters"),
        ("function_for", "fetch_letters", "def fetch_letters"),
        ("class_for", "Connection", "class Connection"),
        ("argument_for", "folder", "def fetch_letters"),
        ("versionadded", "3.2", "def fetch_letters"),
        ("raises", "ConnectionError", "def fetch_letters"),
        ("message", "the server has gone away", "def fetch_letters"),
        ("returns", "perhaps", "def is_local"),
        ("imported", "queue", "from queue"),
    ],
)
def test_facts_of_a_file(kind, answer, line):
    found = [one for one in facts_of(MODULE) if kind in one.kinds and one.answer == answer]
    assert found
    lines = MODULE.split("\n")
    assert lines[min(found[0].lines) - 1].strip().startswith(line)
    assert any(answer in lines[number - 1] for number in found[0].lines)


def test_every_fact_can_be_worded_and_every_wording_has_its_slots():
    for fact in facts_of(MODULE):
        for kind in fact.kinds:
            for wording in WORDINGS[kind]:
                assert "{" not in wording.format(**fact.slots)
    assert sum(map(len, WORDINGS.values())) >= 30


def test_a_wording_that_fits_two_answers_is_not_used():
    facts = [Fact(("size",), {"words": "page size"}, answer, (1,)) for answer in ("4", "8")]
    assert asking.asked(facts, {1: (0, 5)}, random.Random(0)) == []
    assert len(asking.asked(facts[:1], {1: (0, 5)}, random.Random(0))) == 1


def test_parts_of_a_file_are_whole_definitions_with_their_questions():
    text = MODULE + "".join(FILLING.format(n) for n in range(40))
    source = parsed(text)
    assert source is not None
    made = [*parts(source, random.Random(0))]
    assert len(made) > 1
    for part in made:
        assert SIZE[0] <= len(part.text) <= SIZE[1]
        ast.parse(part.text)
        assert [part.text[slice(*span)] for span in part.spans.values()] == [
            line.strip() for line in part.text.rstrip("\n").split("\n")
        ]
    assert all(one.first < other.first for one, other in pairwise(made))
    document = next(iter(code.documents(text, random.Random(0))))
    assert len(document.questions) >= code.LEAST
    for one in document.questions:
        assert one.answer is not None
        assert one.answer in shown(document, one)


def test_a_package_says_what_it_needs(tmp_path):
    (tmp_path / "lamp").mkdir()
    (tmp_path / "lamp-1.2.dist-info").mkdir()
    head = "Name: lamp\nVersion: 1.2.0\nLicense: MIT\nRequires-Dist: wick (>=3,<4) ; extra == 'x'\n"
    (tmp_path / "lamp-1.2.dist-info" / "METADATA").write_text(head + "\nVersion: 9\n")
    text = packages.metadata(tmp_path / "lamp")
    assert text is not None
    told = {one.kinds[0]: one.answer for one in packages.told(text)}
    assert told == {"package_version": "1.2.0", "package_licence": "MIT", "package_needs": ">=3,<4"}


def test_words_of_identifiers_and_verbs():
    assert spoken("MAX_RETRIES") == spoken("maxRetries") == "max retries"
    assert [third(verb) for verb in ("copy", "fetch", "display")] == [
        "copies",
        "fetches",
        "displays",
    ]
