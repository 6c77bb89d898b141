"""Room on the disk: how many bytes a token takes in the store, and how many are free.

Judges before anything is written; what a full disk does to a write is the store's affair.
"""

import shutil
from pathlib import Path

from longctx.core import methods
from longctx.core.errors import LongctxError
from longctx.core.reader import Source
from longctx.core.setup import Engine
from longctx.core.shard_writer import compress_member

TOKEN_BYTES = 12  # an int32 id and an int64 offset
SAMPLE_BYTES = 1 << 18


def require_disk(library: Path, engine: Engine, sources: list[Source]) -> None:
    """Refuses sources whose state would not fit the disk, judged by their first text.

    Raises:
        LongctxError: with the figure needed and the figure free.
    """
    sizes = [source.expected_size or 0 for source in sources]
    sample = next((s for s in sources if s.path is not None and s.expected_size), None)
    if sample is None or sample.path is None:
        return
    try:
        with sample.path.open("rb") as file:
            data = file.read(SAMPLE_BYTES)
    except OSError:
        return  # reading it will say what is wrong
    backend = engine.checkpoint.tokenizer.backend_tokenizer
    tokens = len(backend.encode(data.decode("utf-8", "replace"), add_special_tokens=False).ids)
    each = tokens / len(data) * row_bytes(engine) + len(compress_member(data)) / len(data)
    needed, free = int(sum(sizes) * each), free_disk(library)
    if needed > free:
        raise LongctxError(
            f"no room on the disk of {str(library)!r}",
            f"the state of {sum(sizes) / 1e9:.2f} GB of text needs about {needed / 1e9:.2f} GB, "
            f"{free / 1e9:.2f} GB are free",
            "Free some space, or name a library on another disk with --library.",
        )


def free_disk(folder: Path) -> int:
    """Bytes free on the disk on which a folder is, or would be made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def row_bytes(engine: Engine) -> int:
    """Bytes of rows that the store keeps for each token: id, offset, and what the method keeps."""
    config = engine.checkpoint.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    method = methods.load(engine.method_name).Method
    return TOKEN_BYTES + method.bytes_per_token(engine.options, head_dim)
