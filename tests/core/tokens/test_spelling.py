"""Tokens by their bytes, and which of them continue a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quoted_by_hand import byte_level, sentence_pieces

from longctx.core.tokens.spelling import Spelling, token_bytes

WORDS = "the keeper of the light wrote 7277776 caf\u00e9 \u706f\u53f0"
TOKENIZERS = {"byte-level": byte_level(WORDS, 320), "pieces": sentence_pieces(WORDS)}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokens_join_to_the_text(name):
    @given(st.text(max_size=30))
    def compare(text):
        ids = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
        joined = b"".join(known[number] for number in ids).decode()
        assert joined == text or (name == "pieces" and joined == f" {text}".replace("\u2581", " "))

    tokenizer = TOKENIZERS[name]
    known = dict(token_bytes(tokenizer))
    compare()


def test_special_tokens_are_no_text():
    for tokenizer in TOKENIZERS.values():
        assert not {0, 1} & {number for number, _ in token_bytes(tokenizer)}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_what_continues_a_text(name):
    tokenizer = TOKENIZERS[name]
    spelling, known = Spelling(tokenizer), dict(token_bytes(tokenizer))
    data = WORDS.encode() + b"\xffthe li\xff"
    places = [0, 4, 11, 30, len(WORDS.encode()) + 1, len(data) - 1, len(data)]
    expected = {
        number: ends
        for number, spelled in known.items()
        if spelled and b"\xff" not in spelled
        if (ends := [p + len(spelled) for p in places if data[p:].startswith(spelled)])
    }
    assert spelling.continuing(data, places) == expected
    begun = {
        number: ends
        for number, spelled in known.items()
        if spelled and b"\xff" not in spelled
        if (
            ends := sorted(
                {
                    place + len(spelled) - len(before)
                    for place in places
                    for before in (b"", b" ")
                    if (before + data[place:]).startswith(spelled) and len(spelled) >= len(before)
                }
            )
        )
    }
    assert {n: sorted({*ends}) for n, ends in spelling.beginning(data, places).items()} == begun
