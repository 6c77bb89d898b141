"""Samples of the two tasks: what is hidden, where it stands, and what is refused."""

import random

import pytest
import torch

from longctx.core.common.errors import UsageError
from longctx.core.measure.calibrate import tasks
from longctx.core.measure.calibrate.tasks import (
    MULTI_HOP,
    PAIRS,
    PATTERN,
    SENTENCES,
    TASKS,
    Samples,
)
from longctx.core.measure.haystack import Builder
from longctx.core.model.files import open_model_files

LENGTH = 1500


@pytest.fixture(scope="module")
def tokenizer():
    return open_model_files("tiny").tokenizer


@pytest.fixture(scope="module")
def samples(tokenizer) -> Samples:
    return Samples(Builder(tokenizer, tasks.prose()), LENGTH, seed=3)


def sentences(tokenizer, sample) -> list[str]:
    return [tokenizer.decode(sample.ids[first:end]) for first, end in sample.gold]


def test_a_pattern_sample_hides_the_sentence_that_is_asked_for_among_others(tokenizer, samples):
    sample = samples.make(PATTERN, 0)
    key = sample.needle.question.removesuffix("?").split()[-1]
    assert sample.needle.question == f"What is the value corresponding to the id {key}?"
    assert (len(key), len(sample.needle.value)) == (10, 10)
    assert sentences(tokenizer, sample) == [
        f"The value corresponding to the id {key} is {sample.needle.value}."
    ]
    text = tokenizer.decode(sample.ids)
    assert text.count("The value corresponding to the id") == SENTENCES
    assert text.count(key) == text.count(sample.needle.value) == 1


def test_a_multi_hop_sample_needs_both_of_its_facts(tokenizer, samples):
    for number in range(6):
        sample = samples.make(MULTI_HOP, number)
        facts = sentences(tokenizer, sample)
        shared = set(facts[0].rstrip(".").split()) & set(facts[1].rstrip(".").split())
        named = [word for word in shared if word[0].isupper() and word not in ("The", "A")]
        assert len(named) == 2, facts  # first and last name
        assert not any(name in sample.needle.question for name in named)
        assert sample.needle.value in facts[1]
        assert sample.needle.value not in facts[0]
        assert tokenizer.decode(sample.ids).count(facts[0]) == 1


def test_every_frame_joins_two_facts_by_a_person():
    prose = tasks.prose()
    for first, second, question, answer in tasks.FRAMES:
        assert "{person}" in first
        assert "{person}" in second
        assert "{person}" not in question
        assert "{city}" in first
        assert "{city}" in question
        assert "{city}" not in second
        assert answer in second
    needle = tasks._multi_hop(random.Random(1), prose)
    lines = [*needle.lines, *needle.near]
    assert len(set(lines)) == 2 * PAIRS
    assert not any(prose.has(line) for line in lines)


@pytest.mark.parametrize("task", TASKS)
def test_samples_have_their_length_and_are_the_same_ones_again(tokenizer, samples, task):
    one, two = samples.make(task, 1), samples.make(task, 2)
    again = Samples(Builder(tokenizer, tasks.prose()), LENGTH, seed=3).make(task, 1)
    assert one.ids.shape == two.ids.shape == (LENGTH,)
    assert torch.equal(one.ids, again.ids)
    assert (one.gold, one.needle) == (again.gold, again.needle)
    assert not torch.equal(one.ids, two.ids)
    other = Samples(Builder(tokenizer, tasks.prose()), LENGTH, seed=4).make(task, 1)
    assert one.needle.question != other.needle.question


def test_a_length_with_no_room_is_refused(tokenizer):
    with pytest.raises(UsageError, match=r"samples of 300 tokens are too short.*--length"):
        Samples(Builder(tokenizer, tasks.prose()), 300, seed=0)
