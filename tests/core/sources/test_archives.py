"""Archives and compressed files: what is in them, how it is cited, and what is refused."""

import bz2
import gzip
import io
import lzma
import os
import tarfile
import warnings
import zipfile

import pytest
import zstandard
from sample_files import epub, pdf, read, tarred, zipped

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources import limits
from longctx.core.sources.detect import NotText
from longctx.core.sources.find import open_sources
from longctx.core.sources.rules import Rules

TEXT = b"one\ntwo\n"
PACK = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.compress}


def names(sources) -> list[str]:
    return [source.name for source in sources if not source.refused]


def why(sources) -> dict[str, str]:
    return {source.name: source.refused.why for source in sources if source.refused}


@pytest.mark.parametrize("how", PACK)
def test_compressed_files_are_read_as_what_they_hold(opened_all, how):
    (source,) = opened_all(f"a.log.{how}", PACK[how](TEXT * 1000))
    assert (source.name, source.found, source.header) == (f"a.log.{how}", False, "")
    assert read(source) == ((TEXT * 1000).decode(), [])
    assert source.made.origin()[0] == os.path.getsize(f"a.log.{how}")
    assert source.lost == []


@pytest.mark.parametrize("how", ["gz", "zst"])
def test_compressed_files_in_several_pieces_are_read_to_their_end(opened_all, how):
    (source,) = opened_all(f"a.{how}", PACK[how](b"one\n") + PACK[how](b"two\n"))
    assert read(source)[0] == "one\ntwo\n"


@pytest.mark.parametrize("how", PACK)
def test_a_cut_file_is_read_as_far_as_it_goes(opened_all, how):
    text = b"".join(b"line %d\n" % (n * 7919) for n in range(200_000))
    (source,) = opened_all(f"a.{how}", PACK[how](text)[:-2000])
    got = read(source)[0].encode()
    assert text.startswith(got)
    assert len(got) > len(text) - (2 << 20)
    assert len(source.lost) == 1
    assert f"what follows {len(got):,} bytes is lost" in source.lost[0]


@pytest.mark.parametrize("how", PACK)
def test_what_is_not_compressed_at_all_is_unreadable(opened_all, how):
    (source,) = opened_all(f"a.{how}", b"some text")
    with pytest.raises(UnreadableInput, match="damaged, or not what its name says"):
        read(source)


def test_a_format_in_a_compressed_file(opened_all):
    (source,) = opened_all("a.html.gz", gzip.compress(b"<p>one</p>\n<p>two</p>"))
    text, marks = read(source)
    assert text == "one\n\ntwo\n"
    assert marks[-1] == ("two\n", 2)


ENDINGS = [("tar", "w"), ("tar.gz", "w:gz"), ("tgz", "w:gz"), ("tar.bz2", "w:bz2")]
ENDINGS += [("tar.xz", "w:xz")]


@pytest.mark.parametrize(("ending", "mode"), [*ENDINGS, ("zip", ""), ("tar.zst", "")])
def test_members_are_sources_in_the_order_of_the_archive(opened_all, ending, mode):
    files = {"dir/b.txt": TEXT, "a.pdf": pdf("The keeper"), "c.txt.gz": gzip.compress(b"three\n")}
    data = zipped(files) if ending == "zip" else tarred(files, mode or "w")
    sources = opened_all(f"x.{ending}", zstandard.compress(data) if ending == "tar.zst" else data)
    assert names(sources) == [f"x.{ending}/{name}" for name in files]
    assert sources[0].header == f"\n==> x.{ending}/dir/b.txt <==\n"
    for _ in range(2):  # a tar goes forward only, and is opened anew
        assert [read(source)[0] for source in sources] == [
            *("one\ntwo\n", "The keeper\n\n", "three\n")
        ]
    assert read(sources[1])[1] == [("The keeper\n\n", 1)]
    assert [source.part for source in sources] == list(files)
    assert {source.path.name for source in sources} == {f"x.{ending}"}


def test_archives_in_archives(opened_all):
    inner = tarred({"b.txt": TEXT, "c/d.txt": b"three\n"}, "w:gz")
    files = {"first.txt": b"first\n", "in/inner.tgz": inner, "last.txt": b"last\n"}
    for name, data in {"x.zip": zipped(files), "x.tar.gz": tarred(files, "w:gz")}.items():
        sources = opened_all(name, data)
        inside = [f"{name}/in/inner.tgz/b.txt", f"{name}/in/inner.tgz/c/d.txt"]
        assert names(sources) == [f"{name}/first.txt", *inside, f"{name}/last.txt"]
        texts = [read(source)[0] for source in sources]
        assert texts == ["first\n", "one\ntwo\n", "three\n", "last\n"]


def test_hidden_members_are_left_out(opened_all):
    files = {".env": TEXT, ".git/x": TEXT, "__MACOSX/._a": TEXT, "a": TEXT}
    assert names(opened_all("x.zip", zipped(files))) == ["x.zip/a"]
    shown = names(opened_all("x.zip", zipped(files), hidden=True))
    assert shown == ["x.zip/.env", "x.zip/__MACOSX/._a", "x.zip/a"]


UNSAFE = ["../a", "a/../../b", "/etc/passwd", "\\\\host\\a", "..\\a", "C:/a", "c:a"]


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("make", [zipped, tarred])
def test_paths_that_leave_the_archive_are_refused(opened_all, name, make):
    sources = opened_all("x.zip" if make is zipped else "x.tar", make({name: TEXT, "a.txt": TEXT}))
    assert names(sources)[0].endswith("/a.txt")
    assert set(why(sources).values()) == {"its path leads out of the archive"}
    assert not any(isinstance(source.refused, NotText) for source in sources)


def test_links_and_devices_in_archives_are_not_read(opened_all):
    infos = {}
    for name, kind in [("l", tarfile.SYMTYPE), ("h", tarfile.LNKTYPE), ("p", tarfile.FIFOTYPE)]:
        infos[name] = tarfile.TarInfo(name)
        infos[name].type, infos[name].linkname = kind, "/etc/passwd"
    sources = opened_all("x.tar", tarred({**infos, "a": TEXT}))
    assert names(sources) == ["x.tar/a"]
    assert why(sources) == {
        "x.tar/l": "it is a link",
        "x.tar/h": "it is a link",
        "x.tar/p": "it is a special file",
    }
    link = zipfile.ZipInfo("l")
    link.external_attr = 0o120777 << 16
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(link, "/etc/passwd")
    assert why(opened_all("x.zip", out.getvalue())) == {"x.zip/l": "it is a link"}


def test_encrypted_members_are_refused(opened_all):
    data = bytearray(zipped({"a.txt": TEXT, "b.txt": TEXT}))
    at = data.index(b"PK\1\2")
    data[at + 8] |= 1
    sources = opened_all("x.zip", bytes(data))
    assert why(sources) == {"x.zip/a.txt": "it is encrypted"}
    assert names(sources) == ["x.zip/b.txt"]


@pytest.mark.parametrize("name", ["x.zip", "x.tar", "x.tar.gz"])
def test_damaged_archives_are_refused_as_a_whole(opened_all, name):
    (source,) = opened_all(name, b"no archive at all, nor anything like one" * 40)
    with pytest.raises(UnreadableInput, match="damaged"):
        read(source)


def test_a_damaged_member_does_not_keep_the_others_from_being_read(opened_all):
    data = zipped({"a.txt": TEXT * 9, "b.txt": b"three\n"}, zipfile.ZIP_STORED)
    first, second = opened_all("x.zip", data.replace(TEXT * 9, TEXT * 8 + b"ONE\ntwo\n"))
    with pytest.raises(UnreadableInput, match="CRC"):
        read(first)
    assert read(second)[0] == "three\n"


def test_a_damaged_archive_in_an_archive_is_refused_alone(opened_all):
    sources = opened_all("x.zip", zipped({"a.zip": b"PK", "b.txt": TEXT}))
    assert list(why(sources)) == ["x.zip/a.zip"]
    assert names(sources) == ["x.zip/b.txt"]


def test_empty_archives_have_no_text(opened_all):
    (source,) = opened_all("x.zip", zipped({}))
    assert isinstance(source.refused, NotText)


# --- limits ---

ZEROS = b"0" * (20 << 20)


@pytest.mark.parametrize("how", PACK)
def test_a_bomb_is_refused_before_a_byte_of_it_is_read(opened_all, how):
    (source,) = opened_all(f"a.{how}", PACK[how](ZEROS))
    seen = []
    with pytest.raises(UnreadableInput, match=r"over 500 times its size.*--max-unpacked"):
        list(source.blocks(seen.append))
    assert not seen


@pytest.mark.parametrize("make", [zipped, lambda files: tarred(files, "w:gz")])
def test_bombs_in_archives_are_refused_as_a_whole(opened_all, make):
    name = "x.zip" if make is zipped else "x.tgz"
    for files in ({"a": ZEROS}, {"a.txt": TEXT, "b.zip": zipped({"c": ZEROS})}):
        (source,) = opened_all(name, make(files))
        assert isinstance(source.refused, limits.TooMuch)
        assert "over 500 times" in source.refused.why


def test_the_limit_can_be_raised_and_lowered(opened_all):
    (source,) = opened_all("a.gz", gzip.compress(ZEROS), max_unpacked=len(ZEROS))
    assert sum(len(block.text) for block in source.blocks()) == len(ZEROS)
    (source,) = opened_all("a.gz", gzip.compress(TEXT), max_unpacked=7)
    with pytest.raises(UnreadableInput, match="it holds over 7 bytes"):
        read(source)
    (source,) = opened_all("a.zip", zipped({"a": TEXT, "b": TEXT}), max_unpacked=15)
    assert "it holds over 15 bytes" in source.refused.why
    assert len(opened_all("a.zip", zipped({"a": TEXT, "b": TEXT}), max_unpacked=16)) == 2


def test_books_count_too(opened_all):
    (source,) = opened_all("a.epub", epub("<p>" + "a" * (20 << 20)))
    with pytest.raises(UnreadableInput, match="over 500 times"):
        read(source)


@pytest.mark.usefixtures("here")
def test_the_number_of_members_is_limited(opened_all, monkeypatch):
    monkeypatch.setattr(limits, "MEMBERS", 3)
    inner = zipped({"b": TEXT, "c": TEXT})
    assert len(opened_all("x.zip", zipped({"a.zip": inner}))) == 2
    (source,) = opened_all("x.zip", zipped({"a.zip": inner, "d": TEXT}))
    assert "over 3 members" in source.refused.why


def test_the_depth_is_limited(opened_all):
    data, name = TEXT, "a.txt"
    for _ in range(limits.DEPTH):
        data, name = zipped({name: data}), f"{name[:-4]}.zip"
    assert len(opened_all("x.zip", data)) == 1
    (source,) = opened_all("x.zip", zipped({"y.zip": data}))
    assert not source.refused.why.startswith("it")
    assert "in one another" in source.refused.why
    (source,) = opened_all("x" + ".gz" * 5, data)
    assert "in one another" in source.refused.why


@pytest.mark.usefixtures("here")
def test_large_inner_archives_are_unpacked_to_the_disk(opened_all, monkeypatch):
    monkeypatch.setattr("longctx.core.sources.made.IN_MEMORY", 10)
    sources = opened_all("x.tgz", tarred({"a.zip": zipped({"b": TEXT})}, "w:gz"))
    assert read(sources[0])[0] == "one\ntwo\n"


def test_members_of_the_same_name_count_one_by_one(tmp_path):
    path = tmp_path / "same.zip"
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # zipfile's own, of the name
        for _ in range(4):
            archive.writestr("a.txt", TEXT)
    (source,) = open_sources([str(path)], Rules(max_unpacked=3 * len(TEXT)))
    assert f"it holds over {3 * len(TEXT)} bytes" in source.refused.why
    assert len(open_sources([str(path)], Rules(max_unpacked=4 * len(TEXT)))) == 4
