"""What is read of a model beside what the libraries read: caches, headers; and how much of it."""

import json
import struct

import pytest

from longctx.core.common import file_limits
from longctx.core.common.errors import UsageError
from longctx.core.model.files import ModelFiles
from longctx.core.model.folder import require_files
from longctx.core.model.weights import JsonCache

pytestmark = pytest.mark.usefixtures("never_waits")


@pytest.mark.parametrize("text", ["", "[1]", "3", "[" * 200_000, "{", "\xff"])
def test_a_damaged_cache_is_taken_as_lost(tmp_path, text):
    file = tmp_path / "cache.json"
    file.write_text(text, "latin-1")
    assert JsonCache(file) == {}


def test_a_large_cache_is_taken_as_lost_and_begun_anew(tmp_path):
    file, most = tmp_path / "cache.json", file_limits.CACHE
    file.write_text(json.dumps({"a": "b"}).ljust(most))
    assert JsonCache(file) == {"a": "b"}
    file.write_text(json.dumps({"a": "b"}).ljust(most + 1))
    cache = JsonCache(file)
    assert cache == {}
    cache["c"] = "d"
    assert JsonCache(file) == {"c": "d"}


def test_a_cache_that_is_no_file_is_not_read(tmp_path, no_file, is_opened):
    assert JsonCache(no_file) == {}
    assert not is_opened(no_file)


def test_no_more_of_a_header_is_read_than_may_be(tmp_path):
    file, most = tmp_path / "model.safetensors", file_limits.HEADER
    with file.open("wb") as weights:
        weights.write(struct.pack("<Q", 1 << 60) + b"{}")
        weights.truncate(most + 100)
    with pytest.raises(UsageError, match="header has 1,152,921,504,606,846,976 bytes, and 33,554"):
        ModelFiles("m", tmp_path, None, None).num_parameters()


def test_every_file_that_may_be_read_has_a_limit(tmp_path):
    (tmp_path / "additional_chat_templates").mkdir()
    for name in (
        *("config.json", "tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model"),
        *("model.safetensors.index.json", "additional_chat_templates/tools.jinja"),
    ):
        file = tmp_path / name
        with file.open("wb") as written:
            written.truncate(1 << 20)
        require_files(tmp_path, "m")
        with file.open("wb") as written:
            written.truncate((128 << 20) + 1)
        with pytest.raises(UsageError, match=f"'m': {file.name}: it has 134,217,729 bytes"):
            require_files(tmp_path, "m")
        file.unlink()


def test_other_files_do_not_matter(tmp_path, no_file):
    for name in ("training.json", "a.bin", "README.md"):
        (tmp_path / name).symlink_to(no_file)
    (tmp_path / "model.safetensors").symlink_to("none")
    (tmp_path / "tokenizer").mkdir()
    require_files(tmp_path, "m")
