"""Whatever happens to the files of a library, it gives the true answer or an error, and no other.

Bytes flip, files are cut short, lost, or written by somebody who lies: every case is put to a
document that is asked, and some to a checkpoint that is gone on with.
"""

import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save
from xxhash import xxh3_128_hexdigest

from longctx.core.ask.session import Session
from longctx.core.common.errors import LongctxError, StateMismatch
from longctx.core.engine import setup as setups
from longctx.core.engine.choice import Setup
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.ingest import ingest
from longctx.core.store.document import Document
from longctx.core.store.shard_reader import ShardFile

FLIPS = int(os.environ.get("LONGCTX_FLIPS", "60"))  # docs/reliability.md has a long run
QUESTION = "which boat came home on line 41?"
quick = functools.partial(
    settings,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


class Stopped(BaseException):
    """As Ctrl-C, at a place of our choice."""


@pytest.fixture(autouse=True, scope="module")
def one_model() -> Iterator[None]:
    """The model is loaded once: it is not what is damaged here."""
    with pytest.MonkeyPatch.context() as patch:
        load = functools.cache(lambda folder, device: _load(folder, device))
        real = setups.load_decoder

        def _load(folder, device):
            return real(folder, load.config, device, load.dtype, {})

        def cached(folder, config, device, dtype, cache):
            load.config, load.dtype = config, dtype
            return load(folder, device)

        patch.setattr(setups, "load_decoder", cached)
        yield


@pytest.fixture(scope="module")
def setup(model_folder) -> Setup:
    profile = str(model_folder / "profile.yaml")
    return Setup(model=str(model_folder), profile=profile, device="cpu", dtype="fp32", threads=1)


@pytest.fixture(scope="module")
def library(sources, setup, tmp_path_factory) -> Path:
    """A library with one document; every test puts back what it changes."""
    library = tmp_path_factory.mktemp("damage") / "library"
    ingest(library, sources, setup, name="book")
    return library


@pytest.fixture(scope="module")
def begun(sources, setup, tmp_path_factory) -> Path:
    """A library in which a reading was stopped; to be copied."""
    library = tmp_path_factory.mktemp("begun") / "library"

    def stop(progress):
        if progress.tokens > 600:
            raise Stopped

    with pytest.raises(Stopped):
        ingest(library, sources, setup, "book", cadence=Cadence.given(96, None), on_progress=stop)
    return library


@pytest.fixture(scope="module")
def ask(library, setup) -> Callable[[], tuple]:
    """The answer, and where it is from."""

    def ask() -> tuple:
        with Session(library, "book", setup) as session:
            answer = session.ask(QUESTION, gather_by="maxsim")  # it reads all that is kept
        return answer.answer, answer.passages, answer.found

    return ask


@pytest.fixture(scope="module")
def truth(ask) -> tuple:
    return ask()


def files_of(library: Path) -> list[Path]:
    """Every file that holds something, of every kind."""
    found = sorted(path for path in library.rglob("*") if path.is_file() and path.stat().st_size)
    assert {path.name.split("-")[0] for path in found} >= {
        *("library.json", "manifest.json", "text", "lines", "tokens", "embeddings", "memory"),
        *(["words"] if any(library.glob("documents/*")) else []),  # a checkpoint has none
    }
    return found


def put_to(path: Path, data: bytes, ask: Callable[[], tuple], truth: tuple) -> None:
    """With other bytes in a file there is the same answer, or one of our errors."""
    before = path.read_bytes()
    try:
        path.write_bytes(data)
        try:
            assert ask() == truth
            event("in bytes that were not used")
        except LongctxError:
            event("caught")
    finally:
        path.write_bytes(before)


# --- accidents ---


@quick(max_examples=FLIPS)
@given(data=st.data())
def test_a_flipped_bit_is_caught_or_in_bytes_that_are_not_used(library, ask, truth, data):
    path = data.draw(st.sampled_from(files_of(library)))
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    put_to(path, bytes(content), ask, truth)


@quick(max_examples=FLIPS // 2)
@given(data=st.data())
def test_a_file_cut_short_is_caught(library, ask, truth, data):
    path = data.draw(st.sampled_from(files_of(library)))
    content = path.read_bytes()
    kept = data.draw(st.integers(0, len(content) - 1))
    put_to(path, content[:kept], ask, truth)


def test_every_missing_file_is_named(library, ask, truth):
    """But for those of the word index, which are not needed."""
    for path in files_of(library):
        aside = path.rename(library.parent / "aside")
        try:
            if path.name.startswith("words-"):
                assert ask() == truth
                continue
            with pytest.raises(LongctxError, match=library.name):
                ask()
        finally:
            aside.rename(path)
    assert ask() == truth


@quick(max_examples=FLIPS // 3)
@given(data=st.data())
def test_a_damaged_checkpoint_gives_no_other_document(
    begun, sources, setup, library, tmp_path, data
):
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(begun, copy)
    path = data.draw(st.sampled_from(files_of(copy)))
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        report = ingest(copy, sources, setup, name="book")
        document = Document(copy / "documents" / "book")
        document.verify()
    except LongctxError:
        return
    assert report.reused_tokens in (0, 607)
    for file in (copy / "documents" / "book").iterdir():
        assert file.read_bytes() == (library / "documents" / "book" / file.name).read_bytes()


# --- lies: the checksums fit ---

LIES = (
    *(-1, 0, 1, 2, 3, 2**31, 2**63, 2**70, 1.5, True, None, "", [], {}, [[]], {"a": 1}),
    *(
        "F16",
        "U8",
        "../../etc/passwd",
        "/dev/zero",
        "text-00000.gz",
        "tokens-99999.safetensors",
        "\x1b[31m",
    ),
)


def places(value: object, path: tuple = ()) -> Iterator[tuple]:
    """The way to every value inside a JSON value."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in sorted(value):
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def with_lie(values: dict, place: tuple, lie: object) -> dict:
    """A copy in which one value is another."""
    values = json.loads(json.dumps(values))
    *way, last = place
    inner = functools.reduce(lambda part, key: part[key], way, values)
    inner[last] = lie
    return values


def sealed(values: dict) -> bytes:
    """The manifest with a checksum that fits."""
    text = json.dumps(values, sort_keys=True, indent=1) + "\n"
    checksum = xxh3_128_hexdigest(text.encode())
    return json.dumps({**values, "checksum": checksum}, sort_keys=True, indent=1).encode()


@pytest.fixture
def no_read_leaves_its_file(monkeypatch) -> None:
    """Every read is inside the file, so that no more is allocated than the file holds."""
    read = ShardFile._read

    def guarded(self, start, size):
        assert 0 <= start <= start + size <= self.path.stat().st_size
        return read(self, start, size)

    monkeypatch.setattr(ShardFile, "_read", guarded)


@pytest.mark.usefixtures("no_read_leaves_its_file")
@quick(max_examples=2 * FLIPS)
@given(data=st.data())
def test_a_manifest_that_lies(library, ask, truth, data):
    path = library / "documents" / "book" / "manifest.json"
    values = json.loads(path.read_bytes())
    del values["checksum"]
    place = data.draw(st.sampled_from(list(places(values))))
    lied = with_lie(values, place, data.draw(st.sampled_from(LIES)))
    before = path.read_bytes()
    try:
        path.write_bytes(sealed(lied))
        ask()
    except LongctxError:
        pass
    finally:
        path.write_bytes(before)


@pytest.mark.usefixtures("no_read_leaves_its_file")
@quick(max_examples=2 * FLIPS)
@given(data=st.data())
def test_a_tensor_header_that_lies(library, ask, truth, data):
    folder = library / "documents" / "book"
    path = data.draw(st.sampled_from(sorted(folder.glob("*.safetensors"))))
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    place = data.draw(st.sampled_from(list(places(header))))
    text = json.dumps(with_lie(header, place, data.draw(st.sampled_from(LIES)))).encode()
    lied = data.draw(st.sampled_from([len(text), 0, 2**40, 2**63])).to_bytes(8, "little")
    forged = lied + text + content[8 + length :]
    manifest = folder / "manifest.json"
    before = manifest.read_bytes()
    values = json.loads(before)
    del values["checksum"]
    for shard in values["shards"]:
        if shard["file"] == path.name:
            blocks = [forged[i : i + (1 << 20)] for i in range(0, len(forged), 1 << 20)]
            shard.update(size=len(forged), blocks=[xxh3_128_hexdigest(b) for b in blocks])
    try:
        path.write_bytes(forged)
        manifest.write_bytes(sealed(values))
        ask()
    except LongctxError:
        pass
    finally:
        path.write_bytes(content)
        manifest.write_bytes(before)


def with_tensors(folder: Path, file: str, change: Callable[[dict], object]) -> None:
    """Changes the tensors of a file, whose size and checksums fit then."""
    path, manifest = folder / file, folder / "manifest.json"
    tensors = load_file(path)
    change(tensors)
    forged = save(tensors)
    values = json.loads(manifest.read_bytes())
    del values["checksum"]
    for shard in values["shards"]:
        if shard["file"] == file:
            shard.update(size=len(forged), blocks=[xxh3_128_hexdigest(forged)])
    path.write_bytes(forged)
    manifest.write_bytes(sealed(values))


def changed(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[dict], None]:
    def apply(tensors: dict) -> None:
        tensors[name] = change(tensors[name]).contiguous()

    return apply


def without(name: str) -> Callable[[dict], object]:
    return lambda tensors: tensors.pop(name)


TENSOR_LIES = {
    "no count": ("memory", without("seen")),
    "two counts": ("memory", changed("seen", lambda seen: seen.repeat(2))),
    "a fraction": ("memory", changed("seen", lambda seen: seen.double())),
    "nothing read": ("memory", changed("seen", torch.zeros_like)),
    "no keys": ("memory", without("keys.0")),
    "no values": ("memory", without("values.0")),
    "no positions": ("memory", without("positions.0")),
    "one head less": ("memory", changed("keys.0", lambda keys: keys[1:])),
    "one dimension less": ("memory", changed("keys.0", lambda keys: keys[0])),
    "a number": ("memory", changed("keys.0", lambda keys: keys.sum())),
    "narrow values": ("memory", changed("values.0", lambda values: values[..., 1:])),
    "one value less": ("memory", changed("values.0", lambda values: values[:, 1:])),
    "whole keys": ("memory", changed("keys.0", lambda keys: keys.int())),
    "flat positions": ("memory", changed("positions.0", lambda positions: positions[0])),
    "broken positions": ("memory", changed("positions.0", lambda positions: positions.float())),
    "a stranger": ("memory", lambda tensors: tensors.update(x=tensors["seen"] + 1)),
    "no vectors": ("embeddings", without("vectors")),
    "no scales": ("embeddings", without("scales")),
    "narrow vectors": ("embeddings", changed("vectors", lambda vectors: vectors[..., 1:])),
    "one vector a row": ("embeddings", changed("vectors", lambda vectors: vectors[:, :1])),
    "flat scales": ("embeddings", changed("scales", lambda scales: scales[:, 0])),
    "whole scales": ("embeddings", changed("scales", lambda scales: scales.short())),
    "no scale": ("embeddings", changed("scales", lambda scales: scales * torch.nan)),
    "negative ids": ("tokens", changed("ids", lambda ids: ids - 1000)),
    "ids without an embedding": ("tokens", changed("ids", lambda ids: ids + 100_000)),
    "starts behind the source": ("tokens", changed("starts", lambda starts: starts + 2**30)),
    "starts before the source": ("tokens", changed("starts", lambda starts: starts - 2**30)),
    "starts that descend": ("tokens", changed("starts", lambda starts: starts.flip(0))),
}


@pytest.mark.parametrize(("group", "lie"), TENSOR_LIES.values(), ids=TENSOR_LIES)
def test_tensors_that_lie_are_damage(library, ask, truth, group, lie):
    folder = library / "documents" / "book"
    file = f"{group}-00000.safetensors"
    before = {name: (folder / name).read_bytes() for name in (file, "manifest.json")}
    try:
        with_tensors(folder, file, lie)
        with pytest.raises(StateMismatch, match="--replace"):
            ask()
    finally:
        for name, content in before.items():
            (folder / name).write_bytes(content)
    assert ask() == truth


def test_rows_that_are_fewer_than_the_tokens_are_damage(library, ask):
    folder = library / "documents" / "book"
    file, manifest = folder / "embeddings-00000.safetensors", folder / "manifest.json"
    before, listed = file.read_bytes(), manifest.read_bytes()
    try:
        with_tensors(
            folder,
            file.name,
            lambda tensors: tensors.update({name: rows[:9] for name, rows in tensors.items()}),
        )
        values = json.loads(manifest.read_bytes())
        del values["checksum"]
        next(s for s in values["shards"] if s["group"] == "embeddings")["rows"] = 9
        manifest.write_bytes(sealed(values))
        with pytest.raises(StateMismatch, match=r"9 rows of 'embeddings' for its 1,182 tokens"):
            ask()
    finally:
        file.write_bytes(before)
        manifest.write_bytes(listed)


def test_a_snapshot_that_lies_is_not_gone_on_with(begun, sources, setup, tmp_path):
    copy = shutil.copytree(begun, tmp_path / "copy")
    [snapshot] = (copy / "unfinished" / "book").glob("memory-*")
    with_tensors(snapshot.parent, snapshot.name, without("seen"))
    with pytest.raises(StateMismatch, match="snapshot"):
        ingest(copy, sources, setup, name="book")


def test_a_state_of_a_newer_format_is_refused(library, ask):
    path = library / "documents" / "book" / "manifest.json"
    before = path.read_bytes()
    values = {**json.loads(before), "format": 5, "novelty": True}
    try:
        path.write_bytes(json.dumps(values).encode())
        with pytest.raises(StateMismatch, match=r"format 5: this .* reads format 4.*ingest"):
            ask()
    finally:
        path.write_bytes(before)


# --- the whole library ---


def test_a_library_that_vanishes_while_it_is_written(sources, setup, tmp_path):
    library = tmp_path / "library"

    def vanish(progress):
        if progress.tokens > 600:
            shutil.rmtree(library, ignore_errors=True)

    with pytest.raises(LongctxError, match=r"cannot write '.*library"):
        ingest(library, sources, setup, cadence=Cadence.given(96, None), on_progress=vanish)
    assert not library.exists()


def test_a_library_that_vanishes_while_it_is_asked(library, setup, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(library, copy)
    with Session(copy, "book", setup) as session:
        shutil.rmtree(copy)
        with pytest.raises(StateMismatch, match=r"cannot read '.*No such file"):
            session.ask(QUESTION)
    with pytest.raises(LongctxError, match="no library at"):
        Session(copy, "book", setup)
