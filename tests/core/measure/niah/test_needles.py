"""Needles: nothing gives them away but themselves, and answers are judged strictly."""

import re
from collections import Counter

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.measure.eval.tasks import needles as task
from longctx.core.measure.eval.text_match import occurs
from longctx.core.measure.haystack import Builder, depths
from longctx.core.measure.niah import words
from longctx.core.measure.niah.drawing import Draw
from longctx.core.measure.niah.kinds import MAKERS, NEAR
from longctx.core.measure.niah.laying import Laid, NeedleChoice, make_cases
from longctx.core.measure.niah.scoring import is_answered, is_right, score
from longctx.core.measure.niah.variants import variant
from longctx.core.measure.prose import Prose, read_prose
from longctx.core.model.files import open_model_files

VARIANTS = [None, "passkey", "number", "uuid", "multikey", "mixed", "heldout"]


@pytest.fixture(scope="module")
def tokenizer():
    return open_model_files("tiny").tokenizer


@pytest.fixture(scope="module")
def prose():
    return read_prose()


def laid_out(tokenizer, name, length, count, seed=0, trials=1, **more) -> list[Laid]:
    needles = NeedleChoice(*variant(name), depths=count, seed=seed, **more)
    return list(make_cases(Builder(tokenizer, read_prose()), needles, length, trials))


# --- what stands in a haystack ---


@pytest.mark.parametrize("name", VARIANTS)
def test_only_the_needle_gives_the_answer(tokenizer, name):
    for laid in laid_out(tokenizer, name, 6000, 4, trials=2, times=2):
        text = laid.case.text
        assert len(tokenizer(text, add_special_tokens=False)["input_ids"]) == 6000
        hidden = [each.needle for each in laid.plan.hidden]
        questions = [query.question.casefold() for query in laid.case.queries]
        assert len(set(questions)) == len(questions) == 4 * 2 * variant(name)[0].at_once
        for needle, query in zip(hidden, laid.case.queries, strict=True):
            assert query.answers == (needle.value,)
            told = [text.encode()[s.start : s.end].decode() for s in query.spans]
            assert told == list(needle.lines)
            assert sum(line.count(needle.value) for line in needle.lines) >= 1
            rest = text.casefold()
            for line in needle.lines:
                rest = rest.replace(line.casefold(), "")
            assert not occurs(needle.value, rest)
            assert not any(occurs(needle.value, question) for question in questions)


def test_no_two_needles_share_a_city_or_a_value(tokenizer):
    (laid,) = laid_out(tokenizer, None, 16_000, 11, times=3)
    cities = [re.findall(r"(?:of|for) (\w+)", query.question)[0] for query in laid.case.queries]
    values = [query.answers[0] for query in laid.case.queries]
    assert len(set(cities)) == len(cities) == 66
    assert not any(a in b for a in values for b in values if a is not b)


@pytest.mark.parametrize("strict", [False, True])
def test_needles_stand_at_their_depths(tokenizer, strict):
    cases = laid_out(tokenizer, None, 1500, 3, strict=strict)
    told = [
        (each.depth, query.kind, token)
        for laid in cases
        for each, query, token in zip(laid.plan.hidden, laid.case.queries, laid.tokens, strict=True)
    ]
    assert [(depth, kind) for depth, kind, _ in told] == [
        (depth, kind) for depth in depths(3) for kind in ("passkey", "number")
    ]
    assert len(cases) == (6 if strict else 1)
    assert next(token for depth, _, token in told if depth == 0) == 0
    for depth, _, token in told:
        assert abs(token / 1500 - depth) < 0.05


def test_same_seed_same_text(tokenizer):
    again = [laid_out(tokenizer, "mixed", 2500, 3, seed=5) for _ in range(2)]
    assert again[0] == again[1]


def test_no_two_layouts_are_alike(tokenizer):
    runs = [(900, 0, 2), (901, 0, 1), (1800, 0, 1), (900, 1, 1)]
    cases = [
        laid
        for length, seed, trials in runs
        for laid in laid_out(tokenizer, None, length, 3, seed, trials)
    ]
    lines = [[each.needle.lines[0] for each in laid.plan.hidden] for laid in cases]
    starts = [
        tuple([line for line in laid.case.text.splitlines() if line not in own][:2])
        for laid, own in zip(cases, lines, strict=True)
    ]
    assert len(set(starts)) == len(starts) == 5
    values = [query.answers for laid in cases for query in laid.case.queries]
    assert len(set(values)) == len(values)


def test_kinds_have_equal_shares(tokenizer, prose):
    for name in ("mixed", "heldout"):
        chosen, makers = variant(name)
        needles = NeedleChoice(chosen, makers, depths=13, times=1)
        (plan,) = needles.plans(Builder(tokenizer, prose), 16_000, 0)
        found = Counter(each.needle.kind for each in plan.hidden)
        assert set(found) == set(chosen.kinds)
        assert max(found.values()) - min(found.values()) <= 1


def test_near_lines_differ_in_one_word_and_never_in_none(prose):
    draw = Draw(MAKERS, prose, "a seed")
    for _ in range(60):
        needle = draw.needle("multikey")
        key, *near = (
            re.search(r"for ([\w-]+) is (\d+)", line).groups()
            for line in (*needle.lines, *needle.near)
        )
        assert len({key, *near}) == NEAR + 1
        assert key[1] == needle.value
        assert needle.value not in {value for _, value in near}
        for other, _ in near:
            pairs = zip(key[0].split("-"), other.split("-"), strict=True)
            assert sum(a != b for a, b in pairs) == 1


def test_near_lines_stand_at_other_depths(tokenizer):
    (laid,) = laid_out(tokenizer, "multikey", 2500, 3)
    lines = laid.case.text.splitlines()
    for each in laid.plan.hidden:
        at = lines.index(each.needle.lines[0])
        assert all(abs(lines.index(near) - at) > 1 for near in each.needle.near)


def test_values_and_cities_of_the_prose_are_not_drawn():
    drawn = [Draw(MAKERS, Prose(("",)), str(n)).needle("passkey") for n in range(300)]
    text = " ".join(needle.value for needle in drawn[::2]) + " Oslo, Bergen and Turin"
    fresh = [Draw(MAKERS, Prose((text,)), str(n)).needle("passkey") for n in range(300)]
    assert any(needle.value in text for needle in drawn)
    assert not any(needle.value in text for needle in fresh)
    assert not any(city in n.question for n in fresh for city in ("Oslo", "Bergen", "Turin"))


def test_too_many_needles_are_refused_with_their_number(tokenizer, prose):
    few = Prose((" ".join(words.CITIES[5:]),))
    assert few.cities == words.CITIES[:5]
    needles = NeedleChoice(*variant(None), depths=3)
    with pytest.raises(UsageError, match="so 5 can be told apart"):
        needles.plans(Builder(tokenizer, few), 16_000, 0)
    strict = NeedleChoice(*variant(None), depths=3, strict=True)
    assert len(strict.plans(Builder(tokenizer, few), 16_000, 0)) == 6
    with pytest.raises(UsageError, match="too many needles of kind"):
        NeedleChoice(*variant("heldout"), depths=80).plans(Builder(tokenizer, prose), 16_000, 0)


def test_there_are_many_cities_and_none_within_another():
    assert len(read_prose().cities) >= 120
    for name in ("CITIES", "COLOURS", "ANIMALS", "THINGS", "FIRST_NAMES", "LAST_NAMES"):
        entries = getattr(words, name)
        assert len(set(entries)) == len(entries)
        assert not any(a in b for a in entries for b in entries if a != b), name


def test_an_unknown_variant_is_refused_with_the_known():
    with pytest.raises(UsageError, match="passkey, number, multikey, uuid, mixed, heldout"):
        variant("passkeys")


def test_a_task_hides_so_many_needles_in_one_haystack(tokenizer):
    made = task("mixed")
    (case,) = made.make(tokenizer, 2000, 5, 3)
    assert len(case.queries) == 5
    assert (case,) == tuple(task("mixed").make(tokenizer, 2000, 5, 3))
    assert len(tokenizer(case.text, add_special_tokens=False)["input_ids"]) == 2000
    query = case.queries[0]
    assert made.score(query.answers, query.answers[0]) == 1
    assert made.score(query.answers, "nobody knows") == 0
    assert (made.name, task().name) == ("niah-mixed", "niah")


# --- scores ---


@pytest.mark.parametrize(
    "answer", ["71432", "71432.", "The pass key is 71432", "71432 71432", "**71432**", "是71432。"]
)
def test_answered(answer):
    assert is_answered("71432", answer)
    assert is_right("71432", answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "the pass key",
        "7143",
        "714325",
        "071432",
        "71,432",
        "7143 2",
        "71432 or 71433",
        "a71432",
    ],
)
def test_not_answered(answer):
    assert not is_answered("71432", answer)
    assert not is_right("71432", answer)


@pytest.mark.parametrize("answer", ["Ruth Palmer", " ruth  PALMER.", '"Ruth Palmer."'])
def test_words_are_right_in_any_case(answer):
    assert is_right("Ruth Palmer", answer)


@pytest.mark.parametrize("answer", ["", "Ruth", "Ruth Palmers", "Ruth Palmer or Hugo Archer"])
def test_words_must_be_all_and_alone(answer):
    assert not is_right("Ruth Palmer", answer)


def test_a_score_is_1_for_any_of_the_answers():
    assert score(("12", "3 May 1901"), "3 may 1901.") == 1
    assert score(("12", "3 May 1901"), "13") == 0
