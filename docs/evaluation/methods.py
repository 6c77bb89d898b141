"""Every reading method with one model: needles at several lengths, and `eval compare`, as Markdown.

    python docs/evaluation/methods.py --model MODEL --device cuda --out methods
    python docs/evaluation/methods.py --model MODEL --lengths 4k --short 4k --depths 2 --out try

`--out` gets needles.jsonl, a line for each method and length, and methods.md. What is there is not
measured again, and nothing is begun after `--minutes`: the same command goes on where it stopped.
Methods that evict, which lose what they dropped whatever the model, are measured at `--short`
alone; full attention at `--full`, which has to fit the window. The second table is that of
`eval compare`, which reads texts of `--compare` (none: no second table) in processes of its own.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from longctx.core.common.errors import LongctxError
from longctx.core.common.units import parse_tokens, show_tokens
from longctx.core.engine.choice import Setup
from longctx.core.measure.eval import compare
from longctx.core.measure.eval.compare_files import as_markdown
from longctx.core.measure.intervals import wilson
from longctx.core.measure.markdown import table
from longctx.core.measure.niah import needle_test
from longctx.core.measure.niah.needle_test import NeedleTest

KEEPING = ("reform", "reattention", "ltri", "infllm")  # find what they need of all the text
EVICTING = ("streaming", "h2o", "tova", "truncate")
HEADERS = ("method", "tokens", "answered", "95%", "gathered", "by depth", "tokens/s", "s/question")

Result = dict[str, Any]


def plan(given: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Methods and lengths: the short texts of all methods first."""
    for length in sorted(lengths(given.short) | lengths(given.lengths)):
        if length in lengths(given.lengths):
            yield from ((method, length) for method in given.methods.split(","))
        if length in lengths(given.short):
            yield from ((method, length) for method in EVICTING)
    yield from (("full", length) for length in sorted(lengths(given.full)))


def lengths(text: str) -> set[int]:
    """Lengths named on the command line."""
    return {parse_tokens(one) for one in text.split(",") if one}


def measure(setup: Setup, method: str, length: int, depths: int) -> Result:
    """Needles of one haystack; or why there are none."""
    found: Result = {"method": method, "length": length, "depths": depths}
    try:
        wanted = NeedleTest(lengths=(length,), depths=depths)
        report = needle_test.run(replace(setup, method=method), wanted)
    except LongctxError as error:
        return {**found, "failed": str(error)}
    trials = report.asked
    places = sorted({trial.depth for trial in trials})
    return {
        **found,
        "asked": len(trials),
        "answered": sum(trial.answered for trial in trials),
        "gathered": sum(trial.gathered for trial in trials),
        "by_depth": [sum(t.answered for t in trials if t.depth == place) for place in places],
        "tokens_per_s": report.tokens_per_s,
        "s_per_question": round(mean(trial.timings["total_s"] for trial in trials), 2),
        "wrong": [[t.expected, t.answer[:60]] for t in trials if not t.answered],
    }


def row(found: Result) -> list[str]:
    """A row of the first table."""
    name = [found["method"], show_tokens(found["length"])]
    if "failed" in found:
        return [*name, found["failed"], *[""] * (len(HEADERS) - 3)]
    low, high = wilson(found["answered"], found["asked"])
    return [
        *name,
        f"{found['answered']} of {found['asked']}",
        f"{low:.0%} to {high:.0%}",
        str(found["gathered"]),
        " ".join(map(str, found["by_depth"])),
        f"{found['tokens_per_s']:,.0f}",
        f"{found['s_per_question']:.2f}",
    ]


def needles(setup: Setup, given: argparse.Namespace, in_time: Callable[[], bool]) -> list[Result]:
    """All results so far; measures what is missing while there is time."""
    file = given.out / "needles.jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(one["method"], one["length"]) for one in found}
    for method, length in plan(given):
        if (method, length) not in done and in_time():
            found.append(measure(setup, method, length, given.depths))
            with file.open("a") as out:
                out.write(json.dumps(found[-1]) + "\n")
            print(*row(found[-1]), sep="  ", flush=True)
    return found


class Late(Exception):
    """There is no time for the next method."""


def compared(setup: Setup, given: argparse.Namespace, in_time: Callable[[], bool]) -> str:
    """The table of `eval compare`; a line that says so, where time ran out."""

    def begin(run: compare.MethodRun) -> None:
        if not in_time():
            raise Late(run.name)

    wanted = compare.Comparison(
        methods=(*given.methods.split(","), *EVICTING),
        decode=("dense",),
        lengths=tuple(sorted(lengths(given.compare))),
        tasks=("niah", "niah-multikey"),
        samples=given.depths,
        in_window=given.in_window and parse_tokens(given.in_window),
    )
    try:
        return as_markdown(compare.run(setup, wanted, given.out / "compare", begin).rows)
    except Late as late:
        return f"`eval compare` is unfinished: no time for {late}; run the same command again."


def main() -> None:
    """Reads arguments, measures, and writes Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--profile")
    parser.add_argument("--methods", default=",".join(KEEPING))
    parser.add_argument("--lengths", default="16k,64k,128k")
    parser.add_argument("--short", default="16k", help="lengths for methods that evict")
    parser.add_argument("--full", default="4k", help="lengths for full attention")
    parser.add_argument("--depths", type=int, default=11)
    parser.add_argument("--compare", default="", help="lengths for `eval compare`")
    parser.add_argument("--in-window", default="", help="its length for full attention")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    setup = Setup(given.model, given.profile, device=given.device, threads=given.threads)
    end = time.monotonic() + 60 * given.minutes

    def in_time() -> bool:
        return time.monotonic() < end

    text = table(HEADERS, map(row, needles(setup, given, in_time)))
    if given.compare:
        text += "\n\n" + compared(setup, given, in_time)
    (given.out / "methods.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
