"""Files that will not stay, as those sent to a server: called as they were there."""

import json
import zipfile

import pytest
from small_documents import files_of

from longctx.core.common.errors import UnreadableInput, UsageError
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.identity import CannotGoOn
from longctx.core.ingest.ingest import read
from longctx.core.ingest.job import Job, Observer
from longctx.core.store.library import Library
from longctx.core.store.naming import folder_of

pytestmark = pytest.mark.usefixtures("models_loaded_once")
TEXT = "".join(f"line {i}: the keeper wrote that boat {i * 7919 % 1000} is in\n" for i in range(40))


@pytest.fixture
def sent(tmp_path):
    """Puts bytes where an upload lies, and makes the job that reads them."""
    (tmp_path / "held").mkdir()

    def job(setup, called: str, data: bytes, **more) -> Job:
        path = tmp_path / "held" / "upload"
        path.write_bytes(data)
        library = tmp_path / "library"
        return Job(library, [str(path)], setup, passing={str(path): called}, **more)

    return job


def test_it_is_called_after_what_was_sent(sent, tmp_path, setup_random):
    done = read(sent(setup_random, "my letters.txt", TEXT.encode()))
    assert done.name == "my letters"
    document = Library.open(tmp_path / "library").document("my letters")
    assert [source.name for source in document.manifest.sources] == ["my letters.txt"]
    folder = tmp_path / "library" / "documents" / folder_of("my letters")
    manifest = (folder / "manifest.json").read_bytes()
    assert b"upload" not in manifest
    (source,) = json.loads(manifest)["sources"]
    assert (source["path"], source["mtime_ns"]) == (None, None)


def test_the_state_is_that_of_the_file_itself(sent, tmp_path, setup_random):
    read(sent(setup_random, "book.txt", TEXT.encode()))
    (tmp_path / "book.txt").write_text(TEXT)
    read(Job(tmp_path / "library", [str(tmp_path / "book.txt")], setup_random, "own"))
    folders = [tmp_path / "library" / "documents" / name for name in ("book", "own")]
    ours, own = ({k: v for k, v in files_of(f).items() if k != "manifest.json"} for f in folders)
    assert ours == own != {}


def test_its_ending_says_what_it_is(sent, tmp_path, setup_random):
    page = b"<html><body><p>The keeper wrote it down.</p><script>x</script></body></html>"
    read(sent(setup_random, "page.html", page))
    document = Library.open(tmp_path / "library").document("page")
    assert document.text(0, 0, document.manifest.sources[0].size).strip() == (
        b"The keeper wrote it down."
    )


def test_members_of_an_archive_are_called_after_it(sent, tmp_path, setup_random):
    with zipfile.ZipFile(tmp_path / "made.zip", "w") as archive:
        archive.writestr("a/one.txt", "The keeper wrote one.")
        archive.writestr("two.txt", "The keeper wrote two.")
    done = read(sent(setup_random, "both.zip", (tmp_path / "made.zip").read_bytes()))
    document = Library.open(tmp_path / "library").document(done.name)
    names = [(source.name, source.path) for source in document.manifest.sources]
    assert names == [("both.zip/a/one.txt", None), ("both.zip/two.txt", None)]


def test_errors_name_what_was_sent(sent, setup_random, monkeypatch):
    with pytest.raises(UnreadableInput) as told:
        read(sent(setup_random, "picture.txt", bytes(range(256)) * 20))
    assert "picture.txt" in str(told.value)
    assert "upload" not in str(told.value)
    monkeypatch.setattr("longctx.core.sources.extra.is_missing", lambda library: True)
    with pytest.raises(UsageError, match=r"cannot read 'a\.pdf'.*needs pypdfium2"):
        read(sent(setup_random, "a.pdf", b"%PDF-1.7"))


def test_a_stopped_reading_goes_on_with_the_same_bytes_only(sent, tmp_path, setup_random):
    def stop(state):
        if state.kept:
            raise KeyboardInterrupt

    cadence = Cadence.given(64, None)
    with pytest.raises(KeyboardInterrupt):
        read(sent(setup_random, "book.txt", TEXT.encode(), cadence=cadence), Observer(stop))
    with pytest.raises(CannotGoOn):
        read(sent(setup_random, "book.txt", TEXT.upper().encode()))
    done = read(sent(setup_random, "book.txt", TEXT.encode()))
    assert done.status == "complete"
    assert done.reused_tokens > 0
