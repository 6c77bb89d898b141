"""Small files of every format, made by the tests themselves, and what is read of a source."""

import io
import tarfile
import zipfile
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from longctx.core.sources import places
from longctx.core.sources.reader import Source

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def pdf(*pages: str | None) -> bytes:
    """A PDF with one line of text on each page; None: a page that is a picture."""
    picture = b"q 100 0 0 100 0 0 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \xff EI Q"
    texts = [
        picture if p is None else f"BT /F1 12 Tf 20 100 Td ({p}) Tj ET".encode() for p in pages
    ]
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for index, text in enumerate(texts):
        page = (
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 400 200] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * index} 0 R >>"
        )
        objects.append(page.encode())
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(text), text))
    return _pdf_of(objects)


def paged(operators: bytes, form: bytes = b"") -> bytes:
    """A PDF of one page with these operators; the font is F1, and F a form with its own."""
    names = b"<< /XObject << /F 6 0 R >> /Font << /F1 3 0 R >> >>"
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Resources %s /Contents 5 0 R >>"
    drawn = b"<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources %s /Length %d >>"
    return _pdf_of(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
            page % names,
            b"<< /Length %d >>\nstream\n%s\nendstream" % (len(operators), operators),
            drawn % (names, len(form)) + b"\nstream\n%s\nendstream" % form,
        ]
    )


def _pdf_of(objects: list[bytes]) -> bytes:
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}".encode()
    out += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\n".encode()
    return bytes(out) + f"startxref\n{start}\n%%EOF\n".encode()


def zipped(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, compression)  # of no time: always equal
    return out.getvalue()


def tarred(files: dict[str, bytes | tarfile.TarInfo], mode: str = "w") -> bytes:
    """A tar; a member may be a TarInfo, for what is no file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, data in files.items():
            info = data if isinstance(data, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(data, bytes):
                info.size = len(data)
            archive.addfile(info, io.BytesIO(data) if isinstance(data, bytes) else None)
    return out.getvalue()


def epub(*chapters: str, **others: str) -> bytes:
    """An EPUB in `OEBPS/`, whose spine is in the order of the chapters."""
    items = "".join(f'<item id="c{n}" href="text/c%20{n}.xhtml"/>' for n in range(len(chapters)))
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    package = f"<package><manifest>{items}</manifest><spine>{spine}</spine></package>"
    container = '<container><rootfiles><rootfile full-path="OEBPS/b.opf"/></rootfiles></container>'
    pages = {f"OEBPS/text/c {n}.xhtml": page.encode() for n, page in enumerate(chapters)}
    files = {"META-INF/container.xml": container.encode(), "OEBPS/b.opf": package.encode()}
    return zipped({**files, **pages, **{name: text.encode() for name, text in others.items()}})


def docx(body: str, **parts: str) -> bytes:
    """A DOCX whose text part has this body, in WordprocessingML."""
    document = f"<?xml version='1.0'?><w:document {WORD}><w:body>{body}</w:body></w:document>"
    more = {f"word/{name}.xml": text.encode() for name, text in parts.items()}
    return zipped({"word/document.xml": document.encode(), **more})


def paragraph(text: str) -> str:
    """A paragraph of a DOCX."""
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def xlsx(sheets: dict[str, list[list[Any]]]) -> bytes:
    """A workbook, as openpyxl writes it; sheets as rows of values."""
    from openpyxl import Workbook

    book = Workbook(write_only=True)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def pptx(*slides: str) -> bytes:
    """A presentation, as python-pptx writes it, with a text on each slide."""
    from pptx import Presentation

    deck = Presentation()
    for text in slides:
        slide = deck.slides.add_slide(deck.slide_layouts[5])
        slide.shapes[0].text_frame.text = text
    out = io.BytesIO()
    deck.save(out)
    return out.getvalue()


def opendocument(body: str, styles: str = "") -> bytes:
    """An OpenDocument file whose content has this body."""
    names = ("office", "text", "table", "presentation", "style")
    spaces = [f'xmlns:{n}="urn:oasis:names:tc:opendocument:xmlns:{n}:1.0"' for n in names]
    spaces.append('xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"')
    root = f"office:document-content {' '.join(spaces)}"
    parts = {"content.xml": body, "styles.xml": styles}
    xml = {name: f"<{root}>{inner}</{root.split()[0]}>".encode() for name, inner in parts.items()}
    return zipped({"mimetype": b"application/vnd.oasis.opendocument.text", **xml})


def odt(*paragraphs: str, styles: str = "") -> bytes:
    """An OpenDocument text of these elements."""
    text = "".join(paragraphs)
    return opendocument(f"<office:body><office:text>{text}</office:text></office:body>", styles)


def ods(**sheets: str) -> bytes:
    """An OpenDocument spreadsheet; of each sheet its rows."""
    tables = [
        f'<table:table table:name="{name}">{rows}</table:table>' for name, rows in sheets.items()
    ]
    inner = "".join(tables)
    return opendocument(
        f"<office:body><office:spreadsheet>{inner}</office:spreadsheet></office:body>"
    )


def odp(*slides: str) -> bytes:
    """An OpenDocument presentation; of each slide what is in it."""
    pages = "".join(f"<draw:page>{slide}</draw:page>" for slide in slides)
    return opendocument(
        f"<office:body><office:presentation>{pages}</office:presentation></office:body>"
    )


def repacked(data: bytes, changes: dict[str, bytes]) -> bytes:
    """A zip file with other members instead, or more of them."""
    with zipfile.ZipFile(io.BytesIO(data)) as before:
        return zipped({name: before.read(name) for name in before.namelist()} | changes)


def mail(subject: str, text: str, html: str = "", attachment: str = "") -> bytes:
    """A message as it stands in a mailbox, with the line before it."""
    message = EmailMessage()
    message["From"], message["Subject"] = "Ina <ina@example.org>", subject
    message.set_content(text)
    if html:
        message.add_alternative(html, subtype="html")
    if attachment:
        message.add_attachment(b"\0\1", "application", "zip", filename=attachment)
    return b"From ina Sat Jan  1 00:00:00 2000\n" + message.as_bytes() + b"\n"


def put(folder: Path, files: dict[str, bytes]) -> Path:
    """Writes files with their folders."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def read(source: Source) -> tuple[str, list[tuple[str, int]]]:
    """A source's text, and its marks as (text from there to the next one, number)."""
    seen: list[bytes] = []
    for _ in source.blocks(seen.append):
        pass
    data = b"".join(seen)
    marks = source.made.take_marks() if source.made else []
    ends = [*(start for start, _ in marks[1:]), len(data)]
    cut = [(data[s:e].decode(), n) for (s, n), e in zip(marks, ends, strict=True)] if marks else []
    return data.decode(source.encoding, "replace"), cut


def part_in(pieces: list[tuple[str, int]], number: int) -> str:
    """The name of the sheet or attachment that a mark of a text is in; empty if there is none."""
    own = (text for text, other in pieces if other // places.PART == number // places.PART)
    return places.name_in(next(own)) if number >= places.PART else ""
