"""What the tests of passages share."""

import hashlib

import pytest
import torch
from small_documents import HEADER

from longctx.core.store.document import Document
from longctx.core.store.library import Library


@pytest.fixture
def document_of(tmp_path_factory):
    """A document of one source, of these bytes in this encoding."""

    def make(data: bytes, encoding: str) -> Document:
        library = Library.open(tmp_path_factory.mktemp("document") / "library", create=True)
        with library.writer("book", HEADER, True) as writer:
            writer.begin_source("a.txt")
            writer.add_bytes(data)
            starts = torch.arange(0, len(data))
            writer.append("tokens", {"ids": starts.int(), "starts": starts})
            writer.end_source(len(data), hashlib.sha256(data).hexdigest(), encoding, 0)
            writer.complete({"none": torch.zeros(0)})
        return library.document("book")

    return make
