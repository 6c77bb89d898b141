"""The catalogue of many documents: what it spares, and that it is believed only where right."""

import json
import os
from pathlib import Path

import pytest
from small_documents import HEADER, counting, forge, write

from longctx.core.store import catalogue, holdings, places
from longctx.core.store.facts import Facts
from longctx.core.store.library import Library
from longctx.core.store.manifest import Manifest
from longctx.core.store.places import write_title

NAMES = ["a", "b", "c"]


@pytest.fixture
def many(no_sync, library, monkeypatch) -> Library:
    """A library that is large enough for a catalogue, which was just made."""
    monkeypatch.setattr("longctx.core.store.holdings.MANY", 3)
    for name in NAMES:
        write(library, name)
    library.facts()
    return library


@pytest.fixture
def read(monkeypatch) -> list[str]:
    """The folders whose manifests are read from now on."""
    seen: list[str] = []

    def describe(folder):
        seen.append(folder.name)
        return places.describe(folder)

    monkeypatch.setattr(holdings, "describe", describe)
    return seen


def path_of(many: Library) -> Path:
    return many.path / "index" / "catalogue.json"


def manifest_of(many: Library, name: str) -> Path:
    return many.path / "documents" / name / "manifest.json"


def test_facts_are_those_of_the_manifests(many, read):
    facts = many.facts()
    assert not read
    assert facts == [Facts.of(manifest) for manifest in many.documents()]
    for told, manifest in zip(facts, many.documents(), strict=True):
        for name in ("name", "size", "parts", "has_words", "is_bare", "tokens", "method"):
            assert getattr(told, name) == getattr(manifest, name), name
    assert [told.saved for told in facts] == [
        manifest_of(many, name).stat().st_mtime_ns for name in NAMES
    ]


def test_a_small_library_has_none(no_sync, library):
    write(library)
    assert library.facts() == [Facts.of(manifest) for manifest in library.documents()]
    assert not (library.path / "index").exists()


def test_what_comes_changes_and_goes_is_read_again_alone(many, read):
    write(many, "d")
    write(many, "b", replace=True)
    many.remove("a")
    read.clear()
    assert [told.folder for told in many.facts()] == ["b", "c", "d"]
    assert read == ["b", "d"]
    read.clear()
    many.facts()
    assert not read


def test_a_manifest_that_keeps_its_time_and_size_is_read_again(many, read):
    folder = many._places.finished("b")
    write_title(folder, "first")
    many.facts()
    for title in ("other", "third"):
        write_title(folder, title)  # with the same time
        read.clear()
        assert [told.name for told in many.facts()] == ["a", title, "c"]
        assert read == ["b"]


def test_a_folder_that_is_renamed_by_hand_is_read_once(many, read):
    documents = many.path / "documents"
    (documents / "a").rename(documents / "aa")  # its manifest keeps its stamp, and its place
    for expected in (["aa"], []):
        read.clear()
        assert [told.name for told in many.facts()] == ["aa", "b", "c"]
        assert read == expected


def test_the_catalogue_is_not_believed_where_the_manifest_is_damaged(many):
    manifest_of(many, "b").write_text("{}")
    assert [told.status for told in many.facts()] == ["complete", "damaged", "complete"]
    assert [told.status for told in many.facts()] == ["complete", "damaged", "complete"]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-1],
        lambda text: text.replace("reform", "refarm"),
        lambda text: "",
        lambda text: text.replace("longctx 3", "longctx 2"),
    ],
)
def test_a_damaged_catalogue_is_made_again(many, read, change):
    path, expected = path_of(many), many.facts()
    text = path.read_text()
    path.write_text(change(text))
    read.clear()
    assert many.facts() == expected
    assert read == NAMES
    assert path.read_text() == text


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values["folder"].__setitem__(0, "../../etc"),
        lambda values: values["folder"].__setitem__(0, 1),
        lambda values: values["stamp"].__setitem__(0, [1, 2, 3]),
        lambda values: values["stamp"].__setitem__(0, [1, 2, 3, True]),
        lambda values: values["stamp"].__setitem__(0, 4),
        lambda values: values["title"].__setitem__(0, "two\nlines"),
        lambda values: values["title"].__setitem__(0, 1),
        lambda values: values["tokens"].__setitem__(0, -1),
        lambda values: values["bytes"].__setitem__(0, "1"),
        lambda values: values["bytes"].__setitem__(0, 10**400),
        lambda values: values["method"].__setitem__(0, None),
        lambda values: values["model"].__setitem__(0, 9),
        lambda values: values["model"].__setitem__(0, -1),
        lambda values: values["models"][0].update(name=1),
        lambda values: values["models"][0].update(owner="me"),
        lambda values: values["models"][0].pop("weights"),
        lambda values: values["groups"].__setitem__(0, []),
        lambda values: values["groups"].__setitem__(0, {"text": -1}),
        lambda values: values["one_text"].__setitem__(0, 1),
        lambda values: values["paths"].__setitem__(0, [1]),
        lambda values: values["paths"].__setitem__(0, "abc"),
        lambda values: values["paths"].pop(),
        lambda values: values.pop("paths"),
        lambda values: values.update(tokens=dict.fromkeys(range(3), 1)),
    ],
)
def test_a_forged_catalogue_is_made_again(many, read, change):
    expected, text = many.facts(), path_of(many).read_text()
    values = json.loads(text.partition("\n")[2])
    change(values)
    folder = many._root / "index"
    catalogue.write_checked(folder, "catalogue.json", 2, json.dumps(values))
    read.clear()
    assert many.facts() == expected
    assert read == NAMES
    assert path_of(many).read_text() == text


def test_one_of_so_many_parts_that_they_fill_the_memory_is_not_parsed(many, read, monkeypatch):
    monkeypatch.setattr("longctx.core.store.manifest._PARTS", 100)
    values = json.loads(path_of(many).read_text().partition("\n")[2])
    for more, expected in ([], []), ([[]] * 1000, NAMES):
        text = json.dumps({**values, "more": more})
        catalogue.write_checked(many._root / "index", "catalogue.json", 3, text)
        read.clear()
        many.facts()
        assert read == expected


def test_a_forged_count_does_not_cost_all_a_reading(many, read):
    forge(manifest_of(many, "b").parent, counting(2**63))
    assert [told.status for told in many.facts()] == ["complete", "damaged", "complete"]
    read.clear()
    many.facts()
    assert read == ["b"]


def test_a_link_in_the_place_of_a_document_is_shown_as_damaged(many, tmp_path):
    os.symlink(many.path / "documents" / "a", many.path / "documents" / "x")
    assert [told.status for told in many.facts()][-1] == "damaged"
    assert [told.folder for told in many.facts()] == [*NAMES, "x"]


def test_a_library_that_cannot_be_written_is_listed(many, monkeypatch):
    path_of(many).unlink()
    monkeypatch.setattr(catalogue, "write_text", _fails)
    assert [told.folder for told in many.facts()] == NAMES
    assert not path_of(many).exists()


def _fails(*given):
    raise OSError("read-only")


def test_latest_needs_no_manifest(many, read):
    os.utime(manifest_of(many, "b"), ns=(1 << 62, 1 << 62))
    read.clear()
    assert many.latest() == "b"
    assert not read


def test_facts_and_the_latest_from_one_look(many):
    os.utime(manifest_of(many, "b"), ns=(1 << 62, 1 << 62))
    assert many.facts_and_latest() == (many.facts(), many.latest()) == (many.facts(), "b")
    with many.writer("b", HEADER, updates=True):
        assert many.facts_and_latest() == (many.facts(), "b")
    many.remove(*NAMES)
    assert many.facts_and_latest() == ([], "")


def test_what_waits_for_its_place_may_be_the_latest(many):
    manifest = manifest_of(many, "b")
    os.utime(manifest, ns=(1 << 62, 1 << 62))
    manifest.parent.rename(many.path / "unfinished" / "b")  # as if a kill had come before this
    found, latest = many.facts_and_latest()
    assert [facts.folder for facts in found] == ["a", "c", "b"]
    assert latest == many.latest() == "b"


def test_facts_of_a_forged_manifest_are_the_new_ones(many):
    forge(many.path / "documents" / "c", lambda data: data.update(title="Sea"))
    assert [told.name for told in many.facts()] == ["a", "b", "Sea"]
    assert Manifest.read(many._places.finished("c")).name == "Sea"
