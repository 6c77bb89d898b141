"""Names of documents in any script, and names of folders that every system can have."""

import unicodedata

import pytest
from small_documents import HOSTILE_NAMES

from longctx.core.common.errors import UsageError
from longctx.core.store.naming import (
    NAME,
    TITLE,
    called_after,
    folder_of,
    is_title,
    name_from,
    require_name,
)

FOLDERS = {
    "book": "book",
    "-novel.2": "-novel.2",
    "War & Peace": "war-peace-",
    "résumé": "resume-",
    "Möbel": "mobel-",
    "Война и мир": "document-f83d61d9",
    "книга 2": "2-0b2ba936",
    "日本語": "document-77710aed",
    "Book": "book-",
    "a.": "a-",
    "con": "con-",
    "NUL": "nul-",
    "com1.txt": "com1-txt-",
    "lpt9": "lpt9-",
    "x" * 101: "xxx",
}
SAME = {"book", "-novel.2"}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_called_as_its_document_where_that_is_safe(name):
    assert require_name(unicodedata.normalize("NFD", name)) == name
    folder = folder_of(name)
    assert folder.startswith(FOLDERS[name])
    assert (folder == name) == (name in SAME)


@pytest.mark.parametrize(
    "text", [*FOLDERS, *HOSTILE_NAMES, "\udcff", "\x1b[31m", "é" * 300, "-", "CON.x.", "ﬀ", "İ"]
)
def test_every_text_comes_to_a_name_and_a_folder_that_can_be(text):
    name = name_from(text)
    assert is_title(name)
    folder = folder_of(name)
    assert NAME.fullmatch(folder)
    assert folder == folder.lower()
    assert not folder.endswith(".")
    assert folder_of(folder) == folder


@pytest.mark.parametrize(
    "text", ["", "..", "a/b", "../a", "a\\b", "a\n", "\udcff", "x\0", "—", "/", "я" * (TITLE + 1)]
)
def test_what_can_be_no_name_is_refused(text):
    with pytest.raises(UsageError, match=r"cannot be the name of a document.*Choose another"):
        require_name(text)


def test_names_that_lose_letters_are_told_apart():
    lost = ["Том 1", "Часть 1", "1", "x" * 101, "x" * 102, "章 1", "Book", "BOOK", "book", "bôok"]
    assert len({folder_of(text) for text in lost}) == len(lost)


def test_a_name_is_of_some_length():
    assert is_title("я" * TITLE)
    assert not is_title("я" * (TITLE + 1))
    assert len(name_from("я" * 500)) == TITLE


def test_a_document_is_called_after_its_file_without_the_ending(tmp_path):
    (tmp_path / "Каштанка.d").mkdir()
    assert called_after("in/Каштанка.txt") == "Каштанка"
    assert called_after(str(tmp_path / "Каштанка.d")) == "Каштанка.d"
    assert called_after("x.tar.gz") == "x"
    assert called_after("-") == "stdin"
    assert called_after(unicodedata.normalize("NFD", "Möbel.txt")) == "Möbel"
    assert called_after("日本語.txt") == "日本語"
