"""The list of a library's index files, and that a forged one is not believed."""

import json

import pytest

from longctx.core.store.catalogue import write_checked
from longctx.core.store.confined import Confined
from longctx.core.store.segments import SegmentFiles
from longctx.core.store.shards import Shard

STAMP = [1, 2, 3, 4]
ITEM = {
    "file": "segment-00000.safetensors",
    "group": "segment",
    "rows": 0,
    "size": 8,
    "blocks": ["0" * 32],
    "documents": [["a", STAMP], ["b", [5, 6, 7, 8]]],
}


@pytest.fixture
def read(tmp_path):
    """What a library with this list has."""
    (tmp_path / "index").mkdir()

    def given(*items: dict) -> list:
        write_checked(Confined(tmp_path) / "index", "segments.json", 1, json.dumps(items))
        return SegmentFiles(Confined(tmp_path)).read()

    return given


def test_it_is_read_as_it_was_written(read):
    (kept,) = read(ITEM)
    assert kept.shard == Shard("segment-00000.safetensors", "segment", 0, 8, ("0" * 32,))
    assert kept.documents == (("a", (1, 2, 3, 4)), ("b", (5, 6, 7, 8)))
    assert read({**ITEM, "documents": []})[0].documents == ()


@pytest.mark.parametrize(
    "documents",
    [
        [["../a", STAMP]],
        [[1, STAMP]],
        [["a", [1, 2, 3]]],
        [["a", [1, 2, 3, 4.0]]],
        [["a", "abcd"]],
        [["a"], ["b", STAMP]],
        [["a", STAMP, 1]],
        [1],
        {"a": STAMP},
        7,
    ],
)
def test_a_forged_list_is_none(read, documents):
    assert read({**ITEM, "documents": documents}) == []
