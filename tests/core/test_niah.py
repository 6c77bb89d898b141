"""The needle test: exact texts, needles that nothing gives away, strict scoring, one real run."""

import re
import tempfile
from bisect import bisect_left
from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from longctx.core import niah
from longctx.core.errors import LongctxError, UsageError
from longctx.core.gather import Passage
from longctx.core.haystack import Builder, Placed, depths, sample_paragraphs
from longctx.core.model_files import open_model_files
from longctx.core.setup import Setup

NEEDLES = ["The pass key is 71432. Remember it.", "The special magic number for Oslo is 4029516."]


def trained(vocab: int, alphabet: list[str], normalizer=None, pre_tokenizer=None):
    """A BPE tokenizer of the prose's lines; tokens never reach over a line feed."""
    backend = Tokenizer(models.BPE())
    if normalizer:
        backend.normalizer = normalizer
    if pre_tokenizer:
        backend.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator([line[:400] for line in sample_paragraphs()], trainer)
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


# --- the text ---


@pytest.mark.parametrize(("length", "count"), [(600, 1), (1024, 3), (1457, 5)])
@pytest.mark.parametrize("seed", [0, 1])
def test_length_and_depths_are_exact(tokenizer, length, count, seed):
    backend = tokenizer.backend_tokenizer
    cases = list(niah.make_cases(tokenizer, length, count, seed))
    assert [case.depth for case in cases] == depths(count)
    for case in cases:
        text = case.haystack.text
        encoding = backend.encode(text, add_special_tokens=False)
        assert len(encoding.ids) == length
        starts = [start for start, _ in encoding.offsets]
        first = text.index(case.needles[0].line)
        end = text.index(case.needles[-1].line) + len(case.needles[-1].line) + 1
        tokens = bisect_left(starts, end) - bisect_left(starts, first)
        assert case.haystack.needles[0].token == round(case.depth * (length - tokens))
        for needle, placed in zip(case.needles, case.haystack.needles, strict=True):
            assert starts[placed.token] == text.index(needle.line)
            assert text.encode()[placed.start : placed.end].decode() == needle.line


def test_first_and_last_depth_are_the_ends(bundled):
    first, last = niah.make_cases(bundled, 600, 2, seed=4)
    assert first.haystack.text.startswith(first.needles[0].line + "\n")
    assert last.haystack.text.endswith(last.needles[-1].line + "\n")


def test_same_seed_same_text(bundled):
    again = [list(niah.make_cases(bundled, 900, 3, seed=5)) for _ in range(2)]
    assert again[0] == again[1]


def test_no_two_layouts_are_alike(bundled):
    cases = [
        case
        for length, seed in [(900, 0), (901, 0), (1800, 0), (900, 1)]
        for case in niah.make_cases(bundled, length, 3, seed)
    ]
    starts = [tuple(prose_lines(case)[:2]) for case in cases]
    assert len(set(starts)) == len(starts)
    assert len({needle.value for case in cases for needle in case.needles}) == 2 * len(cases)


def prose_lines(case: niah.Case) -> list[str]:
    hidden = {needle.line for needle in case.needles}
    return [line for line in case.haystack.text.splitlines() if line not in hidden]


def test_every_pass_through_the_prose_is_shuffled_anew(bundled):
    prose = sample_paragraphs()[:6]
    haystack = Builder(bundled, prose).build(NEEDLES, 4000, 1.0, "a seed")
    lines = haystack.text.splitlines()
    passes = [tuple(lines[start : start + 6]) for start in range(0, 18, 6)]
    assert all(set(order) == set(prose) for order in passes)
    assert len(set(passes)) == 3


def test_prose_is_paragraphs_without_headings():
    prose = sample_paragraphs()
    assert len(prose) > 100
    assert not any("\n" in line or line.startswith("#") or not line for line in prose)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_too_short_a_length_is_refused_with_the_least(bundled, count):
    with pytest.raises(UsageError, match="too short") as refused:
        next(niah.make_cases(bundled, 30, count, seed=0))
    least = int(re.search(r"need ([\d,]+) or more", str(refused.value))[1].replace(",", ""))
    assert len(list(niah.make_cases(bundled, least, count, seed=0))) == count
    with pytest.raises(UsageError, match="too short"):
        next(niah.make_cases(bundled, least - 1, count, seed=0))


def test_no_depth_is_refused(bundled):
    with pytest.raises(UsageError, match="0 depths"):
        next(niah.make_cases(bundled, 600, 0, seed=0))


def test_tokens_over_line_ends_are_refused():
    letters = sorted({*"\nT", *"".join([*sample_paragraphs(), *NEEDLES])})
    vocab = {token: number for number, token in enumerate([*letters, "\nT"])}
    backend = Tokenizer(models.BPE(vocab, [("\n", "T")]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    with pytest.raises(LongctxError, match="no token of this tokenizer begins"):
        Builder(tokenizer, sample_paragraphs()).build(NEEDLES, 3000, 0.5, "a seed")


# --- the needles ---


@pytest.mark.parametrize("seed", range(8))
def test_only_the_needle_gives_the_answer(bundled, seed):
    for case in niah.make_cases(bundled, 700, 2, seed):
        assert [needle.kind for needle in case.needles] == ["passkey", "number"]
        for needle in case.needles:
            assert case.haystack.text.count(needle.value) == 1
            assert needle.value in needle.line
            assert not any(needle.value in other.question for other in case.needles)


def test_values_of_the_prose_and_of_each_other_are_not_drawn():
    draws = [niah.make_needles(str(number), str(number)) for number in range(600)]
    values = {needles[0].value for needles in draws}
    prose = " ".join(sorted(values)[::2])
    fresh = [niah.make_needles(prose, str(number)) for number in range(600)]
    assert any(needles[0].value in prose for needles in draws)
    assert not any(needle.value in prose for needles in fresh for needle in needles)
    assert not any(key.value in number.value for key, number in fresh)


# --- lengths, scores, reports ---


@pytest.mark.parametrize(
    "answer", ["71432", "71432.", "The pass key is 71432", "71432 71432", "**71432**", "是71432。"]
)
def test_answered(answer):
    assert niah.is_answered("71432", answer)


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
    assert not niah.is_answered("71432", answer)


def passage(start: int, end: int) -> Passage:
    return Passage("d", "d.txt", 1, start, end, 0.5, "", 1, "")


def test_gathered_is_the_whole_needle_in_one_passage():
    needle = Placed(token=9, start=100, end=140)
    assert niah.is_gathered(needle, [passage(0, 20), passage(100, 140)])
    assert niah.is_gathered(needle, [passage(90, 200)])
    assert not niah.is_gathered(needle, [passage(101, 200), passage(0, 139)])
    assert not niah.is_gathered(needle, [passage(90, 120), passage(120, 200)])
    assert not niah.is_gathered(needle, [])


def trial(kind: str, depth: float, answered: bool, gathered: bool) -> niah.Trial:
    return niah.Trial(kind, depth, 7, "What?", "12345", "12345", answered, gathered, {})


def test_report_counts_by_kind():
    trials = [
        trial("passkey", 0.0, True, True),
        trial("number", 0.0, False, True),
        trial("passkey", 1.0, True, False),
        trial("number", 1.0, False, False),
    ]
    report = niah.Report(600, [0.0, 1.0], trials, 1000.0, "tiny", "reform", 0)
    values = report.as_dict()
    assert not report.passed
    assert values["answered"] == {"passkey": [2, 2], "number": [0, 2]}
    assert values["gathered"] == {"passkey": [1, 2], "number": [1, 2]}
    assert niah.Report(600, [0.0], trials[:1], 1.0, "tiny", "reform", 0).passed


# --- the whole, with the bundled model ---


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where temporary folders are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_needles_are_found(temporary):
    told = []
    report = niah.run(
        Setup(dtype="fp32"),
        2048,
        count=1,
        gather=1024,
        seed=2,
        on_progress=lambda depth, progress: told.append((depth, progress.tokens)),
    )
    assert report.passed
    assert report.counts("gathered") == {"passkey": [1, 1], "number": [1, 1]}
    assert [(t.kind, t.depth, t.answer) for t in report.trials] == [
        (t.kind, 0.5, t.expected) for t in report.trials
    ]
    assert told[-1] == (0.5, 2048)
    assert report.tokens_per_s > 0
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_nothing_is_left_after_an_error(temporary, monkeypatch, error):
    def fail(library, paths, setup, on_progress):
        library.mkdir()
        assert Path(paths[0]).read_text()
        raise error

    monkeypatch.setattr(niah, "ingest", fail)
    with pytest.raises(error):
        niah.run(Setup(), 600, count=1)
    assert list(temporary.iterdir()) == []


def test_another_count_of_tokens_read_is_an_error(temporary, monkeypatch):
    read = SimpleNamespace(tokens=601, name="haystack", seconds=1.0)
    monkeypatch.setattr(niah, "ingest", lambda *args, **more: read)
    with pytest.raises(LongctxError, match="read 601 tokens of a haystack of 600"):
        niah.run(Setup(), 600, count=1)
