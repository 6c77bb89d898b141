"""The rule of docs/evaluation/public.py: figures, words and refusals of an answer."""

import pytest
from public_sets import rule


@pytest.mark.parametrize(
    ("question", "right", "answer", "holds"),
    [
        ("What was it?", "$2,576,340.", "The equity was $2,576,340 then.", True),
        ("What was it?", "$2,576,340.", "The equity was $2,576,341 then.", False),
        ("What was it?", "", "2", False),
        ("What was it in 2024?", "It was 12 in 2024.", "12", True),  # the year was asked
        ("What was it?", "It rose from 4 to 9.", "9", False),  # all must stand there
        ("What was it?", "It rose from 4 to 9.", "from four to nine", True),
        ("What was it?", "$5.2 million", "$5,200,000", True),
        ("What was it?", "$5,200,000", "5.2 million", True),
        ("What was it?", "$5.2 million", "$5.2 billion", False),
        ("What was it?", "$3,977 thousand.", "$3.977 million", True),
        ("What was it?", "$3,977 thousand.", "$3,977 million", False),
        ("What was it?", "$1,090,000", "$1,090", True),  # of a table in thousands
        ("What was it?", "$5,000", "$5", False),  # too few digits for that
        ("What was it?", "96.16%", r"$96.16 \%$", True),  # as TeX writes it
        ("What was it?", "12%", "12 percent", True),
        ("What was it?", "12%", "0.12", True),
        ("What was it?", "12%", "$12", False),
        ("What was it?", "12%", "12", True),
        ("What was it?", "$30 million", "30%", False),
    ],
)
def test_figures(question, right, answer, holds):
    assert rule.holds_figures(question, right, answer) is holds


@pytest.mark.parametrize(
    ("question", "right", "answer", "holds"),
    [
        ("What is it named?", "Minimod.", "It is named Minimod, made for seismic models.", True),
        ("What was found?", "A broken stick.", "A purse and a gold watch.", False),
        ("How deep was the pit?", "Seven feet.", "The pit was five feet deep.", False),
        ("How deep was the pit?", "Seven feet.", "It was 7 feet deep.", True),
        ("Which word is it?", "The.", "the", True),
        ("What fixes it?", "A lack of time.", "Time is lacking.", True),
        ("What barks at the gate?", "The gate.", "The gate barks.", True),  # words of the question
        ("What did they plan?", "A walk.", "The text does not mention a walk or a plan.", False),
    ],
)
def test_words(question, right, answer, holds):
    assert rule.holds_words(question, right, answer, rule.F1[rule.SHORT]) is holds


def test_what_follows_a_right_beginning_costs_nothing():
    long = "Ginger-nuts. " + "The story has much else to say of other meals and people. " * 3
    assert rule.f1("What does he eat?", "Ginger-nuts.", long) == 1


@pytest.mark.parametrize(
    "answer",
    [
        "not in the text",
        "The financial statement does not provide any information about it.",
        "Based on the chunks, there is no mention of Asia.",
        "I apologize, but I cannot find it in the excerpts.",
        "No revenue figures are given.",
        "It is not explicitly stated.",
        "The question cannot be answered.",
        "None, according to the text.",
    ],
)
def test_refusals(answer):
    assert rule.refuses(answer)
    assert rule.verdict("What is it?", "No.", answer, rule.SHORT, False).said == rule.RIGHT
    assert rule.verdict("What is it?", "A 7.", answer, rule.SHORT).said == rule.REFUSED


@pytest.mark.parametrize(
    "answer",
    [
        "A microscope.",
        "The barrier is a lack of time.",
        "It could not have been human, because the evidence shows great strength.",
        "Agents are unable to take all constraints into account.",
        "It was 12 million. " + "And so on. " * 20 + "The reason is not stated.",
    ],
)
def test_answers_that_are_no_refusals(answer):
    assert not rule.refuses(answer)


def test_only_the_first_words_count():
    late = "Well, " * 30 + "it was 77."
    assert rule.verdict("What was it?", "77", late, rule.SHORT).said == rule.WRONG
    assert rule.verdict("What was it?", "77", late, rule.LONG).said == rule.RIGHT


@pytest.mark.parametrize("answerable", [True, False])
@pytest.mark.parametrize("answer", ["", " \n", "$"])
def test_an_empty_answer_is_neither_right_nor_a_refusal(answer, answerable):
    said = rule.verdict("What was it?", "77", answer, rule.SHORT, answerable)
    assert said.said == rule.EMPTY


def test_a_refusal_that_has_the_figures_is_right():
    answer = "The name is not stated, but it was 77."
    assert rule.verdict("What was it?", "77", answer, rule.SHORT).said == rule.RIGHT


def test_a_number_that_is_spelt_must_be_there_unless_the_question_has_it():
    question, right = "How did the vote on net-zero policies end?", "The net-zero vote was lost."
    assert rule.verdict(question, right, "lost", rule.SHORT).said == rule.RIGHT
    right = "Seven feet deep."
    assert rule.verdict("How deep was it?", right, "three feet deep", rule.SHORT).said == rule.WRONG
    assert rule.verdict("How deep was it?", right, "7 feet", rule.SHORT).said == rule.RIGHT
