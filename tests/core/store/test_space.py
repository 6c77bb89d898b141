"""The size of a library, which is counted only where it is limited."""

import pytest

from longctx.core.common.errors import LongctxError
from longctx.core.store import space


def test_a_library_is_counted_only_where_its_size_is_limited(tmp_path, monkeypatch):
    """Else reading the last of ten thousand short documents is mostly counting the others."""
    (tmp_path / "file").write_bytes(bytes(10))
    space.require_size(tmp_path, 11, 1)
    with pytest.raises(LongctxError, match="is full"):
        space.require_size(tmp_path, 11, 2)
    monkeypatch.setattr(space, "folder_bytes", lambda folder: pytest.fail("counted"))
    space.require_size(tmp_path, None, 1 << 60)
