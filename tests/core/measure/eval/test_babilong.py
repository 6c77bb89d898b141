"""bAbI stories: read as they are, refused when broken, spread in order among prose."""

import pytest

from longctx.core.common.errors import UnreadableInput, UsageError
from longctx.core.measure.eval.babilong import Babi, Story, read_all, read_babi, task
from longctx.core.measure.eval.filling import counter
from longctx.core.measure.prose import Prose, read_prose
from longctx.core.model.files import open_model_files

STORIES = """\
1 Ann went to the hall.
2 Bob went to the barn.
3 Where is Ann? \thall\t1
4 Ann went to the barn.
5 Where is Ann?\tbarn\t4
1 The shed is north of the barn.
2 What is the barn south of?\tshed\t1
"""


@pytest.fixture(scope="module")
def tokenizer():
    return open_model_files("tiny").tokenizer


@pytest.fixture
def babi(tmp_path):
    file = tmp_path / "qa1_my-facts_test.txt"
    file.write_text(STORIES)
    return read_babi(file)


def test_a_question_has_the_facts_before_it_and_no_other_questions(babi):
    first = ("Ann went to the hall.", "Bob went to the barn.")
    assert babi.stories == (
        Story(first, (0,), "Where is Ann?", "hall"),
        Story((*first, "Ann went to the barn."), (2,), "Where is Ann?", "barn"),
        Story(("The shed is north of the barn.",), (0,), "What is the barn south of?", "shed"),
    )
    assert (babi.name, babi.labels) == ("qa1", {"hall", "barn", "shed"})
    assert not babi.several


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no line of it has an answer"),
        ("1 Ann is here.\n", "no line of it has an answer"),
        ("Ann is here.\n", "line 1 of .*neither a numbered fact nor a question"),
        ("1 Ann is here.\n2 Where?\there\n", "line 2 of .*neither"),
        ("1 Ann is here.\n2 Where?\there\t1\tmore\n", "line 2 of .*neither"),
        ("1 Ann is here.\n2 Where?\there\t7\n", "line 7 of its story is no fact"),
        ("1 Ann is here.\n2 Where?\there\t2\n", "line 2 of its story is no fact"),
        ("1 Ann is here.\n1 Where?\there\t1\n", "line 1 of its story is no fact"),
    ],
)
def test_broken_files_are_told(tmp_path, text, said):
    file = tmp_path / "qa1.txt"
    file.write_text(text)
    with pytest.raises(UsageError, match=said) as told:
        read_babi(file)
    assert "qa1.txt" in str(told.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        read_babi(tmp_path / "qa1.txt")
    (tmp_path / "qa1.txt").write_bytes(b"\xff\x00")
    with pytest.raises(UnreadableInput, match="not UTF-8"):
        read_babi(tmp_path / "qa1.txt")


def test_a_task_is_given_once(tmp_path):
    paths = [tmp_path / name for name in ("qa1_a.txt", "qa2_a.txt", "mine.txt", "qa1_b.txt")]
    for path in paths:
        path.write_text(STORIES)
    assert list(read_all(paths[:3])) == ["qa1", "qa2", "mine"]
    with pytest.raises(UsageError, match=r"qa1_b\.txt.*another file of task qa1"):
        read_all(paths)


def test_facts_stand_in_order_among_prose(babi, tokenizer):
    prose, count = read_prose(None), counter(tokenizer)
    cases = list(task(babi, prose).make(tokenizer, 1000, 10, 0))
    assert [case.name for case in cases] == ["qa1/1000/0", "qa1/1000/1", "qa1/1000/2"]
    asked = {story.question + story.answer: story for story in babi.stories}
    for case in cases:
        (query,) = case.queries
        question = query.question.partition(" Answer with")[0]
        story = asked.pop(question + query.answers[0])
        places = [case.text.index(fact) for fact in story.facts]
        assert places == sorted(places)
        assert all(case.text.count(fact) == 1 for fact in story.facts)
        assert len({place // 100 for place in places}) > 1 or len(places) == 1
        assert 900 < count(case.text) <= 1000
        shown = [case.text.encode()[span.start : span.end].decode() for span in query.spans]
        assert shown == [story.facts[place] for place in story.supports]
    assert not asked


def test_a_fact_that_is_told_again_has_its_own_place(tmp_path, tokenizer):
    file = tmp_path / "qa1.txt"
    file.write_text("1 Ann left.\n2 Bob left.\n3 Ann left.\n4 Who left?\tAnn\t3\n")
    (case,) = task(read_babi(file), Prose(("It rained.",))).make(tokenizer, 200, 1, 0)
    (span,) = case.queries[0].spans
    assert case.text.encode()[span.start : span.end] == b"Ann left."
    assert span.start > case.text.index("Bob left.")


def test_the_question_names_every_label_not_the_answer_alone(babi, tokenizer):
    found = task(babi, read_prose(None))
    for case in found.make(tokenizer, 300, 10, 0):
        (query,) = case.queries
        assert query.question.endswith("? Answer with one of these alone: barn, hall, shed.")
        assert found.score(query.answers, query.answers[0]) == 1
        assert found.score(query.answers, "barn, hall, shed") == 0


def test_labels_of_the_question_do_not_count(babi, tokenizer):
    found = task(babi, read_prose(None))
    queries = [case.queries[0] for case in found.make(tokenizer, 300, 10, 0)]
    (query,) = [query for query in queries if query.question.startswith("What is the barn")]
    assert query.answers == ("shed", "barn")
    assert found.score(query.answers, "The barn is south of the shed.") == 1
    assert found.score(query.answers, "The barn.") == 0


def test_answers_of_several_labels(tmp_path, tokenizer):
    file = tmp_path / "qa8.txt"
    file.write_text("1 Ann took an egg.\n2 Ann took a cup.\n3 What has Ann?\tegg,cup\t1 2\n")
    found = task(read_babi(file), read_prose(None))
    (case,) = found.make(tokenizer, 300, 1, 0)
    (query,) = case.queries
    assert query.question.endswith("Answer with one or more of these alone: cup, egg.")
    assert len(query.spans) == 2
    assert found.score(query.answers, "A cup and an egg.") == 1
    assert found.score(query.answers, "A cup.") == 0


def test_seeds_and_lengths(babi, tokenizer):
    made = task(babi, read_prose(None)).make
    first = list(made(tokenizer, 600, 3, 0))
    assert list(made(tokenizer, 600, 3, 0)) == first
    longer = list(made(tokenizer, 700, 3, 0))
    asked = [[case.queries[0].question for case in cases] for cases in (first, longer)]
    assert asked[0] == asked[1]
    other = list(made(tokenizer, 600, 3, 1))
    texts = [case.text[:200] for case in (*first, *longer, *other)]
    assert len(set(texts)) == len(texts)


def test_stories_longer_than_the_document_are_passed_over(babi, tokenizer):
    made = task(babi, read_prose(None)).make
    assert 0 < len(list(made(tokenizer, 20, 10, 0))) < 3
    with pytest.raises(UsageError, match="3 tokens is too short for qa1"):
        list(made(tokenizer, 3, 10, 0))


@pytest.mark.parametrize(
    ("answers", "ordered"),
    [
        (["s,w", "s,s"], True),
        (["s,w", "w,s"], True),
        (["s,w", "n,e"], False),  # nothing tells them from lists
        (["cup,egg", "egg,cup", "nothing"], False),  # lists in the order in which things came
        (["s", "w"], False),
    ],
)
def test_paths_are_told_from_lists(answers, ordered):
    stories = tuple(Story(("Ann left.",), (0,), "How?", answer) for answer in answers)
    assert Babi("qa19", stories, frozenset("nesw")).ordered == ordered


def test_steps_of_a_path_are_asked_for_in_order(tmp_path, tokenizer):
    file = tmp_path / "qa19.txt"
    file.write_text(
        "1 The hall is north of the barn.\n2 How do you go there?\tn,n\t1\n"
        "1 The hall is west of the shed.\n2 How do you go there?\tn,w\t1\n"
    )
    found = task(read_babi(file), read_prose(None))
    for case in found.make(tokenizer, 300, 2, 0):
        (query,) = case.queries
        assert query.question.endswith("alone, in order, each as often as needed: n, w.")
        assert found.score(query.answers, query.answers[0]) == 1
        assert found.score(query.answers, query.answers[0][::-1]) == (query.answers[0] == "n,n")
        assert found.score(query.answers, "n") == 0
