"""What transformers made of a model's files is kept, and made again when anything changes."""

import json
import shutil

import pytest

from longctx.core.model import config_and_tokenizer, known
from longctx.core.model.files import ModelFiles, open_model_files

BUNDLED = open_model_files("tiny").folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "longctx" / known.FOLDER


@pytest.fixture
def made(monkeypatch):
    """The folders of which transformers made a configuration."""
    folders, usual = [], config_and_tokenizer._config

    def noted(folder, name):
        folders.append(folder)
        return usual(folder, name)

    monkeypatch.setattr(config_and_tokenizer, "_config", noted)
    return folders


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(BUNDLED, tmp_path / "model")
    return tmp_path / "model"


def test_the_second_time_nothing_is_made(cache, made, folder):
    first, second = (open_model_files(str(folder)) for _ in range(2))
    assert made == [folder]
    assert first.fingerprint() == second.fingerprint()
    assert first.tokenizer("a b").input_ids == second.tokenizer("a b").input_ids
    assert len(second.tokenizer) == second.config.vocab_size
    assert second.tokenizer.decode([300]) == first.tokenizer.decode([300])


def test_the_fingerprint_is_that_of_transformers(cache, folder):
    told = open_model_files(str(folder)).fingerprint()
    config = config_and_tokenizer._config(folder, "")
    tokenizer = config_and_tokenizer._fast_tokenizer(folder, "")
    theirs = ModelFiles(str(folder), folder, config, tokenizer).fingerprint()
    assert told == theirs


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_changed_file_is_read_again(name, cache, made, folder):
    open_model_files(str(folder))
    values = json.loads((folder / name).read_text("utf-8"))
    (folder / name).write_text(json.dumps(values, indent=3), "utf-8")
    open_model_files(str(folder))
    assert made == [folder] * 2


def test_a_damaged_file_of_the_cache_is_made_again(cache, made, folder):
    open_model_files(str(folder))
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    for broken in (b"", whole[:-9], whole.replace(b"8192", b"8193", 1), b"\n{}"):
        kept.write_bytes(broken)
        assert open_model_files(str(folder)).config.vocab_size == 8192
    assert len(made) == 5
    assert kept.read_bytes() == whole


def test_a_cache_that_cannot_be_written_costs_only_time(cache, made, folder):
    cache.parent.parent.mkdir()
    cache.parent.write_text("no folder")
    assert [open_model_files(str(folder)).config.vocab_size for _ in range(2)] == [8192] * 2
    assert len(made) == 2


def test_few_are_kept(cache, made, folder, monkeypatch):
    monkeypatch.setattr(known, "MOST", 2)
    for size in range(5):
        (folder / "special_tokens_map.json").write_text("{}" + " " * size)
        open_model_files(str(folder))
    assert len([*cache.iterdir()]) <= 3
