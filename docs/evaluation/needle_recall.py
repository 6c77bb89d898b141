"""Which layers find the needle: InfLLM and Ltri-LLM, by layer, answered and failed questions apart.

    python docs/evaluation/needle_recall.py --lengths 16k,64k --methods infllm,ltri

Prints Markdown. A pass key and a number at each of 11 depths of one haystack for each length, as
`longctx niah` hides them; of the blocks that a needle lies in, the share that a layer retrieved
while the question was read. Needles in the first tokens or the local window, which are in view
without being retrieved, are left out. Then: bytes of the span index, and seconds to the first token
of the first question to an opened document and of the same question asked again, when its blocks
are in the cache.
"""

import argparse
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean

from longctx.core import methods
from longctx.core.ask.session import Session
from longctx.core.common.units import parse_tokens
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import prepare
from longctx.core.engine.staying import weights_stay
from longctx.core.ingest.ingest import ingest
from longctx.core.measure.haystack import Builder
from longctx.core.measure.markdown import table
from longctx.core.measure.niah.kinds import MAKERS
from longctx.core.measure.niah.laying import Laid, NeedleChoice, lay
from longctx.core.measure.niah.scoring import is_right
from longctx.core.measure.niah.variants import variant
from longctx.core.measure.prose import read_prose
from longctx.core.measure.runner import How, ask

Blocks = dict[int, set[int]]  # layer -> the blocks that it retrieved


@contextmanager
def recording(method: str) -> Iterator[Blocks]:
    """Which blocks each layer retrieves for what is read; the caller clears it."""
    kind = methods.load(method).Method
    seen: Blocks = defaultdict(set)
    choose: Callable = kind.choose

    def noted(self, layer, read, index):
        chosen = choose(self, layer, read, index)
        if not self.answering:
            seen[layer.index].update(chosen.blocks.tolist())
        return chosen

    kind.choose = noted
    try:
        yield seen
    finally:
        kind.choose = choose


def hidden(laid: Laid, number: int, tokenizer, prefix: int, sizes, tokens: int) -> set[int]:
    """Blocks that a needle lies in; none where a part of it is in view anyway."""
    first = laid.tokens[number] + prefix
    needle = laid.plan.hidden[number].needle
    last = first + len(tokenizer(needle.lines[0], add_special_tokens=False).input_ids) - 1
    if first < sizes.first or last >= sizes.start(tokens + prefix):
        return set()
    return {*range((first - sizes.first) // sizes.block, (last - sizes.first) // sizes.block + 1)}


def measure(method: str, length: int, depths: int, setup: Setup, folder: Path) -> None:
    """Reads one haystack, asks for its needles, and prints what was found."""
    reading = replace(setup, method=method)
    engine = prepare(reading)
    tokenizer = engine.files.tokenizer
    builder = Builder(tokenizer, read_prose())
    prefix = len(engine.prompt.prefix())
    needles = NeedleChoice(variant(None)[0], MAKERS, depths)
    (plan,) = needles.plans(builder, length, 0)
    laid = lay(builder, plan)
    text = folder / "haystack.txt"
    text.write_bytes(laid.case.text.encode())
    done = ingest(folder / method, [str(text)], reading, name=f"{length}")
    recalls = {True: defaultdict(list), False: defaultdict(list)}
    with recording(method) as seen, Session(folder / method, f"{length}", setup) as session:
        sizes = session.engine.options
        cold = ask(session, laid.case.queries[0], How(max_new_tokens=24)).timings["first_token_s"]
        warm = ask(session, laid.case.queries[0], How(max_new_tokens=24)).timings["first_token_s"]
        right: Counter[float] = Counter()  # by depth
        for number, query in enumerate(laid.case.queries):
            seen.clear()
            asked = ask(session, query, How(max_new_tokens=24))
            answered = is_right(query.answers[0], asked.answer)
            right[laid.plan.hidden[number].depth] += answered
            gold = hidden(laid, number, tokenizer, prefix, sizes, length)
            for layer, blocks in seen.items() if gold else ():
                recalls[answered][layer].append(len(gold & blocks) / len(gold))
        snapshot = session.document.snapshot()
    index = sum(x.nbytes for name, x in snapshot.items() if name.startswith("index"))
    print(
        f"\n{method}, {length:,} tokens: answered {right.total()} of {len(laid.case.queries)} "
        f"(by depth {' '.join(str(right[depth]) for depth in sorted(right))}); read at "
        f"{done.tokens_per_s:,.0f} tokens/s; first token cold {cold:.2f} s, warm {warm:.2f} s; "
        f"index {index / length * 100_000 / 1e6:.2f} MB per 100,000 tokens\n"
    )
    layers = sorted({*recalls[True], *recalls[False]})
    rows = []
    for answered, name in ((True, "answered"), (False, "failed")):
        found = [recalls[answered][layer] for layer in layers]
        count = max(map(len, found), default=0)
        rows.append([name, str(count), *(f"{mean(x):.2f}" if x else "" for x in found)])
    print(table(["needle recall by layer", "n", *map(str, layers)], rows))


def main() -> None:
    """Reads arguments and prints tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", default="16k,64k")
    parser.add_argument("--methods", default="infllm,ltri")
    parser.add_argument("--depths", type=int, default=11)
    parser.add_argument("--model")
    parser.add_argument("--profile")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    setup = Setup(
        model=given.model, profile=given.profile, device=given.device, threads=given.threads
    )
    with weights_stay():
        for length in map(parse_tokens, given.lengths.split(",")):
            for method in given.methods.split(","):
                with tempfile.TemporaryDirectory(prefix="longctx-recall-") as folder:
                    measure(method, length, given.depths, setup, Path(folder))


if __name__ == "__main__":
    main()
