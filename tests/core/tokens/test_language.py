"""The language of a text, on sentences in many and on text that is in none."""

from pathlib import Path

import pytest

from longctx.core.tokens import language, terms
from longctx.core.tokens.language import language_of

SENTENCES = [
    line.split("\t")
    for line in (Path(__file__).parent / "languages.tsv").read_text("utf-8").splitlines()
]
CODE = "def area(self, width, height):\n    return self.width * height\n"


@pytest.mark.parametrize(("code", "first", "rest"), SENTENCES, ids=[row[0] for row in SENTENCES])
def test_a_paragraph_is_in_its_language(code, first, rest):
    assert language_of([first, rest]) == code
    assert language_of([f"{first} {rest}".upper()]) == code
    assert language_of([f"{first} {rest}\n{CODE}"]) == code


def test_nearly_every_sentence_is_in_its_language():
    assert {code for code, first, _ in SENTENCES if language_of([first]) != code} <= {"ca", "tr"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?! 12",
        "id,price,city\n" + "".join(f"{n},{n * 17 % 1000}.50,C{n}\n" for n in range(99)),
        "".join(f'10.0.0.{n} - - "GET /wp-login.php HTTP/1.1" 404 {n}\n' for n in range(99)),
        "".join(f"{n * 2654435761 % 2**32:08x}\n" for n in range(99)),
    ],
    ids=["empty", "signs", "table", "log", "hexadecimal"],
)
def test_what_is_in_no_language_is_unknown(text):
    assert language_of([text]) == ""


def test_the_language_is_that_of_most_of_a_text():
    of = {code: f"{first} {rest} " for code, first, rest in SENTENCES}
    assert language_of([of["de"], of["de"], of["en"]]) == "de"
    assert language_of([of["de"], of["en"] * 2]) == "en"
    assert language_of([of["ja"], "import numpy as np"]) == "ja"
    assert language_of(["if it is not in the list, return it\n" + CODE]) == "en"


def test_every_stemmer_is_of_a_language_that_is_known():
    assert {*terms.STEMMERS} - {""} <= {*language.LANGUAGES}
