"""Whatever stands in a manifest: it is read, or refused with an error of our own.

Damaged bytes, and manifests that lie with the right checksum, each in the place of a real one whose
document is opened, listed and shown.
"""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from fuzz_cases import changed, many, of_corpus, places, require_told
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_128_hexdigest

from longctx.cli import list as list_command
from longctx.cli import render
from longctx.cli import show as show_command
from longctx.core.api.told import details, summary
from longctx.core.common.errors import LongctxError, StateMismatch
from longctx.core.engine.choice import recorded
from longctx.core.ingest.ingest import ingest
from longctx.core.store.library import Library
from longctx.core.store.manifest import MANIFEST, Manifest, canonical_json

EDGES = [0, 1, -1, 2, 2**31, 2**63, 10**30, -(10**30), 0.5, 1e308, "", "\ud800", "\x1b[31m", "/"]
WORDS = ["..", "memory", "text-00000.gz", "tokens-00000.safetensors", "complete", "reading", "tiny"]
leaves = st.sampled_from([None, True, *EDGES, *WORDS]) | st.text(max_size=8) | st.integers()
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def without(value, at):
    """The same without what is in one place."""
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(at) == 1:
        del copy[at[0]]
    else:
        copy[at[0]] = without(copy[at[0]], at[1:])
    return copy


def sealed(data) -> str:
    """As a liar writes it: with the checksum of what it says."""
    if not isinstance(data, dict):
        return json.dumps(data)
    data = {key: value for key, value in data.items() if key != "checksum"}
    checksum = xxh3_128_hexdigest(canonical_json(data).encode("ascii"))
    return canonical_json({**data, "checksum": checksum})


@pytest.fixture(scope="module")
def library(setup_for_module, tmp_path_factory) -> Path:
    """A library with one small document of two sources."""
    folder = tmp_path_factory.mktemp("fuzz")
    paths = []
    for name in ("one.txt", "two.txt"):
        (folder / name).write_text("the keeper wrote that a boat came home\n" * 6)
        paths.append(str(folder / name))
    ingest(folder / "library", paths, setup_for_module, name="book")
    written = (folder / "library/documents/book" / MANIFEST).read_bytes()
    (folder / "written.json").write_bytes(written)  # tests write over it
    return folder / "library"


@pytest.fixture(scope="module")
def setup_for_module(model_folder):
    from longctx.core.engine.choice import Setup

    profile = str(model_folder / "profile.yaml")
    return Setup(model=str(model_folder), profile=profile, device="cpu", dtype="fp32", threads=1)


@pytest.fixture(scope="module")
def written(library) -> dict:
    """What the real manifest says."""
    return json.loads((library.parent / "written.json").read_text())


def put(library: Path, text: str | bytes) -> None:
    data = text.encode("ascii") if isinstance(text, str) else text
    (library / "documents/book" / MANIFEST).write_bytes(data)


def require_sound(library: Path) -> None:
    """The manifest is refused, or the document can be listed, shown, and opened or refused."""
    try:
        manifest = Manifest.read(library / "documents/book")
    except StateMismatch as error:
        require_told(error)
        return
    try:
        document = Library.open(library).document("book")
        document.size(), document.read_whole(), document.snapshot()
        assert document.span(0, 1)[0] == 0
        assert document.line(0, 0) == 1
    except StateMismatch as error:
        require_told(error)
    except LongctxError as error:
        pytest.fail(f"of another kind: {error!r}")
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        list_command.run(library=library, json=False)
        list_command.run(library=library, json=True)
        told = details(manifest, summary(manifest))
        render.print_json(told)
        render.facts(show_command.facts(manifest.folder, told))
    assert recorded(manifest)
    assert "\x1b" not in out.getvalue()


def test_a_damaged_manifest_is_listed_with_its_name(library, capsys):
    put(library, "{")
    list_command.run(library=library, json=False)
    assert "book" in capsys.readouterr().out


def test_the_real_manifest_is_sound(library, written):
    put(library, sealed(written))
    require_sound(library)
    assert Library.open(library).documents()[0].status == "complete"


@many
@given(data=st.data())
def test_a_manifest_that_lies(library, written, data):
    value = {key: value for key, value in written.items() if key != "checksum"}
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from(list(places(value))))
        if at and data.draw(st.integers(0, 4)) == 0:
            value = without(value, at)
        else:
            value = changed(value, at, data.draw(values))
        if not isinstance(value, dict | list):
            break
    put(library, sealed(value))
    require_sound(library)


@many
@given(cut=st.integers(0, 10**6), flips=st.lists(st.integers(0, 10**9), max_size=4))
def test_a_manifest_whose_bytes_are_damaged(library, written, cut, flips):
    data = bytearray(sealed(written).encode("ascii"))
    for flip in flips:
        data[flip // 8 % len(data)] ^= 1 << flip % 8
    put(library, bytes(data[: cut % len(data)] if cut % 3 == 0 else data))
    require_sound(library)


@many
@given(data=st.binary(max_size=60) | st.text(st.sampled_from('{}[]":,0ae-N'), max_size=60))
def test_a_manifest_of_any_bytes(library, data):
    put(library, data.encode() if isinstance(data, str) else data)
    with pytest.raises(StateMismatch):
        Manifest.read(library / "documents/book")


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "9" * 5000, '{"format": NaN}'])
def test_a_manifest_without_end(library, text):
    put(library, text)
    require_sound(library)


@of_corpus("*.json")
def test_what_was_found_before(library, written, file):
    """Each file says what to put where: a list of places (keys) and values."""
    value = {key: value for key, value in written.items() if key != "checksum"}
    for at, new in json.loads(file.read_text()):
        value = changed(value, tuple(at), new)
    put(library, sealed(value))
    require_sound(library)
