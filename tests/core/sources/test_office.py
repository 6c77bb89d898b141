"""Office documents: what is read of them and where it stands, and files made to do harm."""

import io
import zipfile

import pytest
from pptx import Presentation
from pptx.util import Inches
from sample_files import (
    WORD,
    docx,
    odp,
    ods,
    odt,
    opendocument,
    paragraph,
    part_in,
    pptx,
    read,
    repacked,
    xlsx,
    zipped,
)

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources import formats, limits

SLIDE, DECK = "ppt/slides/slide1.xml", "ppt/presentation.xml"


def cells(*texts: str) -> str:
    """A row of an OpenDocument table."""
    inner = (
        f"<table:table-cell>{text and f'<text:p>{text}</text:p>'}</table:table-cell>"
        for text in texts
    )
    return f"<table:table-row>{''.join(inner)}</table:table-row>"


# --- DOCX ---


def row(*texts: str) -> str:
    """A row of a DOCX."""
    return f"<w:tr>{''.join(f'<w:tc>{paragraph(text)}</w:tc>' for text in texts)}</w:tr>"


def test_tables_are_read_by_rows(opened):
    table = f"<w:tbl>{row('item', '2023', '')}{row('', '', '')}{row('', 'Rent', '7')}</w:tbl>"
    text, pieces = read(opened("a.docx", docx(paragraph("Costs") + table + paragraph("End"))))
    assert text == "Costs\nitem\t2023\n\tRent\t7\nEnd\n"
    assert [number for words, number in pieces if words.strip()] == [1, 2, 3, 9, 10, 11]


def test_a_table_in_a_cell_and_cells_of_several_paragraphs(opened):
    inner = f"<w:tbl>{row('a', 'b')}</w:tbl>"
    cell = f"<w:tc>{paragraph('x')}{inner}{paragraph('y')}</w:tc>"
    table = f"<w:tbl><w:tr>{cell}<w:tc>{paragraph('z')}</w:tc></w:tr></w:tbl>"
    assert read(opened("a.docx", docx(table)))[0] == "x a b y\tz\n"


def test_headers_and_footers_come_last_and_equal_ones_once(opened):
    parts = {
        "header1": f"<w:hdr {WORD}>{paragraph('Draft')}</w:hdr>",
        "header2": f"<w:hdr {WORD}>{paragraph('Draft')}</w:hdr>",
        "footer1": f"<w:ftr {WORD}>{paragraph('Page')}{paragraph('Secret')}</w:ftr>",
        "endnotes": f"<w:endnotes {WORD}>{paragraph('a note')}</w:endnotes>",
    }
    assert read(opened("a.docx", docx(paragraph("one"), **parts)))[1] == [
        ("one\n", 1),
        ("a note\n", 2),
        ("Page\n", 3),
        ("Secret\n", 4),
        ("Draft\n", 5),
    ]


def test_what_stands_twice_or_was_moved_away_is_read_once(opened):
    old = '<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
    box = f"{old}<mc:Choice>{paragraph('box')}</mc:Choice><mc:Fallback>{paragraph('box')}"
    box += "</mc:Fallback></mc:AlternateContent>"
    moved = "<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:moveFrom><w:r><w:t>gone</w:t></w:r>"
    moved += "</w:moveFrom><w:r><w:t>here</w:t></w:r></w:p>"
    assert read(opened("a.docx", docx(f"<w:p><w:r>{box}</w:r></w:p>{moved}")))[0] == "box\nhere\n"


# --- slides ---


def deck() -> bytes:
    """A presentation with a table, a group, a second slide with notes, and one without text."""
    made = Presentation()
    first = made.slides.add_slide(made.slide_layouts[5])
    first.shapes[0].text_frame.text = "The plan\vof all"
    table = first.shapes.add_table(2, 2, *map(Inches, (1, 2, 3, 1))).table
    for place, text in (((0, 0), "item"), ((0, 1), "2023"), ((1, 1), "7")):
        table.cell(*place).text = text
    group = first.shapes.add_group_shape()
    group.shapes.add_textbox(*map(Inches, (1, 1, 1, 1))).text_frame.text = "in a group"
    second = made.slides.add_slide(made.slide_layouts[5])
    second.shapes[0].text_frame.text = "Second"
    second.notes_slide.notes_text_frame.text = "say it slowly"
    made.slides.add_slide(made.slide_layouts[6])
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def test_slides_with_tables_groups_and_notes(opened):
    assert read(opened("a.pptx", deck()))[1] == [
        ("The plan\nof all\nitem\t2023\n\t7\nin a group\n\n", 1),
        ("Second\nsay it slowly\n\n", 2),
    ]


def test_slides_in_the_order_of_the_presentation(opened):
    data = pptx("One", "Two")
    with zipfile.ZipFile(io.BytesIO(data)) as book:
        xml = book.read(DECK)
    start, end = xml.index(b"<p:sldId "), xml.index(b"</p:sldIdLst>")
    first, second = xml[start:end].split(b"/>")[:2]
    turned = xml[:start] + second + b"/>" + first + b"/>" + xml[end:]
    pieces = read(opened("a.ppsx", repacked(data, {DECK: turned})))[1]
    assert pieces == [("Two\n\n", 1), ("One\n\n", 2)]


def test_a_slide_that_is_missing_is_told(opened):
    data = pptx("One", "Two")
    with zipfile.ZipFile(io.BytesIO(data)) as book:
        files = {name: book.read(name) for name in book.namelist() if name != SLIDE}
    source = opened("a.pptx", zipped(files))
    assert read(source)[1] == [("Two\n\n", 2)]
    assert [told.partition("': ")[2] for told in source.lost] == ["slide 1 is missing"]


@pytest.mark.parametrize(("name", "data"), [("a.pptx", pptx("", "")), ("a.odp", odp("", ""))])
def test_slides_that_are_pictures_are_refused(opened, name, data):
    with pytest.raises(UnreadableInput, match=r"none of its 2 slides has text\..*OCR"):
        read(opened(name, data))


# --- OpenDocument ---


def test_texts_of_opendocument(opened):
    note = "<text:note><text:note-citation>1</text:note-citation><text:note-body>"
    note += "<text:p>a note</text:p></text:note-body></text:note>"
    deleted = "<text:tracked-changes><text:p>old</text:p></text:tracked-changes>"
    comment = '<office:annotation xmlns:dc="http://purl.org/dc/elements/1.1/">'
    comment += "<dc:creator>Ina</dc:creator><text:p>why?</text:p></office:annotation>"
    body = [
        *(deleted, "<text:h>Head</text:h>", "<text:p/>"),
        f"<text:p>a<text:s text:c='2'/>b<text:tab/>c<text:line-break/>d{note}{comment}</text:p>",
        f"<table:table>{cells('x', '', 'y')}{cells('', 'z')}</table:table>",
    ]
    styles = "<style:header><text:p>Draft</text:p></style:header><text:p>no</text:p>"
    assert read(opened("a.odt", odt(*body, styles=styles)))[1] == [
        ("Head\n", 1),
        ("a note\n", 3),
        ("a  b\tc\nd\n", 4),
        ("x\t\t", 5),
        ("y\n", 6),
        ("\tz\n", 7),
        ("comment: why?\n", 8),
        ("Draft\n", 9),
    ]


def test_sheets_of_opendocument(opened):
    many = '<table:table-row table:number-rows-repeated="1048570"><table:table-cell/>'
    many += "</table:table-row>"
    twice = (
        '<table:table-cell table:number-columns-repeated="2"><text:p>v</text:p></table:table-cell>'
    )
    rows = cells("item", "", "two<text:s/>words")
    rows += f'<table:table-row table:number-rows-repeated="2">{twice}</table:table-row>' + many
    rows += cells("end")
    text, pieces = read(opened("a.ods", ods(Costs=rows, Other=cells("x"))))
    assert text == "[sheet: Costs]\nitem\t\ttwo words\nv\tv\nv\tv\nend\n\n[sheet: Other]\nx\n"
    cited = [formats.cited("sheet", n, part_in(pieces, n)) for _, n in pieces]
    assert cited == [
        *("Costs", "Costs!A1", "Costs!C1", "Costs!A2", "Costs!B2", "Costs!A3", "Costs!B3"),
        *("Costs!A1048574", "Other", "Other!A1"),
    ]


def test_a_cell_that_stands_there_a_billion_times_is_refused(opened):
    often = 'table:number-columns-repeated="999999999"'
    cell = f"<table:table-cell {often}><text:p>v</text:p></table:table-cell>"
    rows = f'<table:table-row table:number-rows-repeated="999999999">{cell}</table:table-row>'
    with pytest.raises(limits.TooMuch, match="it holds over"):
        read(opened("a.ods", ods(S=rows)))


def test_an_opendocument_with_a_password_is_refused(opened):
    listed = b'<manifest:manifest><manifest:encryption-data manifest:checksum="x"/>'
    data = repacked(odt("<text:p>x</text:p>"), {"META-INF/manifest.xml": listed})
    with pytest.raises(UnreadableInput, match=r"protected by a password.*save it without"):
        read(opened("a.odt", data))


# --- RTF ---


def test_rtf(opened):
    text = rb"{\rtf1\ansi\ansicpg1251{\fonttbl{\f0\fcharset204 Arial;}}\f0 \'cf\'f0 \u8364?"
    text += rb"\u-10179?\u-8704?{\footnote a note}\par\par{\*\generator x;}{\pict 00ff}A | B\par"
    text += rb"\trowd\cellx1\cellx2 x\cell y\cell\row}"
    assert read(opened("a.rtf", text))[1] == [
        ("Пр €😀 a note\n", 1),
        ("A | B\n", 3),
        ("x\ty\n", 4),
    ]


# --- what is refused ---

BOMB = b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b SYSTEM "/etc/passwd">]><x>&a;&b;</x>'
PARTS = {
    "docx": (docx(paragraph("x")), "word/document.xml"),
    "odp": (odp("<text:p>x</text:p>"), "content.xml"),
    "ods": (ods(S=cells("x")), "content.xml"),
    "odt": (odt("<text:p>x</text:p>"), "styles.xml"),
    "pptx": (pptx("x"), SLIDE),
    "xlsx": (xlsx({"S": [["x"]]}), "xl/workbook.xml"),
}
LOCKED = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(1016) + "EncryptedPackage".encode("utf-16-le")


@pytest.mark.parametrize("ending", PARTS)
def test_declared_entities_are_refused(opened, ending):
    data, part = PARTS[ending]
    with pytest.raises(UnreadableInput, match="declares a document type"):
        read(opened(f"a.{ending}", repacked(data, {part: BOMB})))


@pytest.mark.parametrize("ending", PARTS)
def test_what_unpacks_to_too_much_is_refused(opened, ending):
    data, part = PARTS[ending]
    with pytest.raises(limits.TooMuch, match="over 500 times"):
        read(opened(f"a.{ending}", repacked(data, {part: b"<x>" + b" " * 100_000_000})))


@pytest.mark.parametrize("ending", PARTS)
def test_a_password_is_told_with_what_to_do(opened, ending):
    with pytest.raises(UnreadableInput, match=r"protected by a password.*save it without"):
        read(opened(f"a.{ending}", LOCKED))
    with pytest.raises(UnreadableInput, match=r"older, binary format.*format of today"):
        read(opened(f"a.{ending}", LOCKED[:900]))


@pytest.mark.parametrize("ending", PARTS)
def test_what_is_no_such_document_is_damaged(opened, ending):
    for data in (
        zipped({"x": b""}),
        zipped({PARTS[ending][1]: b"<x"}),
        b"PK\3\4",
        opendocument("")[:99],
    ):
        with pytest.raises(UnreadableInput, match="damaged, or not what its name says"):
            read(opened(f"a.{ending}", data))


@pytest.mark.parametrize("ending", ["docm", "xlsm", "pptm"])
def test_macros_are_not_read(opened, ending):
    data, part = PARTS[ending.replace("m", "x")]
    macro = {f"{part.partition('/')[0]}/vbaProject.bin": b"Sub AutoOpen()"}
    assert "AutoOpen" not in read(opened(f"a.{ending}", repacked(data, macro)))[0]


# --- documents that are not read ---


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        *(("a.doc", ".docx"), ("a.XLS", ".xlsx"), ("a.ppt", ".pptx"), ("a.xlsb", ".xlsx")),
        *(("a.pages", "Export it as PDF"), ("a.mobi", "Convert it to EPUB")),
    ],
)
def test_older_documents_are_refused_with_what_to_do(opened, name, remedy):
    with pytest.raises(UnreadableInput, match="which is not read") as refused:
        read(opened(name, LOCKED))
    assert remedy in refused.value.remedy
    assert refused.value.exit_code == 3
    assert read(opened(name, b"plain text\n"))[0] == "plain text\n"
