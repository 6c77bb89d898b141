"""Titles in any script, and the safe names that are made of them."""

import unicodedata

import pytest
from small_documents import HOSTILE_NAMES

from longctx.core.store.naming import NAME, TITLE, called, called_after, is_title, named

TITLES = {
    "book": ("book", None),
    "-novel.2": ("-novel.2", None),
    "War & Peace": ("War---Peace", "War & Peace"),
    "résumé": ("resume", "résumé"),
    "Война и мир": ("document-f83d61d9", "Война и мир"),
    "книга 2": ("2-0b2ba936", "книга 2"),
    "日本語": ("document-77710aed", "日本語"),
}


@pytest.mark.parametrize("text", TITLES)
def test_what_a_document_is_called_so_has_for_name_and_title(text):
    assert called(text) == TITLES[text]
    assert called(unicodedata.normalize("NFD", text)) == TITLES[text]


@pytest.mark.parametrize("text", [*TITLES, *HOSTILE_NAMES, "\udcff", "\x1b[31m", "é" * 300, "-"])
def test_every_text_comes_to_a_name_and_a_title_that_can_be(text):
    name, title = named(text)
    assert NAME.fullmatch(name)
    assert title is None or is_title(title)
    if title and not {"/", "\\"} & {*title}:  # a path can be a title, but no user's
        assert called(title) == (name, title)


@pytest.mark.parametrize(
    "text", ["", "..", "a/b", "../a", "a\\b", "a\n", "\udcff", "x\0", "—", "/"]
)
def test_what_can_be_no_title_is_left_for_the_library_to_refuse(text):
    assert called(text) == (text, None)
    assert not NAME.fullmatch(text)


def test_names_that_lose_letters_are_told_apart():
    lost = ["Том 1", "Часть 1", "1", "x" * 101, "x" * 102, "章 1"]
    assert len({called(text)[0] for text in lost}) == len(lost)


def test_a_title_is_of_some_length():
    assert is_title("я" * TITLE)
    assert not is_title("я" * (TITLE + 1))
    assert len(named("я" * 500)[1]) == TITLE


def test_a_document_is_called_after_its_file_without_the_ending(tmp_path):
    (tmp_path / "Каштанка.d").mkdir()
    assert called_after("in/Каштанка.txt") == called("Каштанка")
    assert called_after(str(tmp_path / "Каштанка.d")) == called("Каштанка.d")
    assert called_after("x.tar.gz") == ("x", None)
    assert called_after("-") == ("stdin", None)
