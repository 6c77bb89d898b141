"""Words as bm25s' own tokenizer counts them, with the words and stop words of this package."""

from typing import Any

from bm25s import tokenize
from bm25s.tokenization import Tokenized
from Stemmer import Stemmer

from longctx.core.tokens.stems import STOP_WORDS, WORD


def by_bm25s_words(texts: list[str]) -> Tokenized:
    """The stems of each text, in order, as numbers, and each stem's number."""
    counted: Any = tokenize(
        texts,
        token_pattern=WORD,
        stopwords=sorted(STOP_WORDS),
        stemmer=Stemmer("english"),
        show_progress=False,
    )
    return counted
