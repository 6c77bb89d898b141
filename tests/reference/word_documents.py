"""Documents for the tests of the word index, of given texts and tokens."""

import hashlib
import re

import torch
from small_documents import HEADER

from longctx.core.store.document import Document
from longctx.core.store.library import Library


def write_texts(
    library: Library, *texts: str, name: str = "book", encoding: str = "utf-8", shift: int = 0
) -> Document:
    """A document of these texts, with a token for each word and the space before it.

    Its tokens begin `shift` bytes from where they should.
    """
    with library.writer(name, HEADER, True, shard_rows=64) as writer:
        for number, text in enumerate(texts):
            data = text.encode(encoding)
            ends = [len(text[: m.end()].encode(encoding)) for m in re.finditer(r"\S+", text)]
            starts = (torch.tensor([0, *ends[:-1]]) + shift).clamp(min=0)
            writer.begin_source(f"{number}.txt")
            writer.add_bytes(data)
            writer.append("tokens", {"ids": starts.int(), "starts": starts})
            writer.end_source(len(data), hashlib.sha256(data).hexdigest(), encoding, 0)
        writer.complete({"none": torch.zeros(0)})
    return library.document(name)


def bytes_text(library: Library, data: bytes, size: int, encoding: str = "utf-8") -> Document:
    """A document of one source with a token for every `size` bytes, wherever words are."""
    starts = torch.arange(0, len(data), size)
    with library.writer("book", HEADER, True, shard_rows=64) as writer:
        writer.begin_source("some.txt")
        writer.add_bytes(data)
        writer.append("tokens", {"ids": starts.int(), "starts": starts})
        writer.end_source(len(data), hashlib.sha256(data).hexdigest(), encoding, 0)
        writer.complete({"none": torch.zeros(0)})
    return library.document("book")
