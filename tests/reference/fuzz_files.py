"""Files of each format, and archives, damaged in any place; and what reading one must come to."""

import bz2
import gzip
import io
import json
import lzma
import random
import warnings
import zipfile
from functools import partial
from itertools import pairwise
from pathlib import Path
from tarfile import TarInfo

import fuzz_changes as changes
from fuzz_running import refused_at_most, require_told
from in_process import parsed_here
from sample_files import (
    WORD,
    docx,
    epub,
    mail,
    odp,
    ods,
    odt,
    paragraph,
    pdf,
    repacked,
    tarred,
    xlsx,
    zipped,
)
from sample_messages import eml, msg

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources.extra import is_missing
from longctx.core.sources.find import open_sources
from longctx.core.sources.reader import Source


def _mails() -> bytes:
    """A mailbox, whose borders of parts are drawn anew in each process unless the draw is set."""
    state = random.getstate()
    random.seed(1)
    try:
        first = mail("Grüße", "Hello\n>From here", "<p>Hi</p>", "map.zip")
        return first + mail("=?utf-8?q?a=20b?=", "é")
    finally:
        random.setstate(state)


PACK = {"gz": partial(gzip.compress, mtime=0), "bz2": bz2.compress, "xz": lzma.compress}
if not is_missing("zstandard"):
    import zstandard

    PACK["zst"] = zstandard.compress

NOTE = f"<w:footnotes {WORD}><w:p><w:r><w:t>a note</w:t></w:r></w:p></w:footnotes>"
PAGE = (
    b"<!DOCTYPE html><html><head><meta charset='utf-8'><title>The Map</title><style>p{}</style>"
    b"<script>a < b</script></head><body><h1>One</h1><!-- two --><p>old &amp; <b>key</b></p>"
    b"<pre>a\n b</pre><ul><li>x<img alt='y'></ul><table><tr><td>1</td></tr></table></body></html>"
)
CELLS = [
    {"cell_type": "markdown", "source": ["# One\n", "two"]},
    {"source": "1 + 1", "outputs": [{"data": {"text/plain": ["2"]}}, {"text": "3\n"}]},
    {"source": "1 / 0", "outputs": [{"ename": "ZeroDivisionError", "evalue": "by zero"}]},
]
SHEETS = {"worksheets": [{"cells": [{"input": "a", "outputs": [{"text": ["b"]}]}]}]}
LINES = [{"id": 1, "text": "a\nb", "tags": ["x", "y"]}, {"a": {"b": [{"c": None}]}}, 3.5]
MAIL = _mails()
DRAWING = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
DECK = (
    '<p:presentation xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">'
    '<p:sldIdLst><p:sldId r:id="r1"/><p:sldId r:id="r2"/></p:sldIdLst></p:presentation>'
)
LINKS_OF_DECK = (
    '<Relationships><Relationship Id="r1" Type="x/slide" Target="slides/s1.xml"/>'
    '<Relationship Id="r2" Type="x/slide" Target="/ppt/slides/s2.xml"/></Relationships>'
)
SLIDES = {
    "ppt/presentation.xml": DECK,
    "ppt/_rels/presentation.xml.rels": LINKS_OF_DECK,
    "ppt/slides/s1.xml": f"<a:x {DRAWING}><a:p><a:t>one</a:t><a:br/></a:p></a:x>",
    "ppt/slides/s2.xml": f"<a:x {DRAWING}><a:tr><a:tc><a:p><a:t>2</a:t></a:p></a:tc></a:tr></a:x>",
}
CELL = "<table:table-cell table:number-columns-repeated='2'><text:p>v</text:p></table:table-cell>"
ROWS = f"<table:table-row table:number-rows-repeated='3'>{CELL}</table:table-row>"
NO_TIMES = (  # openpyxl writes when it was made
    b"<c:coreProperties xmlns:c='http://schemas.openxmlformats.org/package/2006/metadata/"
    b"core-properties'/>"
)
WHOLE = {
    "a.epub": epub("<html><body><h1>One</h1><p>a</p></body></html>", "<p>caf&#233;</p>"),
    "a.docx": docx(paragraph("one") + paragraph("two"), footnotes=NOTE),
    "a.html": PAGE,
    "a.ipynb": json.dumps({"cells": CELLS, "nbformat": 4}).encode(),
    "b.ipynb": json.dumps(SHEETS).encode(),
    "a.mbox": MAIL,
    "a.pptx": zipped({name: text.encode() for name, text in SLIDES.items()}),
    "a.odt": odt("<text:h>one</text:h>", "<text:p>a<text:s text:c='2'/><text:tab/></text:p>"),
    "a.ods": ods(One=ROWS, Two=ROWS),
    "a.odp": odp("<text:p>one</text:p>", f"<table:table>{ROWS}</table:table>"),
    "a.eml": eml("Grüße", "Hello", {"a.docx": docx(paragraph("x")), "b.txt": b"y"}, "<p>Hi"),
    "a.jsonl": "\n".join(map(json.dumps, LINES)).encode(),
}
if not is_missing("openpyxl"):
    VALUES = {"One": [["a", 1.5, True], [], [None, "b"]], "Two": [["c"]]}
    WHOLE["a.xlsx"] = repacked(xlsx(VALUES), {"docProps/core.xml": NO_TIMES})
if not is_missing("oxmsg"):
    WHOLE["a.msg"] = msg("Grüße", "Hello", {"a.txt": b"x", "b.html": PAGE})
if not is_missing("striprtf"):
    WHOLE["a.rtf"] = rb"{\rtf1\ansi{\fonttbl{\f0 A;}}\f0 a\'e9\u8364?\par{\footnote b}\cell\row}"
if not is_missing("pypdfium2"):
    WHOLE["a.pdf"] = pdf("The keeper", None, "A boat")
FILES = {"one.txt": b"the keeper\n" * 30, **WHOLE, "two.txt.gz": PACK["gz"](b"a boat\n")}
PACKED = {
    "a.zip": zipped(FILES),
    "b.zip": zipped({"in.zip": zipped({"a.txt": b"a\n"}), "b.txt": b"b\n"}, zipfile.ZIP_STORED),
    "c.zip": zipped({"a.txt": b"a\n" * 40}, zipfile.ZIP_BZIP2),
    "d.zip": zipped({"a.txt": b"a\n" * 40}, zipfile.ZIP_LZMA),
    "a.tar": tarred({"a.txt": b"a\n", "b.html": PAGE, "x" * 120: b"long\n", "é": b"name\n"}),
    "a.tar.gz": PACK["gz"](tarred({"a.txt": b"a\n", "b.tar": tarred({"c": b"c\n"})})),
    **{f"a.txt.{how}": pack(b"the keeper\n" * 50) for how, pack in PACK.items()},
    **{f"a.html.{how}": pack(PAGE) for how, pack in PACK.items()},
    "a.jsonl.gz.xz": PACK["xz"](PACK["gz"](b'{"a": 1}\n')),
}
TOKENS = [
    *(b"", b"\0", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\n\n", b"\r", b"[", b"{", b"]"),
    *(b"}", b'"', b",", b"null", b"-1", b"1e999", b"NaN", b"9" * 5000, b"[" * 3000, b'"\\ud800"'),
    *(b"<![", b"<![x[", b"<!", b"<?", b"</", b"<!--", b"-->", b"]]>", b"&#xd800;", b"&#0;", b"<p"),
    *(b"<!DOCTYPE x [<!ENTITY a 'b'>]>", b"charset=utf-7", b"charset=idna", b"=?x?b?a?=", b"=?"),
    *(b"Content-Type: multipart/mixed; boundary=x\n\n--x\n", b"charset*0*=x''%ff", b"filename*=x'"),
    *(b"From ", b"Content-Transfer-Encoding: uuencode\n", b"<w:p>", b"</w:p>", b"../", b"%2e%2e/"),
    *(b"/Count 999999999 ", b"<</Type/Page>>", b"1 0 R", b"PK\1\2", b"PK\3\4", b"PK\5\6"),
    *(b"\xff" * 4, b"\xff" * 8, b"\0" * 8, b"\0" * 512, b"\x80" + b"\xff" * 11, b"99999999999\0"),
]
NAMES = [
    *("../x", "/etc/x", "C:\\x", "a/../../x", "..\\x", "\\\\host\\x", "..", ".", "/", "./x", "x/"),
    *("a~b", "~", "x" * 5000, "y/" * 2000 + "x", "\x1b[31m", "\u202e", "\n", "CON", ".git/x", "x"),
    *("a.gz", "a.zip", "a.tar", "a.tgz", ".gz", "a.zip.gz", "a.pdf", "a.docx", "a.tar.zst", " "),
]


def require_read(source: Source) -> None:
    assert source.expected_size is None or source.expected_size >= 0
    source.header.encode()
    seen: list[bytes] = []
    try:
        blocks = list(source.blocks(seen.append))
    except UnreadableInput as error:
        require_told(error)
        return
    raw = b"".join(seen)
    assert source.size == len(raw)
    for before, after in pairwise(blocks):
        assert before.starts[-1] == after.starts[0]
    for block in blocks:
        start, end = int(block.starts[0]), int(block.starts[-1])
        assert raw[start:end].decode(source.encoding, "replace") == block.text
    require_marks(source, len(raw))


def require_marks(source: Source, size: int) -> None:
    """Places in the text, ascending, each with the number of a part."""
    marks = source.made.take_marks() if source.made else []
    places = [place for place, _ in marks]
    assert places == sorted(set(places))
    assert all(0 <= place < size for place in places)
    assert all(number >= 1 for _, number in marks)
    assert all(isinstance(told, str) for told in source.lost)


# --- cases ---

FORMATS, ARCHIVES = sorted(WHOLE), sorted(PACKED)
SIGNS = [*TOKENS, *changes.BYTES]
BOOKS = [name for name in FORMATS if WHOLE[name].startswith(b"PK")]
KEYS = ["cells", "source", "input", "outputs", "data", "text/plain", "text", "ename", "cell_type"]
LINKS = [b"0", b"1", b"2", b"3", b"5", b"6", b"7", b"S", b"x", b"g", b"L"]


def format_case(rng: random.Random) -> tuple[str, bytes]:
    """A file of a format: its name and its bytes."""
    name, kind = rng.choice(FORMATS), rng.randrange(8)
    if kind == 0:
        return name, _any_bytes(rng)
    if kind == 1:
        start = b"From x\n" if name.endswith("mbox") else b""
        return name, start + b"".join(rng.choices(SIGNS, k=rng.randrange(9)))
    if kind < 4:
        return _of_values(rng) if rng.random() < 0.5 else _book(rng)
    return name, changes.edited(rng, WHOLE[name], SIGNS)


def _any_bytes(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice([0, 1, 2, 8, 80, 400]))


def _of_values(rng: random.Random) -> tuple[str, bytes]:
    """A notebook or records of other values."""
    kind = rng.randrange(6)
    if kind == 0:
        return "a.jsonl", b"\n".join(_json(changes.value(rng)) for _ in range(rng.randrange(1, 4)))
    if kind == 1:
        return "a.jsonl", b"\n".join(_json(changes.mutated(rng, line)) for line in LINES)
    if kind == 2:
        cell = {rng.choice(KEYS): changes.value(rng) for _ in range(rng.randrange(1, 5))}
        return "a.ipynb", _json({"cells": [cell, *CELLS]})
    whole = rng.choice([{"cells": CELLS, "nbformat": 4}, SHEETS])
    for _ in range(rng.choice([1, 1, 3])):
        whole = changes.mutated(rng, whole)
    return "a.ipynb", _json(whole)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _book(rng: random.Random) -> tuple[str, bytes]:
    """A book with a damaged member, or none, or with others."""
    name = rng.choice(BOOKS)
    files = dict(MEMBERS[name])
    member = rng.choice(sorted(files))
    kind = rng.randrange(6)
    if kind == 0:
        del files[member]
    elif kind == 1:
        files["META-INF/encryption.xml"] = b'<x><y URI="OEBPS/text/c%200.xhtml"/></x>'
    else:
        files[member] = changes.edited(rng, files[member], SIGNS)
    return name, zipped(files, rng.choice(COMPRESSIONS))


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as book:
        return {member: book.read(member) for member in book.namelist()}


MEMBERS = {name: _members(WHOLE[name]) for name in BOOKS}
COMPRESSIONS = [zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_LZMA]


def archive_case(rng: random.Random) -> tuple[str, bytes]:
    """An archive or a compressed file: its name and its bytes."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice(ARCHIVES), _any_bytes(rng)
    if kind == 1:
        return _hostile(rng) or ("a.zip", b"")
    if kind < 4:
        return _deep(rng)
    name = rng.choice(ARCHIVES)
    return name, changes.edited(rng, PACKED[name], SIGNS)


def _hostile(rng: random.Random) -> tuple[str, bytes] | None:
    """An archive with names, links and sizes that no good one has; None: it cannot be written."""
    files: dict[str, bytes | TarInfo] = {}
    kind, link = rng.choice(["zip", "tar", "tar.gz", "tar.xz"]), rng.choice(LINKS)
    for _ in range(rng.choice([1, 2, 3])):
        name = rng.choice(NAMES) if rng.random() < 0.7 else changes.text(rng)
        inner = rng.choice([b"text\n", b"", PACKED["b.zip"], PACKED["a.tar"], WHOLE["a.docx"]])
        files[name] = inner
        if kind != "zip" and link != b"0":
            info = files[name] = TarInfo(name)
            info.type, info.linkname = link, "/etc/passwd"
            info.size = rng.choice([0, 0, 1, 512, 2**33 - 1])
            if rng.random() < 0.3:
                info.pax_headers = {rng.choice(PAX): rng.choice(["1", "-1", "1e9", "x", "é"])}
    try:
        with warnings.catch_warnings(action="ignore"):
            data = zipped(files) if kind == "zip" else tarred(files)
    except (ValueError, IndexError):
        return None
    data = data.replace(b"~", b"\0")  # which libraries do not write in names
    if rng.random() < 0.3:
        data = changes.edited(rng, data, SIGNS, most=2)
    how = kind.partition(".")[2]
    return f"a.{kind}", PACK[how](data) if how else data


PAX = ["path", "size", "mtime", "GNU.sparse.map", "GNU.sparse.major", "hdrcharset", "comment"]


def _deep(rng: random.Random) -> tuple[str, bytes]:
    """Containers in containers, the innermost with a damaged file in it."""
    inner = rng.choice(FORMATS)
    name, data = inner, changes.edited(rng, WHOLE[inner], SIGNS)
    for each in rng.choices(["zip", "tar", *PACK], k=rng.choice([1, 2, 3, 4, 6])):
        if each in PACK:
            data = PACK[each](data)
        else:
            data = zipped({name: data}) if each == "zip" else tarred({name: data})
        if changes.seldom(rng, 6):
            data = changes.edited(rng, data, SIGNS, most=1)
        name += f".{each}"
    return name, data


def read_file(folder: Path, name: str, data: bytes) -> None:
    """All that is in a file can be read, or is refused.

    Args:
        folder: where it is written, and deleted after.
        name, data: the file.
    """
    file = folder / name
    file.write_bytes(data)
    try:
        with refused_at_most(), parsed_here():
            for source in open_sources([str(file)]):
                require_read(source)
                if not source.refused:
                    assert ".." not in source.part.replace("\\", "/").split("/")
                    assert not source.part.startswith(("/", "\\"))
    finally:
        file.unlink()
