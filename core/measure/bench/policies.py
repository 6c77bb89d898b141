"""Times the tokens after one prompt of random keys and values, policy by policy.

All policies decode from the same buffers, one after another: long prompts leave no room for a
second KV cache. Each policy gets the prompt as if it were its own.
"""

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from longctx.core.contracts.policy import Policy
from longctx.core.decode import policies
from longctx.core.decode.decode import Generation, Model
from longctx.core.decode.policies import Decoding
from longctx.core.engine.setup import Engine
from longctx.core.kv.prompt import Prompt
from longctx.core.measure.bench.decoded import Decoded, Timed, decoded
from longctx.core.measure.bench.workbench import Workbench
from longctx.core.model.adapter import Attends, Decoder
from longctx.core.profile.sampling import Sampling
from longctx.kernels.door import PAGE

# Tokens at least before those that are timed: each kind of step has come twice then, so that its
# kernels are chosen and its graph is captured, also of steps that begin a page.
UNCOUNTED = 3 * PAGE
SURE = 2  # periods at least, for the same


def measure_policies(
    bench: Workbench, tokens: int, chosen: Sequence[Decoding], answer: int, beside: bool = False
) -> Iterator[Decoded]:
    """Times each policy after the same prompt.

    Args:
        bench: the model.
        tokens: of the prompt.
        chosen: the policies.
        answer: tokens to time, rounded up to whole strides of a policy that has them.
        beside: also the usual policy in the same loop with the layers as transformers runs them.
    """
    engine = bench.engine
    ways: list[tuple[str, Decoding, Model]] = [(one.name, one, engine.decoder) for one in chosen]
    if beside:
        usual = policies.USUAL
        ways.append((f"{usual.name}, layers of transformers", usual, Plain(engine.decoder)))
    lengths = [steps_of(one, answer) for _, one, _ in ways]
    prompt = filled(engine, tokens, chosen, max(map(sum, lengths)))
    for (name, one, reader), (before, timed) in zip(ways, lengths, strict=True):
        bench.note(f"decoding {timed:,} tokens after {tokens:,} with {name}")
        run = partial(_timed, engine, reader, prompt, one, before, timed)
        yield decoded(bench, name, asdict(one.options), tokens, timed, run)


class Plain:
    """Runs a decoder as it is: the decoding loop replaces only a `Decoder` by something faster."""

    def __init__(self, decoder: Decoder):
        self._decoder, self.device = decoder, decoder.device

    def read(self, ids: Tensor, memory: Attends) -> Tensor:
        """As `Decoder.read`."""
        return self._decoder.read(ids, memory)

    def logits(self, hidden: Tensor) -> Tensor:
        """As `Decoder.logits`."""
        return self._decoder.logits(hidden)


def steps_of(one: Decoding, answer: int) -> tuple[int, int]:
    """Tokens before those that are timed, and those: whole periods of the policy."""
    period = one.options.period
    before, timed = (-(-n // period) * period for n in (max(UNCOUNTED, SURE * period), answer))
    return before + 1, timed  # the first token comes of the prompt, without a step


def filled(engine: Engine, tokens: int, chosen: Sequence[Decoding], answer: int) -> Prompt:
    """A prompt of random keys and values with room for any of these policies' answers.

    Args:
        engine: the model.
        tokens: of the prompt.
        chosen: the policies.
        answer: tokens after it.
    """
    room = max([answer, *(one.options.reserve(answer) for one in chosen)])
    prompt = Prompt(tokens + room, max(one.options.observed for one in chosen))
    prompt.fill(engine.decoder.layers, tokens, engine.device, engine.dtype)
    return prompt


def policy_of(engine: Engine, one: Decoding, prompt: Prompt) -> Policy:
    """A policy over a prompt that others will decode from too.

    It may let go of caches, or say that they are longer, but not change what the prompt holds. The
    window is taken to be as long as need be: what is measured does not depend on what is answered.
    """
    own, observed = copy.copy(prompt), one.options.observed
    own.caches = {index: copy.copy(cache) for index, cache in prompt.caches.items()}
    for cache in own.caches.values():
        cache.queries = cache.queries[:, cache.queries.shape[1] - observed :]
    window = max(engine.window, prompt.capacity)
    return policies.load(one.name).Policy(one.options, own, window)


def generation_of(
    engine: Engine, reader: Model, policy: Policy, tokens: int, limit: int
) -> Generation:
    """An answer of `limit` tokens after a prompt of `tokens` random ones, which `policy` holds."""
    hidden = torch.randn(1, engine.files.config.hidden_size).to(engine.device, engine.dtype)
    seen = torch.zeros(tokens, dtype=torch.long)
    return Generation(reader, policy, hidden, seen, Sampling(), limit, set())


def _timed(
    engine: Engine, reader: Model, prompt: Prompt, one: Decoding, before: int, timed: int
) -> Timed:
    """Whole steps lie between two tokens that were read, as reading one waits for it."""
    clock = time.perf_counter
    started = clock()
    policy = policy_of(engine, one, prompt)
    answer = generation_of(engine, reader, policy, prompt.length, before + timed)
    tokens = answer.tokens()
    early = before - one.options.period  # asking may wait for the device
    _take(tokens, early)
    first = _spent(policy)
    _take(tokens, before - early)
    begun = clock()
    _take(tokens, timed)
    seconds = (clock() - begun) / timed
    pairs = zip(first, _spent(policy), strict=True)  # means over the tokens until then
    attended, scored = (b + (b - a) * early / (before + timed - early) for a, b in pairs)
    spent = replace(policy.spent(), attended=attended)
    return Timed(begun - started, seconds, spent, scored, answer.captured)


def _spent(policy: Policy) -> tuple[float, float]:
    """Entries attended to and pages scored so far, means over all tokens."""
    return policy.spent().attended, policy.scored()


def _take(tokens: Iterator[int], count: int) -> None:
    for _ in islice(tokens, count):
        pass
