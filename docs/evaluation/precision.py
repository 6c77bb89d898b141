"""What reading in fp8 costs in accuracy: perplexity on a book, and how far the states move.

    python docs/evaluation/precision.py BOOK.txt --model tiny --tokens 64K

Prints Markdown, the number format of --dtype beside fp8, with the same model, text and GPU. A book
is read in windows that each begin anew, in chunks; perplexity is that of every token but the first
of a window. `top` is how often the most probable next token is the same, `states` how far the last
norm's output is from that of full precision, as a share of its size. What is found and answered is
for `longctx niah --precision fp8`; speed for `chunk_speed.py --stages precision`.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.core.common.units import parse_tokens
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import Engine, prepare
from longctx.core.kv.prompt import Prompt
from longctx.core.measure.markdown import table
from longctx.core.model import narrow
from longctx.core.model.adapter import Decoder

CHUNK = 1024


def windows(engine: Engine, book: Path, tokens: int, window: int) -> Iterator[Tensor]:
    """The book's first tokens, (window,) at a time; the last one may be shorter."""
    text = book.read_text("utf-8", errors="replace")
    ids = engine.files.tokenizer.backend_tokenizer.encode(
        text[: 8 * tokens], add_special_tokens=False
    ).ids
    yield from torch.tensor(ids[:tokens]).split(window)


@torch.inference_mode()
def states(decoder: Decoder, ids: Tensor) -> Tensor:
    """The last norm's output (T, E) for one window."""
    memory = Prompt(len(ids))
    return torch.cat([decoder.read(chunk, memory) for chunk in ids.split(CHUNK)])


def measured(engine: Engine, book: Path, tokens: int, window: int) -> list[list[str]]:
    """Rows of the table."""
    full, reader = engine.decoder, engine.reader
    loss = {"full": 0.0, narrow.NAME: 0.0}
    count, same, away = 0, 0, []
    for ids in windows(engine, book, tokens, window):
        if len(ids) < CHUNK:
            continue
        own, found = states(full, ids), states(reader, ids)
        away.append(float((found.float() - own.float()).norm() / own.float().norm()))
        following = ids[1:].to(full.device)
        best = []
        for name, hidden in (("full", own), (narrow.NAME, found)):
            logits = torch.cat([full.logits(part) for part in hidden[:-1].split(CHUNK)])
            loss[name] += float(F.cross_entropy(logits, following, reduction="sum"))
            best.append(logits.argmax(-1))
        same += int((best[0] == best[1]).sum())
        count += len(following)
    first = math.exp(loss["full"] / count)
    second = math.exp(loss[narrow.NAME] / count)
    name = engine.files.name
    return [
        [name, str(engine.dtype).removeprefix("torch."), f"{count:,}", f"{first:.3f}", "", "", ""],
        [
            *(
                name,
                narrow.NAME,
                f"{count:,}",
                f"{second:.3f}",
                f"{100 * (second / first - 1):.2f}%",
            ),
            *(f"{100 * same / count:.1f}%", f"{sum(away) / len(away):.4f}"),
        ],
    ]


def main() -> None:
    """Measures one model on one book."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("book", type=Path)
    parser.add_argument("--model", action="append", help="several times; by default tiny")
    parser.add_argument("--tokens", default="64K")
    parser.add_argument("--window", default="2K", help="tokens that are read as one text")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    rows = []
    for model in given.model or ["tiny"]:
        engine = prepare(Setup(model=model, device=given.device, precision=narrow.NAME))
        tokens, window = parse_tokens(given.tokens), parse_tokens(given.window)
        rows += measured(engine, given.book, tokens, window)
    heads = ["model", "precision", "tokens", "perplexity", "more", "top", "states"]
    print(table(heads, rows, right=heads[2:]))


if __name__ == "__main__":
    main()
