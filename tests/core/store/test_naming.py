"""Names of documents in any script, and names of folders that every system can have."""

import unicodedata

import pytest
from small_documents import HOSTILE_NAMES

from longctx.core.common.errors import UsageError
from longctx.core.store.naming import (
    NAME,
    NAME_BYTES,
    called_after,
    folder_of,
    is_title,
    name_from,
    require_name,
    shown,
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
    ("text", "why"),
    [
        ("", "no letter"),
        ("..", "no letter"),
        ("—", "no letter"),
        *((text, "a slash") for text in ("a/b", "../a", "a\\b", "/")),
        ("a\n", r"character 2 is U\+000A \(a control character\)"),
        ("x\0", r"character 2 is U\+0000 \(a control character\)"),
        ("\udcff", r"character 1 is U\+DCFF"),
        *((text, "begins or ends with a blank") for text in (" uv", "uv ", "uv\u3000")),
        ("я" * 128, "it has 256 bytes in UTF-8, of 255 at most"),
        ("x" * 256, "it has 256 bytes in UTF-8, of 255 at most"),
        ("x\u202e" * 500, "it has 2000 bytes in UTF-8, of 255 at most"),
    ],
)
def test_what_can_be_no_name_is_refused(text, why):
    with pytest.raises(UsageError, match=f"cannot be the name of a document: .*{why}") as refused:
        require_name(text)
    assert str(refused.value).endswith("Choose another name")
    assert len(str(refused.value)) < 200


UNSEEN = (
    "\u202a \u202e \u2066 \u2069 \u200e \u200f \u061c \u00ad \u034f \u115f \u1160 \u17b4 \u180b"
)
UNSEEN += " \u180e \u200b \u200c \u200d \u2060 \u206f \u2800 \u3164 \ufe0f \ufeff \uffa0 \ufff9"
UNSEEN += " \U00013430 \U0001d173 \U000e0041 \U000e0100"


@pytest.mark.parametrize("sign", UNSEEN.split())
def test_what_cannot_be_seen_is_refused_dropped_from_files_and_escaped_where_stored(sign):
    code, escape = f"U+{ord(sign):04X}", ascii(sign)[1:-1]
    with pytest.raises(UsageError) as refused:
        require_name(f"u{sign}v")
    assert f"'u{escape}v' cannot be" in refused.value.what
    assert refused.value.why.startswith(f"character 2 is {code} (")
    assert called_after(f"u{sign}v.txt") == "uv"
    assert is_title(f"u{sign}v")
    assert shown(f"u{sign}v") == f"u{escape}v"


@pytest.mark.parametrize("blank", "\u00a0\u2003\u202f")
def test_other_blanks_become_the_usual_one(blank):
    with pytest.raises(UsageError, match=r"character 2 is U\+"):
        require_name(f"u{blank}v")
    assert name_from(f"u{blank}v") == "u v"


@pytest.mark.parametrize(
    "name",
    [
        "نی\u200cم",
        "کتب\u200cی",
        "क्\u200dष",
        "क्\u200cष",
        "ශ්\u200dරී",
        "র\u200d্যাব",
        "日本\u3000語",
        "\ue000x",
        "🙂 a",
    ],
)
def test_joiners_stay_where_they_are_seen(name):
    assert require_name(name) == name_from(name) == shown(name) == name


@pytest.mark.parametrize(
    "name", ["کر\u200cم", "می\u200c", "\u200cمی", "a\u200cمی", "می\u200d", "क\u200d"]
)
def test_joiners_that_change_nothing_are_refused(name):
    with pytest.raises(UsageError, match=r"U\+200[CD] \(ZERO WIDTH"):
        require_name(name)


def test_names_that_lose_letters_are_told_apart():
    lost = ["Том 1", "Часть 1", "1", "x" * 101, "x" * 102, "章 1", "Book", "BOOK", "book", "bôok"]
    assert len({folder_of(text) for text in lost}) == len(lost)


def test_a_name_is_of_some_length():
    assert require_name("я" * 127 + "x") == "я" * 127 + "x"
    assert is_title("я" * 200)  # as older versions allowed
    assert not is_title("я" * 256)
    assert name_from("я" * 500) == "я" * (NAME_BYTES // 2)
    assert name_from("x" * (NAME_BYTES - 1) + " y") == "x" * (NAME_BYTES - 1)


def test_a_document_is_called_after_its_file_without_the_ending(tmp_path):
    (tmp_path / "Каштанка.d").mkdir()
    assert called_after("in/Каштанка.txt") == "Каштанка"
    assert called_after(str(tmp_path / "Каштанка.d")) == "Каштанка.d"
    assert called_after("x.tar.gz") == "x"
    assert called_after("-") == "stdin"
    assert called_after(unicodedata.normalize("NFD", "Möbel.txt")) == "Möbel"
    assert called_after("日本語.txt") == "日本語"
