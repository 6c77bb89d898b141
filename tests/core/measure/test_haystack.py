"""Haystacks: exact lengths and depths with every kind of tokenizer, and prose that is shuffled."""

import re
from bisect import bisect_left
from itertools import pairwise

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.measure.haystack import Builder, Group, depths
from longctx.core.measure.prose import Prose, read_prose
from longctx.core.model.files import open_model_files

KEY, NUMBER = "The pass key of {} is {}. Remember it.", "The special magic number for {} is {}."
CITIES = ["Oslo", "Bergen", "Riga", "Turin", "Havana", "Quito", "Kobe"]


def groups(count: int) -> list[Group]:
    """A pass key and a number at each of so many depths."""
    return [
        Group(depth, (KEY.format(city, 10427 + 7 * n), NUMBER.format(city, 4029516 + n)))
        for n, (depth, city) in enumerate(zip(depths(count), CITIES, strict=False))
    ]


def trained(vocab: int, alphabet: list[str], normalizer=None, pre_tokenizer=None):
    """A BPE tokenizer of the prose's lines; tokens never reach over a line feed."""
    backend = Tokenizer(models.BPE())
    if normalizer:
        backend.normalizer = normalizer
    if pre_tokenizer:
        backend.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator([line[:400] for line in read_prose().paragraphs], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def make_tokenizer(kind: str):
    if kind == "bundled":
        return open_model_files("tiny").tokenizer
    if kind == "gpt2-like":  # runs of digits in one token, "\n\n" cut by what follows
        words = pre_tokenizers.ByteLevel(add_prefix_space=False)
        return trained(900, pre_tokenizers.ByteLevel.alphabet(), pre_tokenizer=words)
    if kind == "bytes":  # a word costs many tokens
        words = pre_tokenizers.ByteLevel(add_prefix_space=False)
        return trained(256, pre_tokenizers.ByteLevel.alphabet(), pre_tokenizer=words)
    # As SentencePiece does it: spaces are letters, and one more stands before the whole text.
    spaces = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    words = pre_tokenizers.Split(Regex("\n|▁?[^▁\n]+"), "isolated")
    return trained(500, [*"0123456789\n▁"], normalizer=spaces, pre_tokenizer=words)


@pytest.fixture(scope="module", params=["bundled", "gpt2-like", "bytes", "sentencepiece-like"])
def tokenizer(request):
    return make_tokenizer(request.param)


@pytest.fixture(scope="module")
def bundled():
    return make_tokenizer("bundled")


# --- lengths and places ---


@pytest.mark.parametrize(
    ("length", "count", "seed"), [(600, 1, "a"), (1024, 3, "b"), (1957, 7, "a")]
)
def test_length_and_depths_are_exact(tokenizer, length, count, seed):
    hidden = groups(count)
    haystack = Builder(tokenizer, read_prose()).build(hidden, length, seed)
    text = haystack.text
    encoding = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
    assert len(encoding.ids) == length
    starts = [start for start, _ in encoding.offsets]
    begins = [text.index(group.text) for group in hidden]
    sizes = [
        bisect_left(starts, begin + len(group.text)) - bisect_left(starts, begin)
        for begin, group in zip(begins, hidden, strict=True)
    ]
    before = 0
    for group, size, places in zip(hidden, sizes, haystack.places, strict=True):
        assert places[0].token == before + round(group.depth * (length - sum(sizes)))
        before += size
        for line, place in zip(group.lines, places, strict=True):
            assert starts[place.token] == text.index(line)
            assert text.encode()[place.start : place.end].decode() == line


def test_the_first_begins_the_text_the_last_ends_it_and_gaps_are_even(bundled):
    hidden = groups(5)
    builder = Builder(bundled, read_prose())
    haystack = builder.build(hidden, 3000, "a seed")
    assert haystack.text.startswith(hidden[0].text)
    assert haystack.text.endswith(hidden[-1].text)
    sizes = [sum(map(builder.count, group.lines)) for group in hidden]
    firsts = [places[0].token for places in haystack.places]
    gaps = [b - a - size for (a, b), size in zip(pairwise(firsts), sizes, strict=False)]
    assert max(gaps) - min(gaps) <= 1


def test_groups_may_stand_at_one_depth(bundled):
    first, second = (Group(0.5, group.lines) for group in groups(2))
    text = Builder(bundled, read_prose()).build([first, second], 700, "a seed").text
    assert first.text + second.text in text


def test_lines_may_be_of_several_bytes_a_letter(bundled):
    lines = ("Ключ от Осло: 71432.", "Le numéro magique de Kraków est 4029516.")
    own = ["Ein Schiff lag im Hafen und wartete, während über Nacht Schnee fiel. " * 4, "水" * 300]
    haystack = Builder(bundled, Prose(tuple(own))).build([Group(0.5, lines)], 4000, "a seed")
    assert len(bundled(haystack.text, add_special_tokens=False)["input_ids"]) == 4000
    for line, place in zip(lines, haystack.places[0], strict=True):
        assert haystack.text.encode()[place.start : place.end].decode() == line


@pytest.mark.parametrize("count", [1, 2, 7])
def test_too_short_a_length_is_refused_with_the_least(bundled, count):
    builder, hidden = Builder(bundled, read_prose()), groups(count)
    with pytest.raises(UsageError, match="too short") as refused:
        builder.require_length(30, hidden)
    least = int(re.search(r"need ([\d,]+) or more", str(refused.value))[1].replace(",", ""))
    builder.require_length(least, hidden)
    assert len(builder.build(hidden, least, "a seed").places) == count
    with pytest.raises(UsageError, match="too short"):
        builder.require_length(least - 1, hidden)


def test_no_depth_is_refused():
    with pytest.raises(UsageError, match="0 depths"):
        depths(0)


def test_tokens_over_line_ends_are_refused():
    letters = sorted({*"\nT", *"".join([*read_prose().paragraphs, *groups(1)[0].lines])})
    vocab = {token: number for number, token in enumerate([*letters, "\nT"])}
    backend = Tokenizer(models.BPE(vocab, [("\n", "T")]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    with pytest.raises(LongctxError, match="no token of this tokenizer begins"):
        Builder(tokenizer, read_prose()).build(groups(1), 3000, "a seed")


# --- prose ---


def test_every_pass_through_the_prose_is_shuffled_anew(bundled):
    few = read_prose().paragraphs[:6]
    haystack = Builder(bundled, Prose(few)).build([Group(1.0, groups(1)[0].lines)], 4000, "a seed")
    lines = haystack.text.splitlines()
    passes = [tuple(lines[start : start + 6]) for start in range(0, 18, 6)]
    assert all(set(order) == set(few) for order in passes)
    assert len(set(passes)) == 3
