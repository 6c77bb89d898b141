"""Long answers: time and memory of a token by token, with RaaS, dense decoding and Quest.

    python docs/evaluation/raas_flat.py --json flat.json
    python docs/evaluation/raas_flat.py --shapes tiny --device cpu --answer 2k --json flat.json
    python docs/evaluation/raas_flat.py --csv flat.json > flat.csv
    python docs/evaluation/raas_flat.py --plot flat.svg flat.json     # pip install matplotlib

A model of random weights answers 16K tokens to a prompt of 1K whose keys and values are random.
`held` counts the entries of a layer and key/value head that the policy holds, `held_bytes` what
they take in all layers; `allocated_bytes` is what the device has allocated beside the weights, room
for the whole answer included where a policy needs it (on the CPU: nothing is known).
"""

import argparse
import csv
import gc
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from longctx.core.common.device import empty_cache
from longctx.core.common.units import parse_tokens
from longctx.core.decode import policies as decoding
from longctx.core.decode.policies import Decoding
from longctx.core.engine.setup import Engine
from longctx.core.kv.prompt import Prompt
from longctx.core.measure.bench.floors import entry_bytes
from longctx.core.measure.bench.machine import machine_of
from longctx.core.measure.bench.policies import generation_of
from longctx.core.measure.bench.shapes import Wanted, open_engine

POLICIES = ("raas", "dense", "quest")
EVERY = 256  # tokens
COLUMNS = ("policy", "tokens", "ms", "held", "held_bytes", "allocated_bytes")


def points(engine: Engine, one: Decoding, tokens: int, answer: int) -> Iterator[dict]:
    """Time of a token and memory, every 256 tokens of an answer.

    Args:
        engine: the model.
        one: the policy.
        tokens: of the prompt.
        answer: tokens after it.
    """
    before = allocated(engine.device)
    prompt = Prompt(tokens + one.options.reserve(answer), one.options.observed)
    prompt.fill(engine.decoder.layers, tokens, engine.device, engine.dtype)
    policy = decoding.load(one.name).Policy(
        one.options, prompt, max(engine.window, tokens + answer)
    )
    del prompt  # what of it is needed has the policy
    size = entry_bytes(engine.decoder.layers, engine.dtype.itemsize)
    given = generation_of(engine, engine.decoder, policy, tokens, answer).tokens()
    started = time.perf_counter()
    for count, _ in enumerate(given, 1):
        if count % EVERY:
            continue
        now = time.perf_counter()
        held, taken = policy.spent().held, allocated(engine.device)
        yield {
            "policy": one.name,
            "tokens": tokens + count,
            "ms": round((now - started) / EVERY * 1e3, 4),
            "held": held,
            "held_bytes": held * size,
            "allocated_bytes": None if taken is None else taken - before,
        }
        started = time.perf_counter()


def allocated(device: str) -> int | None:
    """Bytes of tensors on a device; None where unknown."""
    if not device.startswith("cuda"):
        return None
    gc.collect()
    return torch.cuda.memory_allocated(device)


def measured(wanted: Wanted, tokens: int, answer: int, policies: list[str]) -> Iterator[dict]:
    """One policy after another: the report so far, after each."""
    engine = open_engine(wanted)
    chosen = [decoding.choose(text, {}) for text in policies]
    rows: list[dict] = []
    for _ in points(engine, decoding.USUAL, tokens, EVERY):
        pass  # uncounted: what is made of the model when it first decodes stays
    for text, one in zip(policies, chosen, strict=True):
        print(f"{text}: {answer:,} tokens after {tokens:,}", file=sys.stderr)
        empty_cache(engine.device)
        rows += points(engine, one, tokens, answer)
        yield {"machine": vars(machine_of(engine)), "policies": policies, "points": rows}


def plot(report: dict, file: Path) -> None:
    """Draws time and memory by tokens, one line a policy.

    The first point of each is left out: kernels are compiled and graphs captured in it.
    """
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    for name in dict.fromkeys(point["policy"] for point in report["points"]):
        rows = [point for point in report["points"] if point["policy"] == name][1:]
        tokens = [row["tokens"] for row in rows]
        left.plot(tokens, [row["ms"] for row in rows], label=name)
        right.plot(tokens, [row["held_bytes"] / 1e9 for row in rows], label=name)
    for axes, what in ((left, "milliseconds a token"), (right, "GB of keys and values held")):
        axes.set_xlabel("tokens of prompt and answer")
        axes.set_ylabel(what)
        axes.set_ylim(bottom=0)
        axes.legend()
    machine = report["machine"]
    figure.suptitle(f"{machine['model']}, {machine['processor']}, {machine['dtype']}")
    figure.tight_layout()
    figure.savefig(file)


def main() -> None:
    """Measures, or shows what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path, nargs="?", help="what --json has written")
    parser.add_argument("--plot", type=Path, help="draw it: an .svg or .png file")
    parser.add_argument("--csv", action="store_true", help="print it as CSV")
    parser.add_argument("--json", type=Path, help="measure, and write this file")
    parser.add_argument("--shapes", default="llama-3.1-8b")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--prompt", type=parse_tokens, default=1 << 10)
    parser.add_argument("--answer", type=parse_tokens, default=1 << 14)
    parser.add_argument("--decode", action="append", help="a policy with its options; repeatable")
    options = parser.parse_args()
    if options.json:
        wanted = Wanted(shape=options.shapes, device=options.device, dtype=options.dtype)
        policies = options.decode or list(POLICIES)
        for report in measured(wanted, options.prompt, options.answer, policies):
            options.json.write_text(json.dumps(report, indent=1), "utf-8")  # it takes long
    elif options.report is None:
        parser.error("give --json to measure, or a file that it has written")
    else:
        report = json.loads(options.report.read_text("utf-8"))
    if options.plot:
        plot(report, options.plot)
    if options.csv:
        writer = csv.DictWriter(sys.stdout, COLUMNS)
        writer.writeheader()
        writer.writerows(report["points"])


if __name__ == "__main__":
    main()
