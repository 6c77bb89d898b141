"""Questions written for longctx stand beside their evidence, in sources and renamed copies."""

import random
import subprocess
import sys

import pytest

from longctx.profiles.recipe.data import asked
from longctx.profiles.recipe.data.asked import AskedDocument, Question
from longctx.profiles.recipe.data.sources import written
from longctx.profiles.recipe.data.sources.renaming import renamed
from longctx.profiles.recipe.data.sources.written import Written

BOOK = (
    "The Heron's Year\n\nIn spring the ferryman, whose name was Jonas Wick, had\n"
    "hired two boys for 350 crowns. "
    "One of them, Piet, could not swim.\n\n" + "Nothing else happened. " * 40
)
ASKED = Written(
    "The Heron's", "whose name was Jonas Wick, had hired", "What did the boys cost?", "350 crowns"
)


def shown(document: AskedDocument, question: Question) -> str:
    return " ".join(" ".join(document.text[a:b] for a, b in question.evidence).split())


def test_a_question_is_placed_over_a_line_end():
    (made,) = written.documents(BOOK, [ASKED], "written-book")
    (one,) = made.questions
    assert shown(made, one).startswith("In spring the ferryman")
    assert shown(made, one).endswith("350 crowns.")


def test_in_code_a_sentence_is_a_line():
    source = "import os\n\nLIMIT = 30  # seconds\nOTHER = 4\n"
    one = Written("a/b.py", "LIMIT = 30", "How long may it take?", "30")
    (made,) = written.documents(source, [one], "written-code")
    assert shown(made, made.questions[0]) == "LIMIT = 30 # seconds"


@pytest.mark.parametrize("change", [{"evidence": "whose name was Jan"}, {"answer": "351 crowns"}])
def test_what_the_source_has_not_is_left_out(change):
    wrong = Written(**{**vars(ASKED), **change})
    assert [*written.documents(BOOK, [wrong], "written-book")] == []


def test_questions_far_apart_are_of_different_stretches():
    source = (
        BOOK + "\n\n" + "Rain fell.\n" * 4000 + "\n\nLater Piet bought a heron for nine crowns.\n"
    )
    late = Written("The Heron's", "Later Piet bought", "What was the bird's price?", "nine crowns")
    first, second = written.documents(source, [late, ASKED], "written-book")
    assert [one.answer for one in (*first.questions, *second.questions)] == [
        "350 crowns",
        "nine crowns",
    ]
    assert max(len(first.text), len(second.text)) < 8000


def test_other_names_and_numbers_are_the_same_throughout():
    sentence = "So they asked Jonas, and then Jonas told Piet that 350 crowns were gone. "
    text = sentence * 3
    question = Question(
        "Whom did Jonas tell of 350 crowns?", "Piet", ((len(sentence), 2 * len(sentence) - 1),)
    )
    document = AskedDocument("written-book", text, (question,))
    kinds = set()
    for seed in range(12):
        made = renamed(document, random.Random(seed))
        (one,) = made.questions
        assert one.answer in shown(made, one)
        assert shown(made, one) == made.text[: len(made.text) // 3].strip()
        name = one.text.split()[2]
        assert f"asked {name}, and then {name} told {one.answer} that" in made.text
        assert one.text.split()[-2] in made.text
        kinds |= {name != "Jonas", "350" in made.text}
    assert kinds == {True, False}


def test_the_command_places_what_it_can(tmp_path):
    book = tmp_path / "books.txt"
    book.write_text(BOOK + "\n<|doc|>\nAnother book\n")
    name = written.opening(BOOK)
    lines = [[name, *list(vars(ASKED).values())[1:]], [name, "no such words", "Who?", "Piet"]]
    (tmp_path / "asked.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    options = ["--kind", "written-book", "--copies", "2", "--out", tmp_path / "made.jsonl.xz"]
    done = subprocess.run(
        [sys.executable, "-m", written.__name__, tmp_path / "asked.tsv", book, *options],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1 of 2 questions placed" in done.stderr
    made = [*asked.read(tmp_path / "made.jsonl.xz")]
    assert [one.kind for one in made] == ["written-book"] * 3
    assert shown(made[0], made[0].questions[0]).endswith("350 crowns.")
