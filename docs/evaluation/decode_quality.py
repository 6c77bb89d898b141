"""What decode policies lose, with the bundled model on a CPU: attention and tokens.

    python docs/evaluation/decode_quality.py
    python docs/evaluation/decode_quality.py --text BOOK.txt --only tokens

Prints Markdown. Prompts of 2,500 tokens are cut from $LONGCTX_EVAL/anna-karenina.txt, or from the
project's own samples, and dense decoding goes on from each, greedily.

1. Attention that is recovered: of dense decoding's attention, the share that goes to what Recycled
   Attention would attend to in the recycled steps after a full one. The tokens, and so the queries,
   are dense decoding's.
2. Tokens that agree: each policy reads dense decoding's tokens; of its most likely next tokens,
   those that are the same, and how many are before the first that is not. Policies of long answers
   do so again after prompts of 256 tokens, where they read what the text has next: this model soon
   repeats itself.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from longctx.core.ask.recompute import recompute
from longctx.core.decode import policies as decoding
from longctx.core.decode.decode import Generation
from longctx.core.decode.policies import Decoding
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import Engine, prepare
from longctx.core.kv.prompt import LayerCache, Prompt
from longctx.core.measure.bench.policies import policy_of
from longctx.core.measure.prose import read_prose
from longctx.core.profile.sampling import Sampling
from longctx.kernels.door import best_tokens

PROMPT, PROMPTS, ANSWER = 2500, 3, 100  # tokens, how many, tokens that dense decoding adds
STRIDES, BUDGETS = (10, 25, 50, 100), (64, 128, 256, 512, 1024, 2048)
POOLS = (7, 1)
EACH = 10  # tokens of which one chooses for itself, where it does
SHORT, LONG = 256, 256  # tokens of a prompt and its answer, for policies of long answers
AGREEING = (
    "dense",
    *(f"recycled:budget={K},stride={S}" for K in (256, 1024) for S in (50, 10)),
    "recycled:budget=256,stride=50,pool=1",
    "recycled:budget=256,similarity=0.8",
    *(f"snapkv:budget={K}" for K in (256, 1024)),
    *(f"quest:budget={K}" for K in (256, 1024)),
    "quest+raas:budget=256,answer_budget=64",
    "quest+raas:budget=1024,answer_budget=64",
)
ANSWERING = (
    *(f"raas:budget={SHORT + K}" for K in (64, 128)),
    f"raas:budget={SHORT + 64},rule=alpha",
    f"quest:budget={SHORT + 64}",
)
ROOM, OBSERVED = 16, 64  # tokens beyond an answer that there is room for; queries for policies


@dataclass
class Run:
    """A prompt, and how dense decoding goes on.

    Attributes:
        prompt: its cache.
        hidden: its last hidden state (1, E).
        answer: (T,) the tokens after it.
        likely: (T - 1,) dense decoding's most likely tokens after each of them but the last.
    """

    prompt: Prompt
    hidden: Tensor
    answer: Tensor
    likely: Tensor


def texts(file: Path | None, count: int) -> list[str]:
    """So many parts of a text, evenly spaced."""
    whole = file.read_text("utf-8") if file else read_prose().text
    step = len(whole) // count
    return [whole[n * step : n * step + min(step, PROMPT * 8)] for n in range(count)]


def runs(
    engine: Engine, file: Path | None, tokens: int, answer: int, follow: bool = False
) -> Iterator[Run]:
    """Prompts of so many tokens, read; after them what dense decoding adds, or the text has."""
    prefix = engine.prompt.prefix()
    for text in texts(file, PROMPTS):
        ids = engine.files.tokenizer(text, add_special_tokens=False)["input_ids"]
        ids = torch.cat([prefix, torch.tensor(ids)])
        ids, after = ids[:tokens], ids[tokens : tokens + answer]
        prompt, hidden = recompute(engine.decoder, ids, ids[:0], ids[:0], answer + ROOM, OBSERVED)
        if follow:
            states = engine.decoder.read(torch.cat([ids, after[:-1]]), Prompt(tokens + answer))
            likely = engine.decoder.logits(states[tokens:]).argmax(dim=1)
            yield Run(prompt, hidden, after, likely)
            continue
        policy = policy_of(engine, decoding.USUAL, prompt)
        given = Generation(engine.decoder, policy, hidden, ids, Sampling(), answer, set())
        found = torch.tensor(list(given.tokens()))
        yield Run(prompt, hidden, found, found[1:])


# --- attention that is recovered ---


def recovered(engine: Engine, run: Run) -> dict[tuple[int, int, int], Tensor]:
    """Shares (sum, count) by (pool, budget, stride); stride 1 is a choice by the token itself."""
    own = read_on(engine, run)
    found: dict[tuple[int, int, int], Tensor] = {}
    for cache in own.caches.values():
        n, groups = run.prompt.length, len(cache.keys)
        weights = attention(cache, n)
        for pool in POOLS:
            for budget in BUDGETS if pool == POOLS[0] else (256, 1024):
                for stride in (1, *STRIDES):
                    mass = recycled_mass(weights, n, budget, stride, pool, groups)
                    sums = torch.tensor([mass.sum(), mass.numel()])
                    key = pool, budget, stride
                    found[key] = found.get(key, 0) + sums
    return found


def read_on(engine: Engine, run: Run) -> Prompt:
    """The prompt and its answer in a cache that has seen the answer's queries."""
    own = Prompt(run.prompt.length + len(run.answer), len(run.answer) + 1)
    for index, cache in run.prompt.caches.items():
        n = cache.length
        copied = LayerCache(cache.layer, cache.keys[:, :0], cache.values[:, :0], own.capacity)
        copied.keys[:, :n], copied.values[:, :n] = cache.keys[:, :n], cache.values[:, :n]
        copied.length, copied.queries = n, cache.queries[:, -1:]
        own.caches[index] = copied
    engine.decoder.read(run.answer, own)
    return own


def attention(cache: LayerCache, n: int) -> Tensor:
    """Attention (H, T + 1, S) of the prompt's last token and the answer's T to all S tokens."""
    layer, S = cache.layer, cache.length
    q = layer.rotate(cache.queries, slice(n - 1, S), S)
    k = cache.keys[:, :S].repeat_interleave(len(q) // len(cache.keys), dim=0)
    logits = q @ k.mT * layer.scale
    later = torch.arange(S) > torch.arange(n - 1, S)[:, None]
    return logits.masked_fill(later, -torch.inf).softmax(dim=-1)


def recycled_mass(
    weights: Tensor, n: int, budget: int, stride: int, pool: int, groups: int
) -> Tensor:
    """Shares (H, steps) of attention that recycled steps recover.

    Args:
        weights: (H, T + 1, S), of the prompt's last token, number n - 1, and of the answer's.
        n: tokens of the prompt.
        budget, stride, pool: of Recycled Attention; stride 1: each token chooses for itself.
        groups: key/value heads.
    """
    H, rows, _ = weights.shape
    shares = []
    for full in range(0, rows - 1, stride if stride > 1 else EACH):
        received = weights[:, full].unflatten(0, (groups, -1)).amax(dim=1)  # (G, S)
        best = best_tokens(received, torch.tensor([n + full]), budget, pool)
        best = best.repeat_interleave(H // groups, dim=0)  # (H, K)
        since = torch.arange(1, min(stride, rows - full)) if stride > 1 else torch.zeros(1).long()
        seen = weights[:, full + since]  # (H, R, S)
        chosen = seen.gather(2, best[:, None].expand(-1, len(since), -1))
        # One more than the budget is attended to: the token itself. Those since push out the worst.
        left = torch.arange(best.shape[1]) < (budget + 1 - since)[:, None]
        recent = [seen[:, row, n + full : n + full + i].sum(1) for row, i in enumerate(since)]
        shares.append((chosen * left).sum(dim=2) + torch.stack(recent, dim=1))
    return torch.cat(shares, dim=1)


def show_recovered(engine: Engine, given: list[Run]) -> None:
    """Prints the table of recovered attention."""
    found = [recovered(engine, run) for run in given]
    total = {key: sum(one[key] for one in found) for key in found[0]}
    print("Attention recovered in recycled steps, mean over layers, query heads and steps:\n")
    header("budget", "pool", "chosen by each token", *(f"stride {S}" for S in STRIDES))
    for pool, budget in dict.fromkeys((pool, budget) for pool, budget, _ in total):
        sums = [total[pool, budget, stride] for stride in (1, *STRIDES)]
        row(f"{budget:,}", pool, *(f"{100 * mass / count:.1f}%" for mass, count in sums))


# --- tokens that agree ---


@torch.inference_mode()
def agreeing(engine: Engine, run: Run, one: Decoding) -> tuple[list[bool], float]:
    """Whether a policy finds the same tokens most likely, and what it attended to."""
    policy, same = policy_of(engine, one, run.prompt), []
    for token, likely in zip(run.answer[:-1], run.likely, strict=True):
        policy.begin_token()
        hidden = engine.decoder.read(token[None], policy)
        policy.end_token()
        policy.advance()
        same.append(bool(engine.decoder.logits(hidden).argmax() == likely))
    return same, policy.spent().attended


def show_agreeing(engine: Engine, given: list[Run], policies: Sequence[str]) -> None:
    """Prints the table of tokens that agree."""
    prompt, tokens = given[0].prompt.length, len(given[0].answer) - 1
    print(f"\nTokens that agree with dense decoding: {len(given)} prompts of {prompt:,} tokens,")
    print(f"{tokens} tokens after each:\n")
    header("policy", "attended", "agree", "before the first that does not", "prompts without any")
    for text in policies:
        found = [agreeing(engine, run, decoding.choose(text, {})) for run in given]
        rate = sum(sum(same) for same, _ in found) / (tokens * len(found))
        first = [[*same, False].index(False) for same, _ in found]
        attended = sum(count for _, count in found) / len(found)
        mean, whole = sum(first) / len(first), first.count(tokens)
        row(f"`{text}`", f"{attended:,.0f}", f"{100 * rate:.1f}%", f"{mean:.0f}", whole)


def header(*names: str) -> None:
    """The head of a Markdown table."""
    row(*names)
    row(*["---"] * len(names))


def row(*values: object) -> None:
    """A row of it."""
    print(f"| {' | '.join(map(str, values))} |", flush=True)


def main() -> None:
    """Prints all tables, or one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, help="UTF-8; by default $LONGCTX_EVAL's novel")
    parser.add_argument("--only", choices=("attention", "tokens"))
    options = parser.parse_args()
    novel = Path(os.environ.get("LONGCTX_EVAL", "")) / "anna-karenina.txt"
    file = options.text or (novel if novel.exists() else None)
    engine, started = prepare(Setup(device="cpu", dtype="fp32")), time.perf_counter()
    print(f"{engine.files.name}, {file.name if file else 'samples'}", file=sys.stderr)
    given = list(runs(engine, file, PROMPT, ANSWER))
    if options.only != "tokens":
        show_recovered(engine, given)
    if options.only != "attention":
        show_agreeing(engine, given, AGREEING)
        show_agreeing(engine, list(runs(engine, file, SHORT, LONG, follow=True)), ANSWERING)
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
