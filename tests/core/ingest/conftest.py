"""What several tests of reading watch."""

import pytest

from longctx.core.model.adapter import Decoder


@pytest.fixture
def chunks(monkeypatch) -> list[int]:
    """Tokens of every chunk that a model reads."""
    sizes: list[int] = []
    read = Decoder.read

    def counted(self, ids, *args):
        sizes.append(len(ids))
        return read(self, ids, *args)

    monkeypatch.setattr(Decoder, "read", counted)
    return sizes
