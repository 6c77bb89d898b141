"""Folders and patterns: what is found, in which order, and what is left out and why."""

import os
import socket
from pathlib import Path

import pytest
from sample_files import put, read, zipped

from longctx.core.common.errors import UnreadableInput, UsageError
from longctx.core.sources.detect import NotText
from longctx.core.sources.find import open_sources
from longctx.core.sources.rules import Rules

TEXT = b"text\n"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Writes files under `top` and finds what is in there."""
    monkeypatch.chdir(tmp_path)

    def run(files: dict[str, bytes], *paths: str, **rules) -> list[str]:
        put(tmp_path / "top", files)
        return [source.name for source in open_sources(paths or ("top",), Rules(**rules))]

    return run


def all_text(*names: str) -> dict[str, bytes]:
    return dict.fromkeys(names, TEXT)


def test_files_come_in_the_order_of_the_bytes_of_their_paths(tree):
    names = ["a/b/c.md", "a.txt", "a/b.py", "Z", "ab", "a-b", "é", "a/é/x"]
    found = tree(all_text(*names))
    assert found == [f"top/{name}" for name in sorted(names, key=os.fsencode)]
    assert found.index("top/a.txt") < found.index("top/a/b.py")


@pytest.mark.parametrize(
    ("path", "first"), [("top", "top/a"), ("top/", "top/a"), ("./top", "top/a"), (".", "top/a")]
)
def test_names_are_as_the_folder_was_named(tree, path, first):
    assert tree(all_text("a"), path) == [first]


def test_each_file_begins_with_its_path_for_the_model(tree, tmp_path):
    put(tmp_path / "top", {"a\nb.txt": TEXT})
    (source,) = open_sources(["top"])
    assert source.header == "\n==> top/a b.txt <==\n"
    assert read(source)[0] == "text\n"
    (named,) = open_sources(["top/a\nb.txt"])
    assert named.header == ""


def test_several_sources_in_the_order_in_which_they_were_named(tree):
    files = all_text("b/1", "b/2", "a")
    assert tree(files, "top/b", "top/a") == ["top/b/1", "top/b/2", "top/a"]


def test_hidden_files(tree):
    files = all_text(".env", ".github/x.yml", ".git/config", "sub/.hg/x", "a/.b", "c")
    assert tree(files) == ["top/c"]
    assert tree(files, hidden=True) == ["top/.env", "top/.github/x.yml", "top/a/.b", "top/c"]
    assert tree(files, "top/.env") == ["top/.env"]


# --- .gitignore ---


def test_gitignore(tree):
    files = {".gitignore": b"*.log\n!keep.log\n/build/\nout\n# no\n\n[bad\n", ".git/HEAD": b""}
    files |= all_text("a.log", "keep.log", "sub/b.log", "build/x", "sub/build/y", "sub/out/z", "c")
    assert tree(files) == ["top/c", "top/keep.log", "top/sub/build/y"]
    assert len(tree(files, no := "top", ignored=True)) == 7, no


def test_nested_gitignores_the_deepest_decides(tree):
    files = {
        ".gitignore": b"*.txt\nsecret/\n/a/only-here\n",
        "a/.gitignore": b"!*.txt\nb.txt\n/c\n",
        "a/d/.gitignore": b"!b.txt\n",
        "secret/.gitignore": b"!*\n",
    }
    files |= all_text("x.txt", "a/a.txt", "a/b.txt", "a/c", "a/d/b.txt", "a/d/c", "secret/s")
    files |= all_text("a/only-here", "a/d/only-here")
    assert tree(files) == ["top/a/a.txt", "top/a/d/b.txt", "top/a/d/c", "top/a/d/only-here"]


def test_what_is_in_an_ignored_folder_cannot_come_back(tree):
    files = {".gitignore": b"gone\n!gone/kept\nhalf/*\n!half/kept\nin/**\n!in/kept\n"}
    files |= all_text("gone/kept", "half/kept", "half/not", "in/kept", "in/a/b")
    assert tree(files) == ["top/half/kept", "top/in/kept"]


def test_the_repository_above_is_asked_too(tree):
    files = {".git/info/exclude": b"*.tmp\n", ".gitignore": b"*.log\n/sub/x\n/x\n"}
    files |= {"sub/.gitignore": b"!b.log\n"}
    files |= all_text(
        "sub/a.log", "sub/b.log", "sub/x", "sub/deep/x", "sub/a.tmp", "sub/deep/b.log"
    )
    assert tree(files, "top/sub") == ["top/sub/b.log", "top/sub/deep/b.log", "top/sub/deep/x"]
    assert tree(files, "top/sub/deep") == ["top/sub/deep/b.log", "top/sub/deep/x"]


def test_gitignores_of_no_repository_hold_in_and_not_above_the_folder(tree):
    files = {".gitignore": b"*.log\n", "sub/.gitignore": b"*.tmp\n"}
    files |= all_text("sub/a.log", "sub/a.tmp", "sub/b")
    assert tree(files, "top/sub") == ["top/sub/a.log", "top/sub/b"]
    assert tree(files) == ["top/sub/b"]


# --- patterns ---


def test_patterns_are_expanded_here_too(tree):
    files = all_text("a.md", "b.md", "sub/c.md", "sub/d.txt", "[x].md", ".h.md")
    assert tree(files, "top/*.md") == ["top/[x].md", "top/a.md", "top/b.md"]
    found = tree(files, "top/**/*.md")
    assert found == ["top/[x].md", "top/a.md", "top/b.md", "top/sub/c.md"]
    assert tree(files, "top/**") == [*found, "top/sub/d.txt"]
    assert tree(files, "top/s*") == ["top/sub/c.md", "top/sub/d.txt"]
    assert tree(files, "top/[x].md") == ["top/[x].md"]  # there is a file of this very name


def test_a_pattern_that_nothing_fits(tree):
    with pytest.raises(UsageError, match="no file fits the pattern"):
        tree(all_text("a"), "top/*.md")


# --- what is not read ---


def refused(tmp_path) -> dict[str, UnreadableInput]:
    return {s.name: s.refused for s in open_sources([str(tmp_path)]) if s.refused}


def test_links_are_not_followed_and_loops_end(tree, tmp_path):
    top = put(tmp_path / "top", all_text("sub/a"))
    put(tmp_path, all_text("outside"))
    os.symlink("..", top / "sub" / "loop")
    os.symlink("sub", top / "again")
    os.symlink(tmp_path / "outside", top / "out")
    os.symlink("nowhere", top / "broken")
    assert tree({})[-2:] == ["top/sub/a", "top/sub/loop"]
    why = refused(top)
    assert [name.rpartition("/")[2] for name in why] == ["again", "broken", "out", "loop"]
    assert all(isinstance(error, NotText) and "link" in error.why for error in why.values())
    assert tree({}, "top/again") == ["top/again/a", "top/again/loop"]  # named itself


def test_special_files_are_not_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as plug:
        plug.bind("plug")
        why = refused(tmp_path)
    assert {error.why for error in why.values()} == {"it is a pipe, a socket or a device"}
    assert len(why) == 2


def test_a_gitignore_that_is_a_pipe_or_a_link_is_not_opened(tree, tmp_path):
    top = put(tmp_path / "top", all_text("a", "sub/b"))
    os.mkfifo(top / ".gitignore")
    os.symlink("/dev/zero", top / "sub" / ".gitignore")
    assert tree({}) == ["top/a", "top/sub/b"]


def test_devices_are_refused():
    with pytest.raises(UsageError, match="it is a device"):
        open_sources(["/dev/zero"])


def test_a_folder_that_cannot_be_looked_into(tree, tmp_path, monkeypatch):
    top, scan = put(tmp_path / "top", all_text("a", "sub/b", "z")), os.scandir

    def denied(path):
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", denied)
    (error,) = refused(top).values()
    assert not isinstance(error, NotText)
    assert (error.what, error.why) == (f"cannot read '{top}/sub'", "Permission denied")
    assert tree({}) == ["top/a", "top/sub", "top/z"]


@pytest.mark.parametrize("files", [{}, {".hidden": TEXT}])
def test_a_folder_without_files(tree, tmp_path, files):
    (tmp_path / "top").mkdir()
    with pytest.raises(UnreadableInput, match=r"nothing to read in 'top'.*--hidden"):
        tree(files)


def test_archives_in_folders_are_looked_into(tree):
    files = {"a.zip": zipped({"x/y.txt": TEXT}), "b.txt": TEXT}
    assert tree(files) == ["top/a.zip/x/y.txt", "top/b.txt"]


# --- what is told of them ---

NO_TEXT = {"empty": b"", "binary": b"\0\1\2\3", "empty.html": b"", "binary.html": b"\0\1\2\3"}


def told(*paths: str) -> dict[str, str]:
    """What reading each source is refused with."""
    found = {}
    for source in open_sources(paths):
        with pytest.raises(UnreadableInput) as error:
            read(source)
        found[source.name] = str(error.value)
    return found


@pytest.mark.parametrize("path", ["top", "top/*", "top/a.zip"])
def test_nobody_is_told_to_leave_out_what_was_found(tree, path):
    tree({**NO_TEXT, "a.zip": zipped(NO_TEXT)})
    messages = told(path)
    assert len(messages) == (4 if path.endswith("zip") else 8)
    assert all("it is empty" in text or "it is binary" in text for text in messages.values())
    assert [text for text in messages.values() if "eave it out" in text] == []


def test_what_was_named_may_be_left_out(tree):
    tree(NO_TEXT)
    assert told("top/empty")["top/empty"].endswith("it is empty. Leave it out.")
    assert told("top/binary")["top/binary"].endswith("Convert it to text, or leave it out.")


def test_a_file_that_cannot_be_opened(tree, monkeypatch):
    def denied(*_):
        raise PermissionError(13, "Permission denied")

    tree(all_text("a"))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", denied)
        patch.setattr("longctx.core.sources.reader.open_regular", denied)
        assert told("top")["top/a"].endswith("Check the file and its permissions.")
        assert told("top/a")["top/a"].endswith("permissions, or leave it out.")
