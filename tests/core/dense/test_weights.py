"""The encoder's files: what they are, and what is said when one is damaged."""

import hashlib
import shutil

import pytest

from longctx.core.common.errors import LongctxError
from longctx.core.dense import weights

FILES = ("model.safetensors", "tokenizer.json", "config.json")


def test_the_fingerprint_is_that_of_the_files():
    digest = hashlib.sha256()
    for name in FILES:
        digest.update((weights.FOLDER / name).read_bytes())
    assert weights.FINGERPRINT.endswith(f"-{digest.hexdigest()[:8]}")


def test_its_licence_comes_along():
    assert "Apache License" in (weights.FOLDER / "NOTICE").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "load"),
    [*zip(FILES, (weights.stored, weights.tokenizer, weights.config), strict=True)],
)
@pytest.mark.parametrize("change", ["cut", "gone", "other"])
def test_a_damaged_file_is_named(tmp_path, monkeypatch, name, load, change):
    shutil.copytree(weights.FOLDER, tmp_path / "minilm")
    file = tmp_path / "minilm" / name
    if change == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:50] if change == "cut" else b"[1]")
    monkeypatch.setattr(weights, "FOLDER", tmp_path / "minilm")
    load.cache_clear()
    try:
        with pytest.raises(LongctxError, match=name) as caught:
            load()
    finally:
        load.cache_clear()
    assert "--gather-by bm25" in str(caught.value)
