"""What a client may have read: paths, links, patterns, and what is none of them."""

import os

import pytest

from longctx.cli.mcp.allowed import Allowed
from longctx.core.common.errors import UsageError


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A working folder with an allowed one in it, and a secret beside it."""
    work = tmp_path / "work"
    for path in ("docs/a.txt", "docs/deep/b.md", "docs/deep/c.md", "private.txt"):
        file = work / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.md").write_text("secret")
    monkeypatch.chdir(work)
    return tmp_path


def test_nothing_is_allowed_by_default(folders):
    with pytest.raises(UsageError, match="no folder was allowed"):
        Allowed().paths(["docs/a.txt"])


def test_a_folder_that_is_none_is_refused_at_the_start(folders):
    for name, why in (("nowhere", "no such folder"), ("private.txt", "it is not a folder")):
        with pytest.raises(UsageError, match=why):
            Allowed([folders / "work" / name])


def test_what_is_inside_is_named_as_it_is_cited(folders):
    allowed = Allowed([folders / "work" / "docs"])
    assert allowed.paths(["docs/a.txt"]) == ["docs/a.txt"]
    assert allowed.paths([str(folders / "work" / "docs" / "a.txt")]) == ["docs/a.txt"]
    assert allowed.paths(["docs"]) == ["docs"]
    assert allowed.paths(["deep/b.md"]) == ["docs/deep/b.md"]  # looked for in allowed folders too
    assert allowed.paths(["docs/**/*.md"]) == ["docs/deep/b.md", "docs/deep/c.md"]
    assert allowed.paths(["docs/**"]) == ["docs/a.txt", "docs/deep/b.md", "docs/deep/c.md"]
    assert allowed.paths(["docs/d*"]) == ["docs/deep"]
    os.chdir(folders)
    beyond = Allowed([folders / "secret"])
    os.chdir(folders / "work")
    assert beyond.paths(["key.md"]) == [str(folders / "secret" / "key.md")]


@pytest.mark.parametrize(
    "path",
    [
        *("private.txt", "../secret/key.md", "docs/../private.txt", "/etc/passwd", ".", "/"),
        *("docs/link.md", "docs/linked/key.md", "docs/../../secret/*.md", "docs/linked"),
        *("/nowhere/at/all", "../docs2/x"),
    ],
)
def test_what_is_outside_is_refused_whether_it_exists_or_not(folders, path):
    docs = folders / "work" / "docs"
    (docs / "link.md").symlink_to(folders / "secret" / "key.md")
    (docs / "linked").symlink_to(folders / "secret")
    (folders / "work" / "docs2").mkdir()  # whose name begins as that of the allowed one
    with pytest.raises(UsageError, match=r"it is not in '.*/docs'\. .*--allow FOLDER"):
        Allowed([docs]).paths([path])


def test_a_pattern_leaves_out_links_to_the_outside(folders):
    docs = folders / "work" / "docs"
    (docs / "link.md").symlink_to(folders / "secret" / "key.md")
    (docs / "own.md").symlink_to("a.txt")
    assert Allowed([docs]).paths(["docs/*.md"]) == ["docs/a.txt"]


def test_an_allowed_link_is_the_folder_that_it_names(folders):
    link = folders / "work" / "there"
    link.symlink_to(folders / "secret")
    assert Allowed([link]).paths(["there/key.md"]) == [str(folders / "secret" / "key.md")]


@pytest.mark.parametrize("path", ["-", "", "docs/pipe", "docs/no-such.md", "docs/gone", "a\0b"])
def test_what_cannot_be_read_is_refused(folders, path):
    docs = folders / "work" / "docs"
    os.mkfifo(docs / "pipe")
    (docs / "gone").symlink_to("nothing")
    with pytest.raises(UsageError, match="cannot read"):
        Allowed([docs]).paths([path])


def test_there_has_to_be_a_path(folders):
    with pytest.raises(UsageError, match="nothing to read"):
        Allowed([folders / "secret"]).paths([])
