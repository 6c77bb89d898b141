"""Questions that refer to the one before: which do, what is asked, and what is shown."""

import pytest

from longctx.core.ask.follow_up import LONGEST, Exchange, joined, refers_back
from longctx.core.ask.refusing import PHRASE
from longctx.core.ask.session import Session
from longctx.core.ingest.ingest import ingest

KEEPER = Exchange("Who kept the lighthouse?", "Jonas Reed")


@pytest.mark.parametrize(
    "question",
    [
        "When did he leave?",
        "What is it called?",
        "who were their children?",
        "And when did Anna leave?",
        "What about the dog?",
        "Since when?",
        "Why?",
        "Who lived there?",
        "Why did they trust Captain Orr?",
    ],
)
def test_a_question_that_refers_to_the_one_before(question):
    assert refers_back(question)


@pytest.mark.parametrize(
    "question",
    [
        "Who kept the lighthouse?",
        "When did Anna leave her husband?",
        "Is there a boat at the island?",
        "What is the code of the shed that was painted?",
        "Who is Anna?",
        "list all the keepers",
        "Wer bewachte den Leuchtturm in der Nacht?",
        "",
    ],
)
def test_a_question_that_stands_alone(question):
    assert not refers_back(question)


def test_what_is_asked_are_the_questions_before_with_their_answers():
    question = "When did he leave?"
    assert joined(question, ()) == question
    assert joined(question, [KEEPER]) == f"{KEEPER.question} Jonas Reed. {question}"
    for phrase in (PHRASE, "It is Not in the document."):
        unknown = Exchange("Who built it", phrase)
        assert joined(question, [unknown]) == f"Who built it. {question}"
    many = [Exchange(f"q{number}?", "") for number in range(9)]
    assert joined("Why?", many) == "q6? q7? q8? Why?"
    long = joined("Why?", [Exchange("Who?", "word " * 999)])
    assert len(long) < LONGEST + len("Who? Why? .")
    assert joined(" ", [KEEPER]) == " "  # refused as empty, whatever was before


def test_it_is_searched_and_read_with_the_question_before_and_reported_as_typed(
    tmp_path, setup_random
):
    source = tmp_path / "book.txt"
    source.write_text(("the keeper wrote in his book\nsalt and rain\na boat came home\n") * 9)
    ingest(tmp_path / "library", [str(source)], setup_random)
    before = Exchange("what of salt and rain?", "news")
    with Session(tmp_path / "library", None, setup_random) as session:
        whole = session.ask(joined("who wrote it?", [before]))
        answer = session.ask("who wrote it?", before=[before])
        alone = session.ask("who wrote it?")
    assert (answer.question, answer.continues) == ("who wrote it?", (before,))
    assert (answer.answer, answer.tokens) == (whole.answer, whole.tokens)
    assert [p.start for p in answer.passages] == [p.start for p in whole.passages]
    assert answer.tokens["question"] > alone.tokens["question"]
    assert answer.as_dict()["continues"] == ({"question": before.question, "answer": "news"},)
    assert alone.as_dict()["continues"] == ()
    # What is shown of a passage is the line with words of this question.
    assert all("wrote" in p.best_text for p in answer.passages if "wrote" in p.text)
