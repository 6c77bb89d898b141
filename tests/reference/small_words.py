"""A word index beside a document that was written without one."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from small_documents import forge

from longctx.core.retrieve.word_tables import word_tables
from longctx.core.store.document import Document
from longctx.core.store.shard_writer import write_tensors
from longctx.core.store.shards import WORDS, Shard, shard_name

Table = dict[str, np.ndarray]


def store_words(
    folder: Path,
    change: Callable[[Table], object] = lambda table: None,
    number: int = 0,
) -> list[Shard]:
    """Writes the index of the document in `folder`; `change` is done to table `number` before."""
    tables = list(word_tables(Document(folder)))
    change(tables[number])
    return put_words(folder, tables)


def put_words(folder: Path, tables: Iterable[Table]) -> list[Shard]:
    """Writes tables as they are, with a manifest that names them."""
    files = []
    for number, table in enumerate(tables):
        tensors = {key: torch.tensor(value) for key, value in table.items()}
        files.append(write_tensors(folder, WORDS, shard_name(WORDS, number, None), tensors))
    records = [json.loads(json.dumps(asdict(shard))) for shard in files]
    for record in records:
        del record["members"], record["raw"]

    def name(data: dict) -> None:
        others = [shard for shard in data["shards"] if shard["group"] != WORDS]
        data["shards"] = sorted([*others, *records], key=lambda shard: shard["group"])

    forge(folder, name)
    return files
