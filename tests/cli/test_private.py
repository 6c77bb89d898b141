"""Who may read a library: its owner, all with `--shared`; `doctor --fix` mends an old one."""

import json
import os
import stat
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="rights of POSIX")


@pytest.fixture(params=[0o000, 0o022])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path, others: int = 0o077) -> set[int]:
    """What others may do with the files and folders of a library."""
    paths = [folder, *folder.rglob("*")]
    return {stat.S_IMODE(path.stat().st_mode) & others for path in paths}


@pytest.fixture
def text(tmp_path) -> Path:
    file = tmp_path / "letter.txt"
    file.write_text("the keeper wrote in his book that a boat came home\n" * 20)
    file.chmod(0o600)
    return file


def test_what_is_read_or_imported_is_its_owners_alone(
    longctx, tmp_path, text, umask, model_options
):
    assert longctx("ingest", text, "--quiet", *model_options).exit_code == 0
    assert modes(tmp_path / "library") == {0}
    longctx("export", "letter", tmp_path / "letter.longctx")
    other = tmp_path / "other"
    assert longctx("import", tmp_path / "letter.longctx", "--library", other).exit_code == 0
    assert modes(other) == {0}


def test_shared_lets_others_read_as_far_as_the_umask_does(
    longctx, tmp_path, text, umask, model_options
):
    assert longctx("ingest", text, "--shared", *model_options).exit_code == 0
    assert modes(tmp_path / "library", 0o044) == {0o044}
    assert bool(modes(tmp_path / "library", 0o022) - {0}) == (umask == 0)
    longctx("export", "letter", tmp_path / "letter.longctx")
    other = tmp_path / "other"
    longctx("import", tmp_path / "letter.longctx", "--library", other, "--shared")
    assert modes(other, 0o044) == {0o044}


def test_shared_leaves_a_library_that_is_there(longctx, tmp_path, text, model_options):
    longctx("ingest", text, *model_options)
    longctx("ingest", text, "--name", "again", "--shared", *model_options)
    assert modes(tmp_path / "library") == {0}


def test_a_dry_run_makes_no_shared_library(longctx, tmp_path, text, model_options):
    longctx("ingest", text, "--shared", "--dry-run", *model_options)
    assert not (tmp_path / "library").exists()


def test_doctor_says_who_may_read_and_mends_it(longctx, library):
    for path in [library, *library.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    count = 1 + len([*library.rglob("*")])
    known = ["--library", library]
    assert f"others may read {count} files and folders" in longctx("doctor", *known).stdout
    found = json.loads(longctx("doctor", *known, "--json").stdout)["library"]
    assert (found["mode"], found["open_to_others"], found["made_private"]) == ("755", count, 0)
    assert modes(library) != {0}
    mended = longctx("doctor", *known, "--fix", "--json")
    assert f"Others may read {count} files" in mended.stderr
    assert "mode 755" in mended.stderr
    assert json.loads(mended.stdout)["library"]["made_private"] == count
    assert modes(library) == {0}
    assert "others may read" not in longctx("doctor", *known).stdout
