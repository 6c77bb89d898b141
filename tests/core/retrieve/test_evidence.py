"""Whether documents seem to say what a question is about."""

import math

import pytest
from word_documents import write_texts

from longctx.core.retrieve import lexical
from longctx.core.retrieve.evidence import judged
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.store.library import Library

FILLER = "It rained on the hills and the sheep stood under the wall until the evening came. "
TEXT = FILLER * 40 + "The keeper painted the oil store green in May. " + FILLER * 40


@pytest.fixture
def index(tmp_path) -> PassageIndex:
    library = Library.open(tmp_path / "library", create=True)
    return PassageIndex(write_texts(library, TEXT))


def test_words_that_stand_together_are_evidence(index):
    assert judged(index, "Who painted the oil store green?") == ("yes", 1.0)
    assert judged(index, "Which colour did the keeper paint the store?")[0] == "yes"


def test_words_of_another_text_are_none(index):
    question = "Which ambassador signed the treaty about the northern railway bridges?"
    assert judged(index, question) == ("no", 0.0)


def test_some_of_the_words_leave_it_open(index):
    verdict, share = judged(index, "When were the sheep sold to the butcher in town?")
    assert verdict == "unsure"
    assert 0.1 <= share < 0.5


def test_a_question_without_words_that_count_leaves_it_open(index):
    for question in ("", "?", "the of and", "a", "who?"):
        assert judged(index, question) == ("unsure", None)
    assert judged(index, "whales?") == ("no", 0.0)


def test_the_share_by_hand(index):
    runs = len(run_texts(index))
    having = sum("keeper" in text for text in run_texts(index))

    def weight(count: int) -> float:
        total = runs + lexical.BEYOND
        return math.log(1 + (total - count + 0.5) / (count + 0.5))

    share = index.shared("keeper lighthouse")
    assert 0 < having < runs
    assert share == pytest.approx(weight(having) / (weight(having) + weight(0)))
    assert index.shared("keeper keeper lighthouse") == share


def run_texts(index: PassageIndex) -> list[str]:
    """The text of each run of so many passages as the words have to be together in."""
    words, passages = TEXT.split(), index.passages
    return [
        " ".join(words[passages.tokens[a] : passages.tokens[b] + passages.lengths[b]])
        for a, b in passages.runs(lexical.TOGETHER)
    ]


def test_a_part_of_a_document_alone(index):
    painted = next(n for n, text in enumerate(run_texts(index)) if "keeper" in text)
    assert index.shared("keeper", within=(painted, painted + lexical.TOGETHER)) == 1.0
    assert index.shared("keeper", within=(0, lexical.TOGETHER)) == 0.0
