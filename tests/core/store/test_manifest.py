"""The manifest: every byte of it counts, and no other version and no hostile one is read."""

import pytest
from small_documents import counting, flip, forge, in_shard, write
from xxhash import xxh3_128_hexdigest

from longctx.core.common.errors import StateMismatch
from longctx.core.store.manifest import Manifest

pytestmark = pytest.mark.usefixtures("no_sync")


def test_every_byte_of_a_manifest_counts(library):
    write(library)
    path = library.path / "documents" / "book" / "manifest.json"
    good = path.read_bytes()
    for position in range(0, len(good), 97):
        if good[position] not in b" \n":
            flip(path, position)
            with pytest.raises(StateMismatch):
                library.document("book")
            path.write_bytes(good)
    library.document("book")


def test_another_format_version_names_both_and_the_way_out(library):
    write(library)
    folder = library.path / "documents" / "book"
    forge(folder, lambda data: data.update(format=3, novel=1))
    with pytest.raises(StateMismatch) as caught:
        library.document("book")
    assert "has format 3" in str(caught.value)
    assert "reads format 4" in str(caught.value)
    assert "longctx ingest in/one.txt --name book --replace" in str(caught.value)


def in_source(**changes):
    return lambda data: data["sources"][0].update(changes)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(extra=1),
        lambda data: data.pop("method"),
        lambda data: data.update(name="book"),
        lambda data: data.update(status="finished"),
        lambda data: data.update(status="damaged"),
        lambda data: data.update(tokens=True),
        lambda data: data.update(tokens=data["tokens"] + 1),
        lambda data: data.update(options=[]),
        lambda data: data.update(sources={}),
        lambda data: data.update(format="1"),
        lambda data: data.pop("title"),
        lambda data: data.pop("units"),
        lambda data: data.pop("language"),
        lambda data: data.update(language="English"),
        lambda data: data.update(title=""),
        lambda data: data.update(title="x" * 256),
        lambda data: data.update(title="a\nb"),
        lambda data: data.update(title="\udcff"),
        lambda data: data.update(title=3),
        lambda data: data.update(units="page"),
        lambda data: data.update(units="source"),  # with a snapshot of all
        lambda data: data["model"].pop("weights"),
        lambda data: data["shards"].reverse(),
        lambda data: data["shards"].append(data["shards"][0]),
        lambda data: data.update(report={"seconds": float("nan")}),
        lambda data: data["sources"][-1].update(size=1),
        lambda data: data["sources"][-1].update(tokens=1),
        in_source(size=-1),
        in_source(tokens=3),
        in_source(text_start=1),
        in_source(path=3),
        in_source(encoding="ascii"),
        in_source(encoding=None),
        in_source(undecodable=0.5),
        in_source(surprise=None),
        in_shard("tokens", file="../../../tokens-00000.safetensors"),
        in_shard("tokens", file="/tokens-00000.safetensors"),
        in_shard("tokens", file="manifest.json"),
        in_shard("tokens", file="tokens-00000.gz"),
        in_shard("tokens", file="tokens-00000.00001.safetensors"),
        in_shard("tokens", file="tokens-00000.safetensors\n"),
        in_shard("tokens", file="memory-00000.safetensors"),
        in_shard("tokens", group="../tokens"),
        in_shard("tokens", blocks=[]),
        in_shard("tokens", rows=-4),
        in_shard("tokens", raw=4),
        in_shard("text", members=[]),
        in_shard("text", members=None, raw=None),
        in_shard("text", raw=1 << 40),
        in_shard("text", raw=0),
        in_shard("text", rows=2),
    ],
)
def test_a_hostile_manifest_is_refused(library, change):
    write(library)
    forge(library.path / "documents" / "book", change)
    with pytest.raises(StateMismatch, match=r"manifest\.json"):
        library.document("book")
    assert [manifest.status for manifest in library.documents()] == ["damaged"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (in_source(surprise=None), "unknown key 'surprise' in `sources[0]` of the manifest"),
        (in_source(size=True), "cannot use 'size' in `sources[0]` of the manifest: True is no int"),
        (in_source(origin={"size": 1}), "no key 'sha256' in `origin` of `sources[0]` of the man"),
        (in_shard("tokens", blocks=[1]), "of the manifest: [1] is no tuple[str, ...]"),
        (in_shard("tokens", rows=-4), "of the manifest: tokens-00000.safetensors: rows, size and"),
        (lambda data: data.pop("method"), "there is no key 'method' in the manifest"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(library, change, said):
    write(library)
    forge(library.path / "documents" / "book", change)
    with pytest.raises(StateMismatch) as caught:
        library.document("book")
    assert said in str(caught.value)
    assert str(caught.value).endswith("Ingest the document again with --replace")


def test_a_file_may_be_of_a_later_century(library):
    """ext4 keeps times until 2446, which 64 bits of nanoseconds do not hold."""
    write(library)
    forge(library.path / "documents" / "book", in_source(mtime_ns=2**63))
    assert library.document("book").manifest.sources[0].mtime_ns == 2**63


@pytest.mark.parametrize("change", [counting(2**63 - 4), in_shard("embeddings", rows=2**63)])
def test_counts_that_no_catalogue_holds_are_refused(library, change):
    write(library)
    folder = library.path / "documents" / "book"
    forge(folder, counting(2**62))
    assert Manifest.read(folder).tokens > 2**62  # nothing else is wrong with it
    forge(folder, counting(-(2**62)))
    forge(folder, change)
    with pytest.raises(StateMismatch, match="more than fits into 64 bits"):
        library.document("book")


def test_text_files_that_are_not_full_are_refused(library, small):
    """Where a byte lies is computed from full files."""
    write(library)

    def move_a_byte(data):
        texts = [shard for shard in data["shards"] if shard["group"] == "text"]
        texts[0]["raw"] -= 1
        texts[-1]["raw"] += 1

    forge(library.path / "documents" / "book", move_a_byte)
    with pytest.raises(StateMismatch, match="not full"):
        library.document("book")


@pytest.mark.parametrize("text", ["", "null", "[{}]", "[" * 100_000, "\udcff", "{} {}"])
def test_a_manifest_that_is_none_is_refused(library, text):
    write(library)
    path = library.path / "documents" / "book" / "manifest.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(StateMismatch, match=r"manifest\.json"):
        library.document("book")


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_numbers_that_no_json_has_are_refused_whatever_the_checksum(library, number):
    """Python reads them; `list --json` could not write them."""
    write(library)
    path = library.path / "documents" / "book" / "manifest.json"
    rest = path.read_bytes().partition(b",\n")[2]
    assert b'"recorded": {' in rest
    rest = rest.replace(b'"recorded": {', b'"recorded": {"x": ' + number.encode() + b",", 1)
    checksum = xxh3_128_hexdigest(b"{\n" + rest).encode()
    path.write_bytes(b'{\n "checksum": "' + checksum + b'",\n' + rest)
    with pytest.raises(StateMismatch, match="no number"):
        library.document("book")
