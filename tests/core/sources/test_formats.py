"""Each format: its text, and the place in the original that each piece of it is cited by."""

import json
import sys

import pytest
from sample_files import WORD, docx, epub, mail, paragraph, pdf, read, zipped

from longctx.core.common.errors import UnreadableInput, UsageError
from longctx.core.sources import limits

# --- HTML ---

PAGE = """\
<!DOCTYPE html>
<html><head><title>The  Map</title><style>p { color: red }</style>
<script>if (a < b) { alert("no") }</script></head>
<body><h1>One</h1>
<p>The map &amp; the
  <b>old</b> key.</p>
<ul><li>first<li>second</ul>
<pre>a  b
  c</pre>
<table><tr><td>x</td><td>y</td></tr></table>
<img alt="a ship" src="x">end
"""


def test_html_is_cited_by_the_line_of_its_source(opened):
    text, marks = read(opened("a.html", PAGE.encode()))
    assert text == (
        "The Map\n\nOne\n\nThe map & the old key.\n\n- first\n- second\n\na  b\n  c\n\nx y\n\n"
        "a ship end\n"
    )
    lines = {}
    for piece, number in marks:
        lines[number] = lines.get(number, "") + piece
    assert lines[2].strip() == "The Map"
    assert lines[5].strip() == "The map & the"
    assert lines[6].strip() == "old key."
    assert lines[8] == "a  b\n"
    assert lines[9].startswith("  c")
    assert lines[11].strip() == "a ship end"


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ('<meta charset="windows-1251"><p>Привет', "cp1251"),
        ('<?xml version="1.0" encoding="koi8-r"?><p>Привет</p>', "koi8-r"),
        ("\ufeff<p>Привет", "utf-16-le"),
        ("\ufeff<p>Привет", "utf-8"),
        ('<meta charset="no-such"><p>Привет', "utf-8"),
        ('<meta charset="utf-16"><p>Привет', "utf-8"),
    ],
)
def test_html_in_the_encoding_that_it_says(opened, data, encoding):
    assert read(opened("a.htm", data.encode(encoding)))[0] == "Привет\n"


def test_undecodable_places_of_a_page_are_counted(opened):
    source = opened("a.html", b'<meta charset="utf-8"><p>a\xff\xfeb \xef\xbf\xbd</p>')
    assert read(source)[0] == "a\ufffd\ufffdb \ufffd\n"
    assert source.undecodable == 2


def test_a_format_may_be_read_as_it_is_written(opened):
    source = opened("a.html", PAGE.encode(), raw=True)
    assert source.made is None
    assert read(source)[0] == PAGE


# --- books and papers ---


def test_pdf_is_cited_by_page(opened):
    source = opened("a.pdf", pdf("The keeper", "", "A boat"))
    assert read(source) == ("The keeper\n\nA boat\n\n", [("The keeper\n\n", 1), ("A boat\n\n", 3)])
    assert source.lost == []


def test_pages_that_are_pictures_are_told(opened):
    source = opened("a.pdf", pdf("The keeper", None))
    assert read(source)[0] == "The keeper\n\n"
    assert len(source.lost) == 1
    assert "page 2 is a picture" in source.lost[0]
    with pytest.raises(UnreadableInput, match="OCR"):
        read(opened("b.pdf", pdf(None, None)))


def test_docx_is_cited_by_paragraph(opened):
    table = f"<w:tbl><w:tr><w:tc>{paragraph('cell')}</w:tc></w:tr></w:tbl>"
    changed = "<w:p><w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:del><w:delText>old</w:delText>"
    changed += "</w:del><w:r><w:tab/><w:t>x</w:t><w:br/></w:r></w:p>"
    notes = f"<w:footnotes {WORD}>{paragraph('a note')}</w:footnotes>"
    data = docx(paragraph("one &amp; two") + "<w:p/>" + table + changed, footnotes=notes)
    assert read(opened("a.docx", data))[1] == [
        ("one & two\n", 1),
        ("cell\n", 3),
        ("new\tx\n\n", 4),
        ("a note\n", 5),
    ]


def test_a_docx_that_declares_entities_is_refused(opened):
    bomb = (
        '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><w:document>&b;</w:document>'
    )
    data = zipped({"word/document.xml": bomb.encode()})
    with pytest.raises(UnreadableInput, match="document type"):
        read(opened("a.docx", data))


# --- notebooks, mail, records ---


def test_notebooks_are_cited_by_cell(opened):
    outputs = [
        {"output_type": "stream", "text": ["4\n", "\x1b[31m5\x1b[0m\n"]},
        {"output_type": "display_data", "data": {"image/png": "iVBOR", "text/plain": "<Figure>"}},
        {"output_type": "error", "ename": "KeyError", "evalue": "'x'", "traceback": []},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {"cell_type": "code", "source": "", "outputs": []},
        {"cell_type": "code", "source": "print(4)", "outputs": outputs},
    ]
    source = opened("a.ipynb", json.dumps({"cells": cells, "nbformat": 4}).encode())
    assert read(source)[1] == [
        ("# Title\ntext\n\n", 1),
        ("print(4)\n4\n5\n<Figure>\nKeyError: 'x'\n\n", 3),
    ]


def test_old_notebooks(opened):
    sheet = {"cells": [{"cell_type": "code", "input": ["x = 1"], "outputs": [{"text": "1"}]}]}
    source = opened("a.ipynb", json.dumps({"worksheets": [sheet], "nbformat": 3}).encode())
    assert read(source)[1] == [("x = 1\n1\n\n", 1)]


def test_json_lines_are_cited_by_line_and_read_as_they_mean(opened):
    lines = [
        '\ufeff{"who": "Ina", "said": "l\\u00e4uft\\nlos", "n": {"tags": ["a", "b"], "x": null}}',
        "",
        "[1, 2.50]",
        "no json {",
        '"half \\ud800"',
        '[{"a": 1}, {"a": 2}]',
    ]
    source = opened("a.jsonl", "\r\n".join(lines).encode())
    assert read(source)[1] == [
        ("who: Ina\nsaid: läuft\nlos\nn.tags: a, b\nn.x: null\n\n", 1),
        ("1, 2.5\n", 3),
        ("no json {\n", 4),
        ("half \ufffd\n", 5),
        ("0.a: 1\n1.a: 2\n\n", 6),
    ]


def test_json_lines_that_are_binary_are_refused(opened):
    with pytest.raises(UnreadableInput, match="binary"):
        read(opened("a.jsonl", b"\0\1\2"))


def test_mailboxes_are_cited_by_message(opened):
    box = mail("=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "Hello\n>From here\n", "<p>Hello", "map.zip")
    box += mail("Two", "\n").replace(b"\n\n\n", b"\n\n")
    source = opened("a.mbox", box)
    (first, one), (second, two) = read(source)[1]
    assert (one, two) == (1, 2)
    assert first.startswith("From: Ina <ina@example.org>\nSubject: Grüße\n\nHello\nFrom here\n")
    assert "[attachment: map.zip]" in first
    assert "<p>" not in first
    assert "Subject: Two" in second


# --- what is none of them ---


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.pdf", b"%PDF-1.4 nothing"),
        ("a.epub", b"PK\3\4"),
        ("a.epub", zipped({"x": b""})),
        ("a.docx", zipped({"x": b""})),
        ("a.docx", zipped({"word/document.xml": b"<w:p"})),
        ("a.ipynb", b"{}"),
        ("a.ipynb", b'{"cells": [3]}'),
        ("a.ipynb", b"\xff\xff"),
        ("a.mbox", b"Dear all,\n"),
        ("a.ipynb", b"[" * 100_000),
    ],
)
def test_damaged_files_are_unreadable(opened, name, data):
    with pytest.raises(UnreadableInput, match="damaged, or not what its name says"):
        read(opened(name, data))


@pytest.mark.parametrize(
    ("name", "data"),
    [("a.html", b"<p></p>"), ("a.ipynb", b'{"cells": []}'), ("a.html", b""), ("a.jsonl", b"\n")],
)
def test_files_without_text_are_empty(opened, name, data):
    with pytest.raises(UnreadableInput, match="it is empty"):
        read(opened(name, data))


def test_a_missing_extra_is_named(opened, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(UsageError, match=r"needs zstandard.*Run: pip install zstandard\."):
        opened("a.zst", b"x")


@pytest.mark.usefixtures("here")
def test_what_is_too_large_to_hold_is_refused(opened, monkeypatch):
    monkeypatch.setattr(limits, "CONVERTED", 50)
    with pytest.raises(UnreadableInput, match="held in memory"):
        read(opened("a.epub", epub("<p>" + "a" * 100)))
