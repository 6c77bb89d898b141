"""What stands beside the text of office documents: comments, charts, headers and footers."""

import io

import pytest
from openpyxl import Workbook
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
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
    read,
    repacked,
)

from longctx.core.sources import asides, formats

CHART = "http://schemas.openxmlformats.org/drawingml/2006/chart"
DRAWN = "http://schemas.openxmlformats.org/drawingml/2006/main"
THREADED = "http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments"
RELATION = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def saved(made) -> bytes:
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def chart(title: str, series: str, *categories: str) -> bytes:
    """A chart as Excel stores it: with what its cells said then."""
    points = "".join(f"<c:pt><c:v>{text}</c:v></c:pt>" for text in categories)
    return (
        f'<c:chartSpace xmlns:c="{CHART}" xmlns:a="{DRAWN}"><c:chart><c:title><c:tx><c:rich><a:p>'
        f"<a:r><a:t>{title}</a:t></a:r></a:p></c:rich></c:tx></c:title><c:plotArea><c:ser>"
        f"<c:tx><c:strRef><c:strCache><c:pt><c:v>{series}</c:v></c:pt></c:strCache></c:strRef>"
        f"</c:tx><c:cat><c:strRef><c:f>S!A1</c:f><c:strCache>{points}</c:strCache></c:strRef>"
        "</c:cat><c:val><c:numRef><c:numCache><c:pt><c:v>17</c:v></c:pt></c:numCache></c:numRef>"
        "</c:val></c:ser></c:plotArea></c:chart></c:chartSpace>"
    ).encode()


def links(*targets: tuple[str, str]) -> bytes:
    """The relations of a part: (kind, target)."""
    inner = "".join(
        f'<Relationship Id="r{n}" Type="{RELATION}/{kind}" Target="{target}"/>'
        for n, (kind, target) in enumerate(targets)
    )
    return f"<Relationships>{inner}</Relationships>".encode()


def cited(pieces: list[tuple[str, int]]) -> list[tuple[str, str]]:
    """The texts of sheets with their places."""
    return [(text, formats.cited("sheet", n, part_in(pieces, n))) for text, n in pieces]


# --- Microsoft's formats ---


def test_a_workbook(opened):
    book = Workbook()
    costs, other = book.worksheets[0], book.create_sheet("Other")
    costs.title = "Costs"
    for row in (["item", "2023"], ["Rent", 7], ["Coal", 9]):
        costs.append(row)
    costs["B3"].comment = Comment("too\nmuch?", "Ina")
    drawn = BarChart()
    drawn.title, drawn.x_axis.title = "Costs of a year", "What for"
    drawn.add_data(Reference(costs, min_col=2, min_row=1, max_row=3), titles_from_data=True)
    drawn.set_categories(Reference(costs, min_col=1, min_row=2, max_row=3))
    costs.add_chart(drawn, "D1")
    costs.oddHeader.center.text, costs.oddHeader.right.text = "Draft && secret", "Page &P of &N"
    costs.oddFooter.left.text = "&D"
    other["A1"] = "x"
    pieces = read(opened("a.xlsx", saved(book)))[1]
    assert cited(pieces)[7:] == [
        ("comment: too much?\n", "Costs!B3"),
        ("Costs of a year\nWhat for\n", "Costs"),
        ("Draft & secret\tPage of\n", "Costs"),
        ("\n[sheet: Other]\n", "Other"),
        ("x\n", "Other!A1"),
    ]


def test_of_a_chart_words_are_read_and_numbers_are_not():
    text = asides.chart(chart("Catch", "2023", "cod", "eel", "cod"))
    assert text == "Catch\n2023\tcod\teel\n"


def test_a_thread_of_comments_is_read_and_not_what_stands_for_it(opened):
    book = Workbook()
    book.worksheets[0]["A1"] = "kept"
    book.worksheets[0]["A1"].comment = Comment("[Threaded comment] not here", "Ina")
    inner = "".join(
        f'<threadedComment ref="A1"><text>{text}</text></threadedComment>'
        for text in ("why?", "therefore")
    )
    thread = f'<ThreadedComments xmlns="{THREADED}">{inner}</ThreadedComments>'
    parts = {
        "xl/threadedComments/threadedComment1.xml": thread.encode(),
        "xl/worksheets/_rels/sheet1.xml.rels": links(
            ("threadedComment", "../threadedComments/threadedComment1.xml"),
            ("comments", "/xl/comments/comment1.xml"),
        ),
    }
    text = read(opened("a.xlsx", repacked(saved(book), parts)))[0]
    assert text.splitlines()[1:] == ["kept", "comment: why?", "comment: therefore"]


def test_a_sheet_that_is_a_chart(opened):
    book = Workbook()
    book.worksheets[0].append(["cod", 7])
    drawn = BarChart()
    drawn.title = "Catch"
    drawn.add_data(Reference(book.worksheets[0], min_col=2, min_row=1))
    book.create_chartsheet("Picture").add_chart(drawn)
    text = read(opened("a.xlsx", saved(book)))[0]
    assert text == "[sheet: Sheet]\ncod\t7\n\n[sheet: Picture]\nCatch\n"


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ('&L&"Arial,Bold"&14Draft&C&P / &N&RQ&amp;&amp;A', "Draft\tQ&A\n"),
        ("&C&K00FF00Secret &amp;D", "Secret\n"),
        ("&RPage &P", "Page\n"),
        ("&C&P", ""),
    ],
)
def test_the_codes_of_a_margin_are_no_words(written, words):
    xml = f"<worksheet/><headerFooter><oddHeader>{written}</oddHeader></headerFooter>"
    assert asides.margins(xml.encode()) == words


def test_a_presentation(opened):
    made = Presentation()
    slide = made.slides.add_slide(made.slide_layouts[5])
    slide.shapes[0].text_frame.text = "The year"
    data = CategoryChartData()
    data.categories = ["cod", "eel"]
    data.add_series("tons", (17, 4))
    drawn = slide.shapes.add_chart(XL_CHART_TYPE.PIE, *map(Inches, (1, 1, 3, 3)), data).chart
    drawn.has_title = True
    drawn.chart_title.text_frame.text = "Catch"
    slide.notes_slide.notes_text_frame.text = "say it slowly"
    made.slides.add_slide(made.slide_layouts[5]).shapes[0].text_frame.text = "Second"
    rels = "ppt/slides/_rels/slide2.xml.rels"
    comments = "<p:cmLst xmlns:p='http://schemas.openxmlformats.org/presentationml/2006/main'>"
    comments += "<p:cm><p:text>why &amp; how?</p:text></p:cm></p:cmLst>"
    parts = {rels: links(("comments", "../comments/comment1.xml"))}
    parts["ppt/comments/comment1.xml"] = comments.encode()
    assert read(opened("a.pptx", repacked(saved(made), parts)))[1] == [
        ("The year\nCatch\ntons\tcod\teel\nsay it slowly\n\n", 1),
        ("Second\ncomment: why & how?\n\n", 2),
    ]


def test_comments_in_threads_on_a_slide():
    xml = f'<t xmlns:a="{DRAWN}"><a:p><a:r><a:t>a</a:t></a:r></a:p><a:p><a:t>b</a:t></a:p></t>'
    assert asides.slide_comments(xml.encode()) == "comment: a\ncomment: b\n"


def test_a_text(opened):
    comments = f"<w:comments {WORD}><w:comment>{paragraph('why?')}</w:comment></w:comments>"
    footer = f"<w:ftr {WORD}>{paragraph('Secret')}</w:ftr>"
    data = docx(paragraph("one"), comments=comments, footer1=footer)
    data = repacked(data, {"word/charts/chart1.xml": chart("Catch", "tons", "cod")})
    assert read(opened("a.docx", data))[1] == [
        *[("one\n", 1), ("comment: why?\n", 2), ("Catch\n", 3), ("tons\tcod\n", 4)],
        ("Secret\n", 5),
    ]


# --- OpenDocument ---

COMMENT = "<office:annotation><text:p>why</text:p><text:p>not?</text:p></office:annotation>"
LINK = 'xmlns:xlink="http://www.w3.org/1999/xlink" xlink:href="./Object 1"'
OBJECT = f"<draw:frame><draw:object {LINK}/></draw:frame>"
SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for name in ("office", "text", "table", "chart")
)


def of_cells(*cells: tuple[str, str]) -> str:
    inner = "".join(
        f'<table:table-cell office:value-type="{kind}"><text:p>{text}</text:p></table:table-cell>'
        for kind, text in cells
    )
    return f"<table:table-row>{inner}</table:table-row>"


def with_chart(data: bytes) -> bytes:
    """A document with a chart in it, as LibreOffice stores one."""
    rows = of_cells(("string", ""), ("string", "tons")) + of_cells(
        ("string", "cod"), ("float", "7")
    )
    inner = "<chart:title><text:p>Catch</text:p></chart:title><table:table>" + rows
    chart = f"<office:document-content {SPACES}><office:body><office:chart><chart:chart>{inner}"
    chart += "</table:table></chart:chart></office:chart></office:body></office:document-content>"
    return repacked(data, {"Object 1/content.xml": chart.encode()})


def test_a_text_of_opendocument(opened):
    data = with_chart(odt(f"<text:p>one{COMMENT}{OBJECT}</text:p>", "<text:p>two</text:p>"))
    assert read(opened("a.odt", data))[1] == [
        *[("one\n", 1), ("two\n", 2), ("comment: why not?\n", 3)],
        *[("Catch\n", 4), ("tons\n", 5), ("cod\n", 6)],
    ]


def test_an_object_that_is_no_chart_is_not_read(opened):
    other = f"<office:document-content {SPACES}><text:p>no</text:p></office:document-content>"
    data = odt(f"<text:p>one{OBJECT}</text:p>")
    for changes in ({}, {"Object 1/content.xml": other.encode()}):
        assert read(opened("a.odt", repacked(data, changes)))[0] == "one\n"


def test_a_spreadsheet_of_opendocument(opened):
    cell = f"<table:table-cell>{COMMENT}<text:p>x</text:p></table:table-cell>"
    empty = '<table:table-cell table:number-columns-repeated="2"/>'
    rows = f"<table:table-row>{empty}{cell}</table:table-row>"
    rows = f"<table:shapes>{OBJECT}</table:shapes>{rows}"
    styles = "<style:master-page><style:header><text:p>Draft</text:p></style:header>"
    styles += '<style:footer style:display="false"><text:p>no</text:p></style:footer>'
    styles += "<style:header-left><text:p>Draft</text:p></style:header-left></style:master-page>"
    tables = "".join(
        f'<table:table table:name="{name}">{inner}</table:table>'
        for name, inner in (("A", rows), ("B", of_cells(("string", "y"))))
    )
    body = f"<office:body><office:spreadsheet>{tables}</office:spreadsheet></office:body>"
    pieces = read(opened("a.ods", with_chart(opendocument(body, styles))))[1]
    assert cited(pieces) == [
        *[("[sheet: A]\n", "A"), ("\t\tx\n", "A!C1"), ("comment: why not?\n", "A!C1")],
        *[("Catch\ntons\ncod\n", "A"), ("\n[sheet: B]\n", "B"), ("y\n", "B!A1"), ("Draft\n", "B")],
    ]


def test_rows_without_comments_have_none(opened):
    assert "comment" not in read(opened("a.ods", ods(S=of_cells(("string", "x")))))[0]


def test_a_presentation_of_opendocument(opened):
    pages = "".join(
        f'<draw:page presentation:use-footer-name="f">{inner}</draw:page>'
        for inner in (f"<text:p>one</text:p>{COMMENT}{OBJECT}", "<text:p>two</text:p>")
    )
    declared = '<presentation:footer-decl presentation:name="f">Secret</presentation:footer-decl>'
    body = f"<office:body><office:presentation>{declared}{pages}</office:presentation>"
    data = with_chart(opendocument(body + "</office:body>"))
    assert read(opened("a.odp", data))[1] == [
        ("one\ncomment: why not?\nCatch\ntons\ncod\nSecret\n\n", 1),
        ("two\n\n", 2),
    ]
    assert read(opened("a.odp", odp("<text:p>one</text:p>")))[1] == [("one\n\n", 1)]
