"""The same answer by transformers' `generate`, over a randomly filled cache.

With a cache that grows by a copy for each token, and with one of fixed size, for which `generate`
compiles the model on a GPU by itself. Greedy; nothing ends the answer but its length.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from typing import Any

import torch

from longctx.core.common import libraries
from longctx.core.common.device import is_out_of_memory
from longctx.core.common.errors import LongctxError
from longctx.core.contracts.policy import Spent
from longctx.core.engine.setup import Engine
from longctx.core.measure.bench.ceilings import Clock
from longctx.core.measure.bench.decoded import Decoded, Timed, decoded
from longctx.core.measure.bench.workbench import Workbench

UNCOUNTED, ROUNDS = 8, 2  # tokens, and answers of so many before the one that is timed


def measure_generate(bench: Workbench, tokens: int, answer: int) -> Iterator[Decoded]:
    """Times `generate` with each kind of cache.

    Args:
        bench: the model.
        tokens: of the prompt.
        answer: tokens to time.
    """
    library = libraries.transformers()
    room = tokens + ROUNDS * UNCOUNTED + answer
    compiled = ", compiled" if bench.engine.device.startswith("cuda") else ""
    for name, make in (
        ("generate of transformers, growing cache", library.DynamicCache),
        (
            f"generate of transformers, static cache{compiled}",
            partial(library.StaticCache, max_cache_len=room),
        ),
    ):
        bench.note(f"decoding {answer:,} tokens after {tokens:,} with {name}")
        timed = partial(_timed, bench.engine, make, tokens, answer)
        yield decoded(bench, name, {}, tokens, answer, timed)


def _timed(engine: Engine, make: Callable[..., Any], tokens: int, answer: int) -> Timed:
    before, clock = tokens + ROUNDS * UNCOUNTED, Clock(engine.device)
    with engine.decoder.as_it_is() as model, torch.no_grad():
        cache = make(config=model.config)
        _fill(engine, cache, tokens)
        try:
            for _ in range(ROUNDS):
                _generate(engine, model, cache, UNCOUNTED)
            ready = clock.seconds()
            _generate(engine, model, cache, answer)
        except Exception as error:  # a compiler's, of whatever kind: the others are measured still
            if is_out_of_memory(error):
                raise
            first_line = (str(error).strip().splitlines() or [""])[0]
            raise LongctxError(type(error).__name__, first_line) from error
        seconds = (clock.seconds() - ready) / answer
    return Timed(ready, seconds, Spent(before + (answer + 1) / 2, None, before + answer))


def _fill(engine: Engine, cache: Any, tokens: int) -> None:
    for layer in engine.decoder.layers:
        shape = (2, 1, layer.kv_heads, tokens, layer.head_dim)
        keys, values = torch.randn(shape, device=engine.device, dtype=engine.dtype)
        cache.update(keys, values, layer.index)


def _generate(engine: Engine, model: Any, cache: Any, count: int) -> None:
    """Generates exactly so many tokens; of the prompt only the last one is not in the cache."""
    length = int(cache.get_seq_length()) + 1
    release = metadata.version("transformers").split(".")[:2]
    renamed = tuple(map(int, release)) >= (5, 24)
    ids = torch.zeros(1, length, dtype=torch.long, device=engine.device)
    model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        **{"cache" if renamed else "past_key_values": cache},
        max_new_tokens=count,
        min_new_tokens=count,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
