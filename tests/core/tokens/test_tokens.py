import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from longctx.core.common.errors import LongctxError, UnreadableInput, UsageError
from longctx.core.sources import reader
from longctx.core.sources.reader import Source
from longctx.core.tokens import safe_splits
from longctx.core.tokens.tokens import TokenStream

CORPUS = [
    "The map was under the stone, and nobody had looked there.\n\nIt's theirs; they'll find it.\n",
    "def find(map):\n    return map[0]  # the first\n\n\n\tx = 12345 / 678\r\nif x:\r\n\r\n",
    "C'est l'été.\nВсе счастливые семьи\n中文没有空格。\n😀 e\u0301\n//x\n)\n/y\n",  # noqa: RUF001
] * 3
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SLASH = QWEN.replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}]+[\r\n/]*")
EOS = AddedToken("<|eos|>", special=True, normalized=False)


def fast(backend: Tokenizer) -> PreTrainedTokenizerFast:
    backend.add_special_tokens([EOS])
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def byte_level(pattern: str = "", normalizer: object = None) -> Tokenizer:
    """Byte-level BPE, split by GPT-2's pattern or by one of its own."""
    backend = Tokenizer(models.BPE())
    own = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pattern)
    split = [pre_tokenizers.Split(Regex(pattern), "isolated")] if pattern else []
    backend.pre_tokenizer = pre_tokenizers.Sequence([*split, own])
    backend.decoder = decoders.ByteLevel()
    if normalizer:
        backend.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    )
    return backend


def sentencepiece(lines: bool = True) -> Tokenizer:
    """BPE over the whole text with spaces as "▁" and rare characters as bytes."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.normalizer = normalizers.Replace(" ", "▁")
    if lines:
        backend.pre_tokenizer = pre_tokenizers.Split("\n", "removed")
    backend.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=300, limit_alphabet=50, show_progress=False)
    )
    trained = json.loads(backend.to_str())["model"]
    entries = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *trained["vocab"]]
    model = models.BPE(
        {entry: index for index, entry in enumerate(entries)},
        [tuple(merge) for merge in trained["merges"]],
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    backend = Tokenizer(model)
    backend.normalizer = normalizers.Replace(" ", "▁")
    return backend


def llama() -> Tokenizer:
    backend = sentencepiece()
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    return backend


def metaspace() -> Tokenizer:
    backend = sentencepiece()
    backend.normalizer = normalizers.Sequence([])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return backend


def wordpiece() -> Tokenizer:
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.train_from_iterator(
        CORPUS,
        trainers.WordPieceTrainer(
            vocab_size=200, special_tokens=["[UNK]"], limit_alphabet=60, show_progress=False
        ),
    )
    return backend


KINDS = {
    "gpt2": lambda: byte_level(),
    "qwen": lambda: byte_level(QWEN, normalizers.NFC()),
    "slash": lambda: byte_level(SLASH),
    "llama": llama,
    "metaspace": metaspace,
    "wordpiece": wordpiece,
}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request) -> PreTrainedTokenizerFast:
    return fast(KINDS[request.param]())


@pytest.fixture(scope="module")
def gpt2() -> PreTrainedTokenizerFast:
    return fast(byte_level())


@pytest.fixture(scope="module")
def gpt2_stream(gpt2) -> TokenStream:
    return TokenStream(gpt2)


@pytest.fixture(scope="module")
def stream(tokenizer) -> TokenStream:
    return TokenStream(tokenizer, piece=20)


@pytest.fixture(autouse=True, scope="module")
def short_reads():
    """Blocks of about 64 characters, so that pieces and blocks lie across each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "READ_BYTES", 64)
        yield


def source(text: str | bytes) -> Source:
    return Source("test", None, io.BytesIO(text if isinstance(text, bytes) else text.encode()))


def streamed(stream: TokenStream, text: str) -> tuple[list[int], list[int], int]:
    """The ids, the byte offsets, and how many pieces they came in."""
    parts = list(stream.read(source(text)))
    for part in parts:
        assert (part.ids.dtype, part.starts.dtype) == (np.int32, np.int64)
    ids, starts = (np.concatenate([getattr(p, n) for p in parts]) for n in ("ids", "starts"))
    return ids.tolist(), starts.tolist(), len(parts)


def at_once(tokenizer: PreTrainedTokenizerFast, text: str) -> tuple[list[int], list[int]]:
    """The definition: the whole text in one call, special tokens read as text."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.encode_special_tokens = True
    encoding = backend.encode(text, add_special_tokens=False)
    return encoding.ids, [len(text[:first].encode()) for first, _ in encoding.offsets]


def assert_same(stream: TokenStream, tokenizer: PreTrainedTokenizerFast, text: str) -> int:
    ids, starts, pieces = streamed(stream, text)
    assert (ids, starts) == at_once(tokenizer, text)
    assert starts == sorted(starts)
    return pieces


CHUNKS = [
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    " ",
    "\t",
    "  \n",
    "\n ",
    "a",
    "the map",
    "12",
    "/",
    "//",
    ")",
]
CHUNKS += [".", "'s", "é", "e\u0301", "\u0301", "中文", "😀", "\u200d", "\u0085", "\u2028", "▁"]
CHUNKS += ["<|eos|>", "ﬁ", "\u037a", "\ufeff", "x" * 60]


@given(st.lists(st.one_of(st.sampled_from(CHUNKS), st.text(max_size=4)), max_size=120))
@example(["a", "\n", "b"] * 40)
@settings(max_examples=60, deadline=None)
def test_streamed_tokens_are_those_of_the_whole_text(tokenizer, stream, parts):
    assert_same(stream, tokenizer, "T" + "".join(parts).replace("\0", ""))


@pytest.mark.parametrize("text", CORPUS[:3])
def test_real_lines_are_cut(tokenizer, stream, text):
    assert assert_same(stream, tokenizer, text * 5) > 5
    assert stream.forced_splits == 0


def test_special_tokens_in_a_document_are_text(gpt2, gpt2_stream):
    text = "a <|eos|>\nb"
    ids, _, _ = streamed(gpt2_stream, text)
    assert gpt2.convert_tokens_to_ids("<|eos|>") not in ids
    assert gpt2.decode(ids) == text
    assert gpt2(text)["input_ids"] != ids  # and the caller's tokenizer still knows them


def test_tokens_of_one_character_share_its_offset(gpt2_stream):
    ids, starts, _ = streamed(gpt2_stream, "a☃b")
    assert len(ids) == 5
    assert starts == [0, 1, 1, 1, 4]


def test_offsets_are_those_of_the_bytes_in_the_source(gpt2):
    raw = b"\xef\xbb\xbfone\r\n\xfftwo\n" + ("été\n" * 30).encode()
    parts = list(TokenStream(gpt2, piece=20).read(source(raw)))
    starts, text = (
        np.concatenate([part.starts for part in parts]),
        raw[3:].decode("utf-8", "replace"),
    )
    expected = [first for first, _ in gpt2.backend_tokenizer.encode(text).offsets]
    offsets = [3 + len(text[:at].encode()) - 2 * text[:at].count("\ufffd") for at in expected]
    assert starts.tolist() == offsets


def test_raw_bytes_are_passed_on(gpt2_stream):
    seen = []
    list(gpt2_stream.read(source(CORPUS[2]), seen.append))
    assert b"".join(seen) == CORPUS[2].encode()


def test_a_long_run_is_split_and_counted(gpt2):
    text = "word " * 100
    stream = TokenStream(gpt2, piece=20, run=120)
    ids, starts, pieces = streamed(stream, text)
    assert (stream.forced_splits, pieces) == (3, 4)
    assert gpt2.decode(ids) == text
    assert starts == sorted(set(starts))


def test_a_cut_follows_a_run_that_is_longer_than_a_piece(gpt2):
    stream = TokenStream(gpt2, piece=20, run=200)
    assert assert_same(stream, gpt2, ("word " * 30 + "\n") * 4) == 4
    assert stream.forced_splits == 0


def test_no_cut_before_a_character_that_a_pattern_takes_along():
    shown = safe_splits.safe_cuts(byte_level(SLASH))
    assert "/" not in shown
    assert {"a", "(", "letter", "punctuation"} <= shown


def test_the_cuts_of_a_tokenizer_are_tried_once(monkeypatch):
    """That takes longer than reading a short document."""
    tried = []
    monkeypatch.setattr(safe_splits, "_found", {})
    monkeypatch.setattr(safe_splits, "_tried", lambda backend: tried.append(1) or frozenset("a"))
    streams = [TokenStream(fast(byte_level())) for _ in range(2)]
    assert (len(tried), streams[0]._cuts) == (1, streams[1]._cuts)
    TokenStream(fast(left_stripping_token()))
    assert len(tried) == 2


def lookbehind() -> Tokenizer:
    return byte_level(r"(?<=\n)\p{L}|\s+|\S+")


def crossing_merges() -> Tokenizer:
    return sentencepiece(lines=False)


def unknown_part() -> Tokenizer:
    return byte_level("", normalizers.Strip())


def left_stripping_token() -> Tokenizer:
    backend = byte_level()
    backend.add_tokens([AddedToken("map", lstrip=True)])
    return backend


def newline_in_a_token() -> Tokenizer:
    backend = byte_level()
    backend.add_tokens(["\n#"])
    return backend


@pytest.mark.parametrize(
    "make",
    [lookbehind, crossing_merges, unknown_part, left_stripping_token, newline_in_a_token],
)
def test_without_a_cut_a_source_is_tokenized_whole_up_to_a_limit(make):
    tokenizer, text = fast(make()), CORPUS[0] * 4
    assert not safe_splits.safe_cuts(tokenizer.backend_tokenizer)
    size = len(text.encode())
    assert assert_same(TokenStream(tokenizer, piece=20, whole=size), tokenizer, text) == 1
    with pytest.raises(UsageError, match=f"larger than {size - 1} bytes"):
        list(TokenStream(tokenizer, piece=20, whole=size - 1).read(source(text)))


def test_a_large_file_is_refused_at_its_first_bytes(tmp_path):
    path, seen = tmp_path / "a.txt", []
    path.write_text("text\n" * 1000)
    with pytest.raises(UsageError, match="larger than 4,000 bytes"):
        list(TokenStream(fast(lookbehind()), whole=4000).read(Source("a.txt", path), seen.append))
    assert sum(map(len, seen)) == 64


def test_a_token_across_a_cut_is_an_error_not_a_wrong_token():
    """The pattern joins a newline to one word, which no probe contains."""
    backend = byte_level(r"\nxyzzy|\p{L}+|\s+|[^\s\p{L}]+")
    vocabulary = backend.get_vocab()
    merges = [("Ċ", "x"), ("Ċx", "y"), ("Ċxy", "z"), ("Ċxyz", "z"), ("Ċxyzz", "y")]
    merged = {first + second: len(vocabulary) + at for at, (first, second) in enumerate(merges)}
    backend.model = models.BPE({**vocabulary, **merged}, merges)
    with pytest.raises(LongctxError, match="cannot cut the text at byte 60"):
        list(TokenStream(fast(backend), piece=60).read(source("a" * 59 + "\nxyzzy" + "b" * 60)))


def test_a_tokenizer_without_offsets_is_refused():
    with pytest.raises(UsageError, match="cannot use the tokenizer 'old'"):
        TokenStream(SimpleNamespace(is_fast=False, name_or_path="old"))


def test_what_is_no_text_is_refused(gpt2_stream):
    with pytest.raises(UnreadableInput, match="empty"):
        list(gpt2_stream.read(source("")))
