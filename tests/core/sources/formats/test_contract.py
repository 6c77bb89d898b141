"""What every format must do, and a toy that is one file in a folder of its own."""

import sys
from contextlib import ExitStack

import pytest
from in_process import parsed_here
from sample_files import (
    docx,
    epub,
    mail,
    odp,
    ods,
    odt,
    paragraph,
    part_in,
    pdf,
    pptx,
    read,
    xlsx,
)
from sample_messages import eml, msg
from toys import FORMAT, toy

from longctx.core.common.distribution import PACKAGES
from longctx.core.common.errors import UnreadableInput, UsageError
from longctx.core.sources import formats, parser
from longctx.core.sources.formats import Format
from longctx.core.sources.parser import Parser

ROW = (
    '<table:table-row><table:table-cell table:number-columns-repeated="2"/>'
    "<table:table-cell><text:p>The keeper</text:p></table:table-cell></table:table-row>"
)
# Of each format a whole file, where its words stand, and one that was cut off; None: what is left
# of such a file is read.
SAMPLES = {
    "docx": (
        docx("<w:p/>" + paragraph("The keeper") + paragraph("A boat")),
        {"keeper": "paragraph 2", "boat": "paragraph 3"},
        lambda data: data[: len(data) // 2],
    ),
    "epub": (
        epub("<p>The keeper", "<p>A boat"),
        {"keeper": "chapter 1", "boat": "chapter 2"},
        lambda data: data[: len(data) // 2],
    ),
    "eml": (
        eml("One", "The keeper", {"a.pdf": pdf("", "A boat")}),
        {"keeper": "message 1", "boat": "message 1 / a.pdf:p. 2"},
        lambda data: data[data.index(b"\n\n") :],
    ),
    "html": (b"<html>\n<p>\nThe keeper\n<p>A boat", {"keeper": "3", "boat": "4"}, None),
    "ipynb": (
        b'{"cells": [{"source": ""}, {"source": "The keeper"}, {"source": "A boat"}]}',
        {"keeper": "cell 2", "boat": "cell 3"},
        lambda data: data[:-9],
    ),
    "jsonl": (b'\n{"a": "The keeper"}\n"A boat"\n', {"keeper": "2", "boat": "3"}, None),
    "mbox": (
        mail("One", "The keeper\n") + mail("Two", "A boat\n"),
        {"keeper": "message 1", "boat": "message 2"},
        lambda data: data[9:],
    ),
    "msg": (
        msg("One", "The keeper", {"a.pdf": pdf("", "A boat")}),
        {"keeper": "message 1", "boat": "message 1 / a.pdf:p. 2"},
        lambda data: data[: len(data) // 2],
    ),
    "odp": (
        odp("<text:p>The keeper</text:p>", "", "<text:p>A boat</text:p>"),
        {"keeper": "slide 1", "boat": "slide 3"},
        lambda data: data[: len(data) // 2],
    ),
    "ods": (
        ods(One=f"<table:table-row/>{ROW}", Two=ROW.replace("The keeper", "A boat")),
        {"keeper": "One!C2", "boat": "Two!C1"},
        lambda data: data[: len(data) // 2],
    ),
    "odt": (
        odt("<text:p/>", "<text:h>The keeper</text:h>", "<text:p>A boat</text:p>"),
        {"keeper": "paragraph 2", "boat": "paragraph 3"},
        lambda data: data[: len(data) // 2],
    ),
    "pdf": (
        pdf("The keeper", "", "A boat"),
        {"keeper": "p. 1", "boat": "p. 3"},
        lambda data: data[: len(data) // 2],
    ),
    "xlsx": (
        xlsx({"One": [["The keeper"]], "Sheet two": [[], [None, 7, "A boat"]]}),
        {"keeper": "One!A1", "boat": "'Sheet two'!C2"},
        lambda data: data[: len(data) // 2],
    ),
    "pptx": (
        pptx("The keeper", "", "A boat"),
        {"keeper": "slide 1", "boat": "slide 3"},
        lambda data: data[: len(data) // 2],
    ),
    "rtf": (
        rb"{\rtf1\ansi The keeper\par\par A boat}",
        {"keeper": "paragraph 1", "boat": "paragraph 3"},
        None,
    ),
    "verses": (
        b"The keeper\nwrote\n\nA boat.",
        {"keeper": "verse 1", "boat": "verse 2"},
        lambda data: data[:-9],
    ),
}


@pytest.fixture(scope="module", autouse=True)
def toys(tmp_path_factory):
    """The toy is a format for all tests here."""
    with toy(formats, "verses", FORMAT, tmp_path_factory.mktemp("toys")):
        formats.names.cache_clear()
        yield
    formats.names.cache_clear()


@pytest.fixture(scope="module")
def program():
    """A program that parses; it ends with these tests."""
    own = Parser()
    before = parser.answered_by(own)
    yield own
    parser.answered_by(before)
    own.end()


@pytest.fixture
def parsing(program, request):
    """The program that parses; the toy, which it does not know, is parsed here."""
    with ExitStack() as stack:
        if request.getfixturevalue("name") == "verses":
            stack.enter_context(parsed_here())
        yield


def test_every_format_has_a_sample():
    assert {*SAMPLES} == {*formats.names()}


@pytest.mark.usefixtures("parsing")
@pytest.mark.parametrize("name", SAMPLES)
def test_words_are_cited_where_they_stand_in_the_original(opened, program, name):
    data, places, _ = SAMPLES[name]
    source, form = opened(f"a.{name}", data), formats.load(name)
    text, pieces = read(source)
    assert text == "".join(piece for piece, _ in pieces)
    for word, place in places.items():
        (number,) = {number for piece, number in pieces if word in piece}
        assert formats.cited(form.marks, number, part_in(pieces, number)) == place
    assert read(source) == (text, pieces)
    assert source.made.marks == form.marks
    assert name == "verses" or program.pid


@pytest.mark.usefixtures("parsing")
@pytest.mark.parametrize("name", SAMPLES)
def test_a_file_that_was_cut_off_is_one_line(opened, name):
    data, _, cut = SAMPLES[name]
    if not cut:
        words = read(opened(f"a.{name}", data[:-5]))[0]
        assert "keeper" in words
        assert "boat" not in words
        return
    with pytest.raises(UnreadableInput, match="damaged, or not what its name says") as refused:
        read(opened(f"a.{name}", cut(data)))
    assert refused.value.exit_code == 3
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("parsing")
@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("data", [b"", b"\0\1\2" * 99])
def test_what_is_nothing_of_it_is_refused(opened, name, data):
    with pytest.raises(UnreadableInput) as refused:
        read(opened(f"a.{name}", data))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", SAMPLES)
def test_files_are_known_by_their_endings(name):
    endings = [name, *(other for other, form in formats.OTHER_ENDINGS.items() if form == name)]
    for ending in endings:
        assert formats.of(f"folder.txt/a.{ending}") == formats.of(f"A.{ending.upper()}") == name
    assert formats.of(name) == formats.of(f"a.{name}.txt") == ""


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "verses"])
def test_a_missing_library_is_named(opened, monkeypatch, name):
    needs = formats.load(name).needs
    if not needs:
        assert opened(f"a.{name}", b"x").made.format == name
        return
    monkeypatch.setitem(sys.modules, needs, None)
    package = PACKAGES.get(needs, needs)
    with pytest.raises(UsageError, match=rf"needs {needs}.*pip install {package}\."):
        opened(f"a.{name}", b"x")


def test_a_class_that_lacks_members_cannot_be_made():
    with pytest.raises(TypeError, match=r"Half lacks convert, marks$"):
        type("Half", (Format,), {})
