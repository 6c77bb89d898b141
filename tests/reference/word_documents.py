"""Documents for the tests of the word index, of given texts and tokens."""

import hashlib
import re
from collections.abc import Sequence

import torch
from small_documents import HEADER

from longctx.core.retrieve.vector_tables import vector_tables
from longctx.core.retrieve.word_tables import word_tables
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.word_files import MakeTables


def write_texts(
    library: Library, *texts: str, name: str = "book", encoding: str = "utf-8", shift: int = 0
) -> Document:
    """A document of these texts, with a token for each word and each end of a line.

    Its tokens begin `shift` bytes from where they should.
    """
    with library.writer(name, HEADER, True, shard_rows=64) as writer:
        for number, text in enumerate(texts):
            data = text.encode(encoding)
            ends = [len(text[: m.end()].encode(encoding)) for m in re.finditer(r"\S+|\n", text)]
            starts = (torch.tensor([0, *ends[:-1]]) + shift).clamp(min=0)
            writer.begin_source(f"{number}.txt")
            writer.add_bytes(data)
            writer.append("tokens", {"ids": starts.int(), "starts": starts})
            writer.end_source(len(data), hashlib.sha256(data).hexdigest(), encoding, 0)
        writer.complete({"none": torch.zeros(0)})
    return library.document(name)


def write_words(library: Library, text: str, name: str, header: dict) -> Document:
    """A document of a text, a token for each word and each end of a line, with words and vectors.

    The sentence encoder makes the vectors if the header names an encoder.
    """
    data = text.encode()
    with library.writer(name, header, True, shard_rows=64) as writer:
        ends = [match.end() for match in re.finditer(r"\S+|\n", text)]
        starts = torch.tensor([0, *ends[:-1]])
        writer.begin_source("0.txt")
        writer.add_bytes(data)
        writer.append("tokens", {"ids": starts.int(), "starts": starts})
        writer.end_source(len(data), hashlib.sha256(data).hexdigest(), "utf-8", 0)
        vectors = vector_tables if header["encoder"] else None
        writer.complete({"none": torch.zeros(0)}, words=word_tables, vectors=vectors)
    return library.document(name)


def bytes_text(library: Library, data: bytes, size: int, encoding: str = "utf-8") -> Document:
    """A document of one source with a token for every `size` bytes, wherever words are."""
    return tokens_text(library, (data, range(0, len(data), size)), encoding=encoding)


def tokens_text(
    library: Library,
    *sources: tuple[bytes, Sequence[int]],
    encoding: str = "utf-8",
    words: MakeTables | None = None,
) -> Document:
    """A document of sources with tokens at given bytes; `words` makes its index."""
    rows = max(64, *(len(tokens) // 4 for _, tokens in sources))
    with library.writer("book", HEADER, True, shard_rows=rows) as writer:
        for number, (data, tokens) in enumerate(sources):
            starts = torch.tensor(tokens, dtype=torch.int64)
            writer.begin_source(f"{number}.txt")
            writer.add_bytes(data)
            writer.append("tokens", {"ids": starts.int(), "starts": starts})
            writer.end_source(len(data), hashlib.sha256(data).hexdigest(), encoding, 0)
        writer.complete({"none": torch.zeros(0)}, words=words)
    return library.document("book")
