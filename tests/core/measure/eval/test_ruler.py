"""RULER's tasks: as many keys, values and words as their definitions say, in full documents."""

import re
from collections import Counter
from random import Random

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.measure.eval.filling import counter
from longctx.core.measure.eval.ruler import tracking
from longctx.core.measure.eval.ruler.counting import ASK_COMMON, make_common, make_frequent
from longctx.core.measure.eval.ruler.making import NOISE, Materials, Words, sample_words
from longctx.core.measure.eval.ruler.squad import Squad, SquadQuestion
from longctx.core.measure.eval.ruler.tasks import NAMES, NEEDLES, tasks
from longctx.core.measure.prose import read_prose
from longctx.core.model.files import open_model_files

LENGTH = 1500
SQUAD = Squad(
    tuple(
        SquadQuestion(
            f"What is thing {i}?", (f"answer {i}", "or so"), (f"Thing {i} is answer {i}, sir.",)
        )
        for i in range(40)
    ),
    tuple(f"Thing {i} is answer {i}, sir." for i in range(40)),
)
HOTPOT = Squad(
    (SquadQuestion("Who?", ("Ann",), ("Bob is it.", "It is Ann.")),),
    ("Bob is it.", "It is Ann.", "Nobody knows.", *(f"On day {i} it rained." for i in range(900))),
)
LINE = re.compile(r"One of the special magic (number|uuid)s for (\S+) is: (\S+)\.")
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
FORMS = {"word": r"[a-z]+-[a-z]+", "number": r"\d{7}", "uuid": UUID}


@pytest.fixture(scope="module")
def tokenizer():
    return open_model_files("tiny").tokenizer


@pytest.fixture(scope="module")
def made():
    return tasks(Materials(read_prose(None), sample_words()), {"qa_1": SQUAD, "qa_2": HOTPOT})


def one(made, tokenizer, name, length=LENGTH, seed=0):
    (case,) = made[name].make(tokenizer, length, 1, seed)
    (query,) = case.queries
    return case.text, query


def test_there_are_thirteen_by_rulers_names(made):
    assert len(NAMES) == 13
    assert set(made) == set(NAMES)
    assert all(made[name].name == name for name in NAMES)


def test_tasks_without_a_file_are_left_out():
    found = tasks(Materials(read_prose(None), sample_words()), {})
    assert set(NAMES) - set(found) == {"qa_1", "qa_2"}


@pytest.mark.parametrize("name", NAMES)
def test_documents_are_full_and_never_too_long(made, tokenizer, name):
    count = counter(tokenizer)
    sizes = [count(case.text) for case in made[name].make(tokenizer, LENGTH, 2, 3)]
    unit = 130 if name in ("niah_multikey_3", "qa_2") or "niah" in name else 60
    least = count("\n".join(SQUAD.paragraphs)) if name == "qa_1" else LENGTH - unit
    assert all(least <= size <= LENGTH for size in sizes)


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_bytes_and_other_length_other_layout(made, tokenizer, name):
    first = list(made[name].make(tokenizer, LENGTH, 2, 0))
    assert list(made[name].make(tokenizer, LENGTH, 2, 0)) == first
    assert list(made[name].make(tokenizer, LENGTH, 1, 0)) == first[:1]
    others = [case.text for case in made[name].make(tokenizer, LENGTH, 1, 1)]
    longer = [case.text for case in made[name].make(tokenizer, LENGTH + 200, 1, 0)]
    texts = [*(case.text for case in first), *others, *longer]
    assert len(set(texts)) == len(texts)
    starts = {text[:200] for text in texts if not text.startswith(NOISE * 2)}
    assert name in ("niah_single_1", "vt") or len(starts) == len(texts)


@pytest.mark.parametrize("name", NAMES)
def test_the_question_gives_no_answer_away(made, tokenizer, name):
    for case in made[name].make(tokenizer, LENGTH, 2, 0):
        (query,) = case.queries
        assert not any(answer in query.question for answer in query.answers)
        assert made[name].score(query.answers, query.question) == 0
        assert made[name].score(query.answers, ", ".join(query.answers)) == 1
        assert query.kind == name


def test_no_word_of_a_question_is_drawn_as_an_answer(tokenizer):
    count = counter(tokenizer)
    said = [word for word in sample_words().whole if word in ASK_COMMON]
    assert said  # else nothing is tested
    # Each of the others stands in a longer one, but for the longest.
    others = tuple("x" * number for number in range(1, 41))
    free = {"bb", "cc", "dd", "ff", "gg", "jj", "kk", "qq", "vv", others[-1]}
    few = Words(others, (), (*said, *(free - {*others})))
    assert {*few.whole} == {*said, *free}
    for seed in range(3):
        _, query = make_common("cwe", few, Random(seed), 1500, count)
        assert {*query.answers} == free


@pytest.mark.parametrize(
    ("make", "letters", "least", "other"),
    [(make_frequent, "eaving", 3, "a"), (tracking.make, "WHICH", 5, "A")],
)
def test_no_made_up_word_of_an_answer_is_in_the_question(tokenizer, make, letters, least, other):
    class Drawn(Random):
        """Draws letters that a question has, before any others."""

        times = 0

        def choices(self, population, *, k):
            self.times += 1
            return [*letters] if self.times == 1 else super().choices(population, k=k)

    draw = Drawn(0)
    _, query = make("one", draw, 1500, counter(tokenizer))
    assert draw.times > least
    assert letters.lower() in query.question.lower()
    assert len(query.answers) == least
    assert letters not in query.answers


@pytest.mark.parametrize("name", NEEDLES)
def test_needles_are_as_many_as_the_definition_says(made, tokenizer, name):
    kind = NEEDLES[name]
    text, query = one(made, tokenizer, name)
    found = LINE.findall(text)
    if kind.haystack == "needles":
        assert len(found) > 10
        assert len({key for _, key, _ in found}) == len(found)
    else:
        assert len(found) == kind.keys * kind.values
        assert len({key for _, key, _ in found}) == kind.keys
    assert len({value for _, _, value in found}) == len(found)
    assert all(re.fullmatch(FORMS[kind.key], key) for _, key, _ in found)
    assert all(re.fullmatch(FORMS[kind.value], value) for _, _, value in found)
    asked = {key for _, key, _ in found if key in query.question}
    assert len(asked) == kind.asked
    assert {value for _, key, value in found if key in asked} == set(query.answers)
    assert len(query.answers) == kind.asked * kind.values
    assert all(text.count(answer) == 1 for answer in query.answers)
    shown = [text.encode()[span.start : span.end].decode() for span in query.spans]
    assert [LINE.fullmatch(line)[3] for line in shown] == list(query.answers)


def test_haystacks_of_noise_prose_and_needles(made, tokenizer):
    noise, _ = one(made, tokenizer, "niah_single_1")
    assert set(noise.splitlines()) - {NOISE.strip()} == {LINE.search(noise)[0]}
    prose, _ = one(made, tokenizer, "niah_single_2")
    assert sum(line in read_prose(None).paragraphs for line in prose.splitlines()) > 3
    needles, _ = one(made, tokenizer, "niah_multikey_3")
    assert all(LINE.fullmatch(line) for line in needles.splitlines())


def test_a_chain_of_five_variables_in_order(made, tokenizer):
    text, query = one(made, tokenizer, "vt")
    chain = [line for line in text.splitlines() if line != NOISE.strip()]
    names = list(query.answers)
    assert (len(names), len(set(names))) == (5, 5)
    value = re.fullmatch(rf"VAR {names[0]} = (\d{{5}})", chain[0])[1]
    assert value in query.question
    pairs = zip(names[1:], names, strict=False)
    assert chain[1:] == [f"VAR {name} = VAR {source}" for name, source in pairs]
    assert [text.encode()[s.start : s.end].decode() for s in query.spans] == chain


@pytest.mark.parametrize(("length", "often", "seldom"), [(LENGTH, 6, 1), (4096, 30, 3)])
def test_ten_common_words(made, tokenizer, length, often, seldom):
    text, query = one(made, tokenizer, "cwe", length)
    entries = re.findall(r"(\d+)\. (\S+)", text)
    assert [int(number) for number, _ in entries] == list(range(1, len(entries) + 1))
    counts = Counter(word for _, word in entries)
    assert {word for word, n in counts.items() if n == often} == set(query.answers)
    assert len(query.answers) == 10
    assert {n for word, n in counts.items() if word not in query.answers} == {seldom}
    for answer in query.answers:
        assert not any(answer in word for word in counts if word != answer)


def test_a_list_longer_than_the_dictionary_has_pairs_of_words(made, tokenizer):
    text, query = one(made, tokenizer, "cwe", 45_000)
    counts = Counter(word for _, word in re.findall(r"(\d+)\. (\S+)", text))
    pairs = [word for word in counts if "-" in word]
    assert pairs
    assert {counts[pair] for pair in pairs} == {3}
    assert not any(answer in pair for pair in pairs for answer in query.answers)


def test_frequencies_fall_with_the_square_of_the_rank(made, tokenizer):
    text, query = one(made, tokenizer, "fwe", 4000)
    ranked = Counter(text.split()).most_common()
    assert ranked[0][0] == "..."
    assert tuple(word for word, _ in ranked[1:4]) == query.answers
    assert all(re.fullmatch("[a-z]{6}", word) for word, _ in ranked[1:])
    counts = [n for _, n in ranked]
    for rank in (2, 3, 4, 5):
        assert counts[rank - 1] == pytest.approx(counts[0] / rank**2, abs=1)
    assert counts[3] > counts[4]


def test_a_question_stands_among_other_paragraphs(made, tokenizer):
    text, query = one(made, tokenizer, "qa_2")
    blocks = re.split(r"Document \d+:\n", text)[1:]
    texts = [block.strip() for block in blocks]
    assert len(set(texts)) == len(texts) > 50
    assert {"Bob is it.", "It is Ann."} <= set(texts) <= set(HOTPOT.paragraphs)
    assert [text.encode()[s.start : s.end].decode() for s in query.spans] == ["Ann"]
    assert query.answers == ("Ann",)


def test_paragraphs_of_the_same_article_come_first(tokenizer):
    related = tuple(f"Of the same article, part {i}." for i in range(20))
    asked = SquadQuestion("Who?", ("Ann",), ("It is Ann.",), related)
    others = tuple(f"Of another article, part {i}." for i in range(90))
    squad = Squad((asked,), ("It is Ann.", *others, *related))
    made = tasks(Materials(read_prose(None), sample_words()), {"qa_1": squad})
    text, _ = one(made, tokenizer, "qa_1", 200)
    assert "Of another" not in text
    text, _ = one(made, tokenizer, "qa_1", 1200)
    assert all(paragraph in text for paragraph in related)
    assert "Of another" in text


def test_questions_are_the_same_at_every_length_and_asked_once(made, tokenizer):
    found = [
        [case.queries[0].question for case in made["qa_1"].make(tokenizer, length, 99, 5)]
        for length in (300, 600)
    ]
    assert found[0] == found[1]
    assert len(set(found[0])) == len(found[0]) == len(SQUAD.questions)


@pytest.mark.parametrize("count", [10, 1500, 2000])
def test_fewer_questions_are_the_first_of_more(tokenizer, count):
    asked = tuple(SquadQuestion(f"What is {i}?", ("it",), ("It.",)) for i in range(7400))
    squad = Squad(asked, ("It.",))
    task = tasks(Materials(read_prose(None), sample_words()), {"qa_1": squad})["qa_1"]
    some, more = (
        [case.queries[0].question for case in task.make(tokenizer, 40, n, 0)]
        for n in (count // 2, count)
    )
    assert (len(some), len(more)) == (count // 2, count)
    assert some == more[: count // 2]


def test_questions_with_too_long_paragraphs_are_passed_over(tokenizer):
    long = SquadQuestion("Long?", ("it",), ("It is so. " * 90, "And more. " * 9))
    short = tuple(SquadQuestion(f"Short {i}?", ("it",), (f"It is {i}.", "Yes.")) for i in range(9))
    squad = Squad((long, *short), ("Other.",))
    made = tasks(Materials(read_prose(None), sample_words()), {"qa_2": squad})["qa_2"]
    for seed in range(4):
        found = [c.queries[0].question for c in made.make(tokenizer, 100, 99, seed)]
        every = [c.queries[0].question for c in made.make(tokenizer, 2000, 99, seed)]
        assert (len(found), len(every)) == (9, 10)
        assert found == [question for question in every if "Long" not in question]


@pytest.mark.parametrize("name", NAMES)
def test_too_short_a_document_is_told(made, tokenizer, name):
    with pytest.raises(UsageError, match=f"4 tokens is too short for {name}"):
        one(made, tokenizer, name, 4)


def test_the_packages_words_are_plain_and_many():
    words = sample_words()
    listed = [*words.adjectives, *words.nouns, *words.verbs]
    assert len(set(listed)) == len(listed) >= 1000
    assert all(re.fullmatch("[a-z]+", word) for word in listed)
    assert len(words.whole) > 500
