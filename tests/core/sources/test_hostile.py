"""Files that are made to take all memory or hours, or to keep others from being read.

Each is small, and was read into gigabytes, for minutes, or not at all.
"""

import gzip
import io
import json
import tarfile
import tracemalloc
from tarfile import GNU_FORMAT, TarInfo

import pytest
from sample_files import mail, paged, pdf, put, read, tarred, zipped

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources import limits
from longctx.core.sources.find import open_sources
from longctx.core.sources.parser import GivenUp
from longctx.core.sources.rules import Rules

MEMORY = 250_000_000  # bytes: what the whole program takes for a small file is a tenth
SECONDS = 3
TAKES_ALL = {
    "a form that draws itself": paged(b"/F Do", form=b"/F Do /F Do"),
    "texts that are clipped by all before": paged(b"/F1 1 Tf 7 Tr " + b"BT(a)Tj ET " * 12_000),
    "paths that are clipped by all before": paged(b"0 0 m 1 1 l W f " * 8750),
}


@pytest.mark.parametrize("name", TAKES_ALL)
def test_a_pdf_that_takes_all_memory_is_refused_alone(tmp_path, name):
    assert len(TAKES_ALL[name]) < 145_000
    put(tmp_path, {"a.pdf": TAKES_ALL[name], "b.pdf": pdf("The keeper"), "c.txt": b"plain\n"})
    first, second, third = open_sources([str(tmp_path)], Rules(memory=MEMORY))
    with pytest.raises(GivenUp, match=r"over 250\.0 MB of memory\..*--max-parser-memory"):
        read(first)
    assert (read(second)[0], read(third)[0]) == ("The keeper\n\n", "plain\n")


def slow(signs: int) -> bytes:
    """A mailbox whose header Python reads in the square of its length."""
    return b"From x\nContent-Type: text/plain" + b';"' * signs + b"\n\nhello\n"


def test_what_takes_too_long_is_refused_and_what_is_like_it_but_short_is_read(opened):
    assert read(opened("a.mbox", slow(100), seconds=SECONDS))[0] == "\nhello\n\n"
    with pytest.raises(GivenUp, match=r"took over 3 seconds\..*--max-parser-time"):
        read(opened("b.mbox", slow(500_000), seconds=SECONDS))


def test_what_takes_much_memory_is_read_where_that_is_allowed(opened):
    text = "keeper " * 6_000_000
    data = json.dumps({"cells": [{"source": text}]}).encode()
    assert len(read(opened("a.ipynb", data, memory=1_000_000_000))[0]) == len(text) + 1
    with pytest.raises(GivenUp, match=r"over 100\.0 MB of memory"):
        read(opened("b.ipynb", data, memory=100_000_000))


def test_after_three_members_that_take_too_much_no_other_is_tried(opened_all):
    bad = dict.fromkeys(("1.mbox", "2.mbox", "3.mbox"), slow(500_000))
    sources = opened_all("x.zip", zipped({"a.txt": b"a\n", **bad, "z.txt": b"z\n"}), seconds=1)
    assert read(sources[0])[0] == "a\n"
    for source in sources[1:4]:
        with pytest.raises(GivenUp, match="over 1 seconds"):
            read(source)
    with pytest.raises(GivenUp, match=r"3 members of 'x\.zip' took too much.*no other is tried"):
        read(sources[4])


# --- mail ---

NAMELESS = b"Content-Disposition: attachment; filename*=x'\n\nab\n"
ODD = {
    "a name in no encoding": b"Content-Disposition: attachment; filename*=idna''%ff\n\nab\n",
    "a name that is malformed": NAMELESS,
    "a name in two ways": NAMELESS.replace(b"filename*=x'", b"filename*=a; filename*0=b"),
    "a name in an encoding of zeros": NAMELESS.replace(b"x'", b"a\0b''x"),
    "a name in several parts": NAMELESS.replace(b"filename*=", b"filename*0*=x'y; filename*1="),
    "names of hosts": b"Content-Type: text/plain; charset=idna\n\nab\xff\n",
    "no encoding of texts": b"Content-Type: text/plain; charset=hex\n\nab\n",
    "an encoding in several parts": b"Content-Type: text/plain; charset*0*=x'%ff\n\nab\n",
}


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_mail_does_not_keep_its_mailbox_from_being_read(opened, kind):
    odd = b"From x\nSubject: Odd\n" + ODD[kind] + b"\n"
    marks = read(opened("a.mbox", mail("One", "first") + odd + mail("Two", "last")))[1]
    assert [number for _, number in marks] == [1, 2, 3]
    assert "first" in marks[0][0]
    assert "Subject: Odd" in marks[1][0]
    assert "last" in marks[2][0]


# --- pages, records and books ---


def test_the_number_of_a_character_may_have_any_digits(opened):
    long, zeros = b"&#" + b"9" * 4301 + b";", b"&#" + b"0" * 5000 + b"65;"
    page = b"<p title='" + long + b"'>a " + long + b" b " + zeros + b" &#0000000066; &#66</p>"
    assert read(opened("a.html", page))[0] == "a \ufffd b A B B\n"


def test_a_record_whose_keys_stand_before_each_value_is_refused_while_it_is_made(here, opened):
    record = json.dumps({"k" * 100_000: [[]] * 33_000}).encode()
    source = opened("a.jsonl", record)
    tracemalloc.start()
    try:
        with pytest.raises(limits.TooMuch, match="over 500 times"):
            read(source)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * limits.RATIO * len(record)


def spine(times: int, chapter: bytes) -> bytes:
    """A book that lists a chapter many times."""
    items = '<item id="c" href="c.xhtml"/>' + '<itemref idref="c"/>' * times
    root = b'<container><rootfile full-path="b.opf"/></container>'
    files = {"META-INF/container.xml": root, "b.opf": f"<package>{items}</package>".encode()}
    return zipped({**files, "c.xhtml": chapter})


def test_a_chapter_counts_as_often_as_it_is_listed(opened):
    assert read(opened("a.epub", spine(3, b"<p>a")))[0] == "a\n\n" * 3
    big = b"<!--" + b" " * (1 << 20) + b"--><p>a"
    with pytest.raises(limits.TooMuch, match="over 500 times"):
        list(opened("b.epub", spine(20_000, big)).blocks())


def test_messages_on_what_is_lost_are_counted(here, opened, monkeypatch):
    monkeypatch.setattr("longctx.core.sources.made.LOST", 3)
    source = opened("a.pdf", pdf("The keeper", *[None] * 9))
    read(source)
    assert len(source.lost) == 4
    assert "over 3 places are lost" in source.lost[3]


# --- headers and names of archives ---


def pax(data: bytes) -> bytes:
    """A tar with a file behind an extended header."""
    head = tarfile.TarInfo("x")
    head.type, head.size = tarfile.XHDTYPE, len(data)
    start = head.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)
    return start + tarred({"a.txt": b"a\n"})


def record(text: bytes) -> bytes:
    """A record of an extended header, with its length before it."""
    size = next(n for n in range(len(text), len(text) + 9) if len(b"%d %s" % (n, text)) == n)
    return b"%d %s" % (size, text)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (b"9" * 1_000_000, "longer than 65,536 bytes"),
        (b"9" * 60_000, "malformed"),
        (record(b"comment=" + b"9" * 60_000 + b"\n"), "over 4,096 digits"),
        (b"2 " * 30_000 + b"k=\n", "malformed"),
        (record(b"comment=" + b"x" * 70_000 + b"\n"), "longer than 65,536 bytes"),
    ],
)
def test_extended_headers_of_tars_that_take_for_ever_are_refused(opened_all, header, why):
    (source,) = opened_all("x.tar", pax(header))
    assert why in source.refused.why


def test_extended_headers_of_tars_are_read(opened_all):
    more = record(b"comment=" + b"9" * 4000 + b"\n") + record(b"path=new name\n")
    (source,) = opened_all("x.tar", pax(more))
    assert (source.name, read(source)[0]) == ("x.tar/new name", "a\n")


def gnu(name: str) -> bytes:
    """A tar of the GNU kind with one file behind its long name, and another one."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for each in (name, "b.txt"):
            info = tarfile.TarInfo(each)
            info.size = 2
            archive.addfile(info, io.BytesIO(b"a\n"))
    return out.getvalue()


def test_a_name_of_ten_megabytes_is_not_read_as_text(opened_all):
    for size, refused in [(4096, 0), (4097, 1), (10_000_000, 1)]:
        sources = opened_all("x.tar", gnu("n" * size))
        assert [bool(source.refused) for source in sources] == [bool(refused), False]
        assert all(len(text) < 4200 for s in sources for text in (s.name, s.part, s.header))
    assert "and over 4,096 are not read" in sources[0].refused.why
    assert read(sources[1])[0] == "a\n"


def test_the_names_of_all_members_are_bounded_together(here, opened_all, monkeypatch):
    monkeypatch.setattr("longctx.core.sources.limits.NAMES", 10)
    files = {"abcde": b"a\n", "fghij": b"a\n"}
    assert len(opened_all("x.zip", zipped(files))) == 2
    (source,) = opened_all("x.zip", zipped({**files, "k": b"a\n"}))
    assert isinstance(source.refused, UnreadableInput)
    assert "over 10 characters" in source.refused.why


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_tar_that_claims_more_than_there_is_ends(opened, ending):
    header = TarInfo("a.txt")
    header.size = 1 << 60
    data = header.tobuf(GNU_FORMAT)
    packed = gzip.compress(data) if ending else data
    with pytest.raises(UnreadableInput) as told:
        read(opened(f"claims.tar{ending}", packed))
    assert not isinstance(told.value, GivenUp)  # after hours, which only a limit would end
