"""Workbooks: what cells show, where they stand, and files that are made to take too much."""

import io
from datetime import datetime, time

import pytest
from openpyxl import Workbook
from sample_files import part_in, read, repacked, xlsx

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources import formats, limits
from longctx.core.sources.parser import GivenUp

SHEET = "xl/worksheets/sheet1.xml"


def saved(book: Workbook) -> bytes:
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def of_values(*values: tuple[object, str]) -> bytes:
    """A workbook of one row of values, each in a number format."""
    book = Workbook()
    for column, (value, form) in enumerate(values, 1):
        cell = book.worksheets[0].cell(1, column, value)
        cell.number_format = form
    return saved(book)


def rows_of(text: str) -> list[list[str]]:
    """The cells of a sheet's rows, below its heading."""
    return [line.split("\t") for line in text.splitlines()[1:]]


def test_cells_are_cited_by_sheet_and_cell(opened):
    rows = [["item", "2023"], [], ["Rent", None, 1200]]
    source = opened("a.xlsx", xlsx({"Costs": rows, "O'Neill & co": [["x"]]}))
    text, pieces = read(source)
    assert text == "[sheet: Costs]\nitem\t2023\nRent\t\t1200\n\n[sheet: O'Neill & co]\nx\n"
    cited = [formats.cited("sheet", n, part_in(pieces, n)) for _, n in pieces]
    assert cited == [
        *("Costs", "Costs!A1", "Costs!B1", "Costs!A3", "Costs!C3"),
        *("'O''Neill & co'", "'O''Neill & co'!A1"),
    ]


def test_columns_beyond_z(opened):
    pieces = read(opened("a.xlsx", xlsx({"S": [[None] * 26 + ["far"] + [None] * 700 + ["end"]]})))[
        1
    ]
    assert [formats.cited("sheet", n, "S") for _, n in pieces] == ["S", "S!AA1", "S!AAZ1"]


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [
        (0.155, "0.0%", "15.5%"),
        (1200.5, '"€"#,##0.00', "€1,200.50"),
        (1200.5, "#,##0.00\\ [$€-407]", "1,200.50 €"),
        (-1234567, "#,##0;[Red](#,##0)", "-1,234,567"),
        (0.1 + 0.2, "General", "0.3"),
        (1.5, "0.##", "1.5"),
        (2, "0.0#", "2.0"),
        (12345.678, "0.00E+00", "12345.678"),
        (datetime(2024, 5, 6), "yyyy-mm-dd", "2024-05-06"),
        (datetime(2024, 5, 6, 3, 4, 5), "d/m/yy h:mm", "2024-05-06 03:04:05"),
        (time(3, 4), "h:mm", "03:04:00"),
        (True, "General", "TRUE"),
        ("two\nlines", "General", "two lines"),
    ],
)
def test_cells_read_as_they_are_shown(opened, value, form, shown):
    assert rows_of(read(opened("a.xlsx", of_values((value, form))))[0]) == [[shown]]


def test_of_a_formula_the_stored_value_is_read(opened):
    cell = b'<c r="A1"><f>1+1</f><v>2</v></c><c r="B1" t="e"><f>1/0</f><v>#DIV/0!</v></c>'
    xml = (
        b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    )
    xml += b'<row r="1">' + cell + b"</row></sheetData></worksheet>"
    source = opened("a.xlsx", repacked(xlsx({"S": [[1]]}), {SHEET: xml}))
    assert rows_of(read(source)[0]) == [["2", "#DIV/0!"]]


def test_macros_and_links_to_others_are_not_read(opened):
    book = Workbook()
    sheet = book.worksheets[0]
    sheet["A1"], sheet["A2"] = "kept", "=[other.xlsx]S!A1"
    sheet["A1"].hyperlink = "https://example.org/"
    data = repacked(saved(book), {"xl/vbaProject.bin": b"Sub AutoOpen()"})
    assert rows_of(read(opened("a.xlsm", data))[0]) == [["kept"]]


def test_hidden_sheets_are_read(opened):
    book = Workbook()
    book.create_sheet("Other")["A1"] = "x"
    book["Other"].sheet_state = "veryHidden"
    assert "[sheet: Other]\nx\n" in read(opened("a.xlsx", saved(book)))[0]


# --- what is refused ---

BOMB = b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;">]><worksheet>&b;</worksheet>'


@pytest.mark.parametrize(
    "part", [SHEET, "xl/workbook.xml", "xl/sharedStrings.xml", "[Content_Types].xml"]
)
def test_a_workbook_that_declares_entities_is_refused(opened, part):
    with pytest.raises(UnreadableInput, match="declares a document type"):
        read(opened("a.xlsx", repacked(xlsx({"S": [["x"]]}), {part: BOMB})))


def test_a_document_type_is_not_hidden_behind_a_long_comment(opened):
    xml = b"<!--" + b" " * 100_000 + b"-->" + BOMB
    with pytest.raises(UnreadableInput, match="no element in its first 65,536 bytes"):
        read(opened("a.xlsx", repacked(xlsx({"S": [["x"]]}), {SHEET: xml})))


def test_a_workbook_that_unpacks_to_too_much_is_refused(opened):
    data = repacked(xlsx({"S": [["x"]]}), {"xl/media/a.bin": bytes(100_000_000)})
    with pytest.raises(limits.TooMuch, match=r"over 500 times"):
        read(opened("a.xlsx", data))


def test_rows_that_are_far_apart_take_no_time_or_are_given_up(opened):
    row = b'<row r="%d"><c r="A%d" t="inlineStr"><is><t>x</t></is></c></row>'
    xml = (
        b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    )
    far = xml + row % (10**6, 10**6) + b"</sheetData></worksheet>"
    data = xlsx({"S": [[1]]})
    _, pieces = read(opened("a.xlsx", repacked(data, {SHEET: far})))
    assert formats.cited("sheet", pieces[1][1], "S") == "S!A1000000"
    endless = xml + row % (10**12, 10**12) + b"</sheetData></worksheet>"
    with pytest.raises(GivenUp, match="over 1 seconds"):
        read(opened("b.xlsx", repacked(data, {SHEET: endless}), seconds=1))
