"""Prose for haystacks: sentences that are those of the text, from files that may be broken."""

from itertools import islice
from random import Random

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.measure import prose as prose_file
from longctx.core.measure.prose import Prose, paragraphs, read_prose

TEXT = 'He said "Go." Then nobody came!\nWho\nwould?\n\n  \nThe end (almost.) It rained'


def test_paragraphs_and_sentences():
    prose = Prose(tuple(paragraphs(TEXT)))
    first, second = ('He said "Go." Then nobody came! Who would?', "The end (almost.) It rained")
    assert prose.paragraphs == (first, second)
    found = list(islice(prose.sentences(Random(1)), 5))
    assert sorted(found) == sorted(
        [
            'He said "Go." ',
            "Then nobody came! ",
            "Who would?\n",
            "The end (almost.) ",
            "It rained\n",
        ]
    )


def test_every_pass_has_an_order_of_its_own():
    prose = Prose(tuple("abcdefgh"))
    drawn = [sentence.strip() for sentence in islice(prose.sentences(Random(0)), 24)]
    passes = [tuple(drawn[start : start + 8]) for start in (0, 8, 16)]
    assert all(sorted(order) == list("abcdefgh") for order in passes)
    assert len(set(passes)) == 3


def test_the_packages_own_prose_is_there():
    assert len(read_prose(None).text) > 40_000


def test_prose_is_paragraphs_without_headings():
    lines = read_prose().paragraphs
    assert len(lines) > 100
    assert not any("\n" in line or line.startswith("#") or not line for line in lines)


def test_paragraphs_are_what_blank_lines_separate(monkeypatch):
    monkeypatch.setattr(prose_file, "LONGEST", 3)
    assert paragraphs("a b\nc\n \n\nd\u2028e f g\n") == ["a b c", "d e f", "g"]


def test_own_prose_is_a_file_or_the_texts_of_a_folder(tmp_path):
    (tmp_path / "a.txt").write_text("one " * 400 + "\n\ntwo", "utf-8")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.md").write_text("\ufeffthrée\n\ntwo", "utf-8")
    (tmp_path / "d.bin").write_bytes(b"\xff\x00")
    assert read_prose(tmp_path / "a.txt").paragraphs[1:] == ("two",)
    assert read_prose(tmp_path).paragraphs[1:] == ("two", "thrée")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"too few words", "held 3 words"),
        ("a.txt", b"caf\xe9 " * 400, "no UTF-8 text"),
        (None, b"", "No such file"),
        ("folder/a.csv", b"words " * 400, "0 files"),
    ],
)
def test_prose_that_will_not_do_is_refused(tmp_path, name, data, message):
    if name:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    wanted = name.split("/")[0] if name else "nothing.txt"
    with pytest.raises(UsageError, match=message):
        read_prose(tmp_path / wanted)
