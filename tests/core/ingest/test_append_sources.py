"""Folders, archives and converted files behind a document, or in one that is made longer."""

import gzip
from pathlib import Path

import pytest
from in_process import Here
from sample_files import pdf, put, zipped
from sampled import covering
from small_documents import files_of

from longctx.core.common.errors import UnreadableInput, UsageError
from longctx.core.engine.setup import Engine
from longctx.core.ingest.append import append
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.follow import follow
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job, Observer
from longctx.core.sources.rules import Rules
from longctx.core.store.library import Library

LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(20)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()
PAGES = "".join(f"<p>{line}</p>\n" for line in LINES[:6]).encode()
EVERY_CHUNK = Cadence.given(1, None)
FILES = {
    "a.txt": TEXT[:300],
    "page.html": PAGES,
    "rows.jsonl": b"".join(b'{"said": "%s"}\n' % line.encode() for line in LINES[:5]),
    "paper.pdf": pdf(*LINES[:3]),
    "packed.txt.gz": gzip.compress(TEXT[:400]),
    "b.zip": zipped({"c.pdf": pdf(*LINES[3:5]), "d.png": b"\0", "e.txt": TEXT[:200]}),
    "top/a.md": TEXT[:250],
    "top/m.png": b"\0",
    "top/n.html": PAGES,
    "top/z.log": TEXT[:350],
    "top/zz.png": b"\0",
}
pytestmark = pytest.mark.usefixtures("models_loaded_once")


class Stopped(BaseException):
    """As Ctrl-C, at a place of our choice."""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """The files, in the folder that names are relative to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    return put(tmp_path, FILES)


@pytest.fixture
def library(tmp_path) -> Path:
    return tmp_path / "library"


def state(library: Path) -> dict[str, bytes]:
    return files_of(library / "documents" / "app")


def whole(paths: list[str], setup, library: Path) -> dict[str, bytes]:
    """The files of one reading of everything."""
    ingest(library, paths, setup, "app", replace=True, units=False)
    return state(library)


def stop_at(tokens: int):
    def on_progress(progress) -> None:
        if progress.tokens >= tokens:
            raise Stopped

    return on_progress


@pytest.mark.parametrize(
    "steps",
    [
        (["a.txt"], ["top"], ["b.zip"], ["page.html", "a.txt.copy"]),
        (["top"], ["paper.pdf"], ["rows.jsonl", "a.txt"]),
        (["b.zip"], ["packed.txt.gz"], ["top"]),
        (["page.html"], ["rows.jsonl"], ["*.pdf"], ["a.txt"]),
    ],
)
def test_every_kind_behind_every_kind(folder, library, setup_random, steps):
    (folder / "a.txt.copy").write_bytes(TEXT[:90])
    given = []
    for number, paths in enumerate(steps):
        given += paths
        if number:
            append(Job(library, paths, setup_random, "app"))
        else:
            ingest(library, paths, setup_random, "app", units=False)
        assert state(library) == whole(given, setup_random, folder / f"whole-{number}"), given
    Library.open(library).document("app").verify()


@pytest.mark.parametrize(
    ("first", "size"),
    covering(["page.html", "rows.jsonl", "paper.pdf", "b.zip"], [5, 60, 300], meet=1),
)
def test_marks_carry_over_wherever_the_boundary_is(
    folder, library, setup_random, first, size, monkeypatch
):
    monkeypatch.setattr(Engine, "can_leave_out", lambda self, method, tokens: False)
    (folder / "more.txt").write_bytes(TEXT[:size])
    before = ingest(library, [first], setup_random, "app")
    boundary = Library.open(library).document("app").boundary()
    assert 0 < boundary.tokens < before.tokens
    append(Job(library, ["more.txt"], setup_random, "app"))
    assert state(library) == whole([first, "more.txt"], setup_random, folder / "whole")


def test_a_shown_file_of_a_folder_that_grows_keeps_its_header(folder, library, setup_random):
    (folder / "top/n.html").unlink()
    ingest(library, ["top"], setup_random, "app", units=False)
    for end in (351, 360, 700, 1000):
        put(folder, {"top/z.log": TEXT[:end]})
        assert append(Job(library, ["top"], setup_random, "app")).status == "complete"
        assert state(library) == whole(["top"], setup_random, folder / f"whole-{end}"), end
    assert append(Job(library, ["top"], setup_random, "app")).status == "unchanged"


def test_a_header_alone_and_a_short_file_that_grows(folder, library, setup_random):
    for end in (1, 2, 40, 300):
        put(folder, {"one/only.txt": TEXT[:end]})
        if end == 1:
            ingest(library, ["one"], setup_random, "app", units=False)
        else:
            append(
                Job(library, ["one/only.txt"], setup_random, "app")
            )  # also where it is named itself
        assert state(library) == whole(["one"], setup_random, folder / f"whole-{end}"), end


def test_a_text_that_looks_like_a_header_is_none(folder, library, setup_random):
    data = b"\n==> odd.txt <==\n" + TEXT
    for end in (30, 400):
        (folder / "odd.txt").write_bytes(data[:end])
        if end == 30:
            ingest(library, ["odd.txt"], setup_random, "app")
        else:
            append(Job(library, ["odd.txt"], setup_random, "app"))
    assert state(library) == whole(["odd.txt"], setup_random, folder / "whole")


def test_a_file_of_a_folder_that_moved_keeps_the_name_that_was_shown(folder, library, setup_random):
    ingest(library, ["top"], setup_random, "app", units=False)
    (folder / "top/z.log").unlink()
    for end in (600, 900):
        (folder / "z.log.1").write_bytes(TEXT[:end])
        append(Job(library, ["z.log.1"], setup_random, "app"))
    last = Library.open(library).document("app").manifest.sources[-1]
    assert (last.name, last.path, last.size) == ("top/z.log", str(folder / "z.log.1"), 900)


def test_what_was_left_out_is_not_looked_at_again(folder, library, setup_random):
    """Else one picture in a folder would keep it from being appended to."""
    ingest(library, ["top"], setup_random, "app", units=False)
    (folder / "top/zz.png").unlink()
    done = append(Job(library, ["a.txt"], setup_random, "app"))
    assert [why.split("'")[1] for why in done.left_out] == ["top/m.png", "top/zz.png"]
    put(folder, {"top/m.png": TEXT[:200], "top/z.log": TEXT[:350]})
    with pytest.raises(UsageError, match=r"'top/a.md' to 'app': it is in the document"):
        append(Job(library, ["top"], setup_random, "app"))


def test_what_was_left_out_and_is_text_now(folder, library, setup_random):
    ingest(library, ["top"], setup_random, "app", units=False)
    put(folder, {"top/zz.png": TEXT[:200]})
    append(Job(library, ["top"], setup_random, "app"))
    assert state(library) == whole(["top"], setup_random, folder / "whole")
    put(folder, {"top/m.png": TEXT[:200]})
    with pytest.raises(UsageError, match=r"'top/m.png', which was left out, has changed"):
        append(Job(library, ["top"], setup_random, "app"))


def test_an_append_of_converted_files_that_is_stopped_goes_on(folder, library, setup_random):
    tokens = ingest(library, ["page.html"], setup_random, "app").tokens
    for end in (40, 120, 250, 400):
        job = Job(library, ["b.zip", "top", "rows.jsonl"], setup_random, "app", cadence=EVERY_CHUNK)
        with pytest.raises(Stopped):
            append(job, Observer(stop_at(tokens + end)))
    done = append(Job(library, ["b.zip", "top", "rows.jsonl"], setup_random, "app"))
    assert done.reused_tokens >= tokens + 400
    given = ["page.html", "b.zip", "top", "rows.jsonl"]
    assert state(library) == whole(given, setup_random, folder / "whole")


def test_lost_parts_are_told_once(folder, library, setup_random, monkeypatch):
    monkeypatch.setattr("longctx.core.sources.made.MEASURED", 100)
    monkeypatch.setattr("longctx.core.sources.parser._answers", Here())
    numbers = b"".join(b"boat %d\n" % (n * 7919) for n in range(300))
    (folder / "cut.gz").write_bytes(gzip.compress(numbers)[:-100])
    assert len(ingest(library, ["cut.gz"], setup_random, "app").lost) == 1
    assert len(append(Job(library, ["a.txt"], setup_random, "app")).lost) == 1
    assert state(library) == whole(["cut.gz", "a.txt"], setup_random, folder / "whole")


def test_undecodable_places_of_what_was_made_are_counted_once(folder, library, setup_random):
    bad = "é é b".encode() + b"\xffat"  # mostly UTF-8
    (folder / "bad.jsonl").write_bytes(FILES["rows.jsonl"].replace(b"boat", bad) * 3)
    (folder / "bad.txt.gz").write_bytes(gzip.compress(TEXT.replace(b"boat", bad)))
    for name in ("bad.jsonl", "bad.txt.gz"):
        before = ingest(library, [name], setup_random, "app", replace=True).undecodable
        assert before > 5
        assert append(Job(library, ["a.txt"], setup_random, "app")).undecodable == before
        assert state(library) == whole([name, "a.txt"], setup_random, folder / f"whole-{name}")


# --- what is refused ---


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("rows.jsonl", FILES["rows.jsonl"] * 2),
        ("packed.txt.gz", gzip.compress(TEXT[:600])),
        ("b.zip", zipped({"e.txt": TEXT[:400]})),
        ("page.html", PAGES + b"<p>more"),
    ],
)
def test_a_converted_or_packed_file_cannot_grow(folder, library, setup_random, name, data):
    ingest(library, [name], setup_random, "app")
    before = state(library)
    assert append(Job(library, [name], setup_random, "app")).status == "unchanged"
    (folder / name).write_bytes(data)
    match = r"unpacked or converted from a file that has changed|has changed otherwise|in the doc"
    with pytest.raises(UsageError, match=match) as error:
        append(Job(library, [name], setup_random, "app"))
    assert "--replace" in str(error.value)
    assert state(library) == before


def test_what_was_read_raw_grows_raw(folder, library, setup_random):
    raw = Rules(raw=True)
    ingest(library, ["rows.jsonl"], setup_random, "app", rules=raw)
    (folder / "rows.jsonl").write_bytes(FILES["rows.jsonl"] * 2)
    with pytest.raises(UsageError, match=r"as the text that it is written in\. Add --raw"):
        append(Job(library, ["rows.jsonl"], setup_random, "app"))
    append(Job(library, ["rows.jsonl"], setup_random, "app", rules=raw))
    ingest(folder / "whole", ["rows.jsonl"], setup_random, "app", rules=raw)
    assert state(library) == state(folder / "whole")


def test_a_member_that_is_in_the_document_is_refused(library, setup_random):
    ingest(library, ["b.zip", "a.txt"], setup_random, "app")
    with pytest.raises(UsageError, match=r"'b.zip/c.pdf' to 'app': it is in the document"):
        append(Job(library, ["b.zip"], setup_random, "app"))


def test_an_empty_folder_is_told(folder, library, setup_random):
    ingest(library, ["a.txt"], setup_random, "app")
    (folder / "empty").mkdir()
    with pytest.raises(UnreadableInput, match="nothing to read in 'empty'"):
        append(Job(library, ["empty"], setup_random, "app"))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("top", "it is a folder"),
        ("top/*.log", "it is not a file"),
        ("b.zip", "compressed or an archive"),
        ("packed.txt.gz", "compressed or an archive"),
        ("rows.jsonl", "would be converted.*--raw"),
    ],
)
def test_what_cannot_be_followed(library, setup_random, path, why):
    with pytest.raises(UsageError, match=f"cannot follow '.*': .*{why}"):
        follow(Job(library, ["a.txt", path], setup_random, "app"))
    assert not library.exists()


def test_a_raw_file_is_followed_behind_a_folder(folder, library, setup_random):
    grown = FILES["rows.jsonl"] * 4

    def wait(seconds: float) -> None:
        if (folder / "rows.jsonl").read_bytes() == grown:
            raise KeyboardInterrupt
        (folder / "rows.jsonl").write_bytes(grown)

    job = Job(library, ["top", "rows.jsonl"], setup_random, "app", rules=Rules(raw=True))
    done = follow(job, wait=wait)
    assert done.sources == 4
    rules = {"rules": Rules(raw=True), "units": False}
    ingest(folder / "whole", ["top", "rows.jsonl"], setup_random, "app", **rules)
    assert state(library) == state(folder / "whole")
