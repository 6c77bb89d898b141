"""Evaluates a model on held-out frames, natural questions, refusals and bits per byte.

    python -m longctx.profiles.recipe.evaluation.evaluate MODEL \\
        --frames profiles/tiny/heldout-frames.yaml --prose BOOKS --code SOURCES --log LOGS \\
        --squad dev.jsonl.xz --held-out BOOK --train-text BOOKS --out results

MODEL is `tiny` or a folder, and is run by plain transformers; paths are files (also .xz,
.gz) or folders. What is given decides what is measured. Writes results.json and results.md, prints
the latter, and reports progress on standard error. `--cases 10 --lengths 1024` is a first look on a
CPU.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from longctx.core.ask.refusing import PHRASE
from longctx.core.measure.eval.frames import Heldout
from longctx.core.profile.prompt import PromptEncoder
from longctx.profiles.recipe.data.corpus import read_records
from longctx.profiles.recipe.evaluation import natural, report
from longctx.profiles.recipe.evaluation.answers import Answerer
from longctx.profiles.recipe.evaluation.bits import bits_per_byte
from longctx.profiles.recipe.evaluation.cases import (
    Case,
    CaseBuilder,
    refusal_plans,
    retrieval_plans,
)
from longctx.profiles.recipe.evaluation.filler import Haystack, read_texts
from longctx.profiles.recipe.reading import profile_of

TRAIN_LIMIT, HELD_OUT_LIMIT = 16 << 20, 2 << 20  # characters for the n-gram model, and to predict

HAYSTACKS = ("prose", "code", "log")

Trial = dict[str, Any]


def retrieval(
    builder: CaseBuilder, answerer: Answerer, kinds: list[str], count: int, lengths: list[int]
) -> list[Trial]:
    """Asks `count` cases of every kind at every length."""
    jobs = [(kind, length, retrieval_plans(kind, count)) for kind in kinds for length in lengths]
    built = _ahead([lambda job=job: builder.build(job[2], job[1]) for job in jobs])
    trials = []
    for (kind, length, _), cases in zip(jobs, built, strict=True):
        _tell(f"{kind}, {length:,} tokens")
        trials += _asked(answerer, cases, kind, length)
    return trials


def refusal(
    builder: CaseBuilder, answerer: Answerer, heldout: Heldout, count: int, lengths: list[int]
) -> list[Trial]:
    """Asks cases, half of which have no answer in their document.

    A refusal is the phrase of the frames or that of `ask`: models learnt either.
    """
    trials, phrases = [], (heldout.absent_answer, PHRASE)
    for length in lengths:
        _tell(f"with and without an answer, {length:,} tokens")
        cases = builder.build(refusal_plans(heldout.absent_kinds, count), length)
        for trial, case in zip(_asked(answerer, cases, "", length), cases, strict=True):
            refused, absent = trial["answer"] in phrases, case.plan.absent
            right = refused if absent else trial["right"]
            trials.append({**trial, "absent": absent, "refused": refused, "right": right})
    return trials


def _asked(answerer: Answerer, cases: list[Case], kind: str, length: int) -> list[Trial]:
    limits = [answerer.room(case.answer) for case in cases]
    answers = answerer.answers([case.prompt for case in cases], limits)
    return [
        {
            "kind": kind or case.plan.kind,
            "length": length,
            "haystack": case.haystack,
            "depth": case.depth,
            "distractors": len(case.document.needles) > case.statements,
            "question": case.question,
            "expected": case.answer,
            "answer": answer,
            "right": answer == case.answer,
        }
        for case, answer in zip(cases, answers, strict=True)
    ]


def main(arguments: list[str] | None = None) -> None:
    """Runs what the options give material for, writes the report part by part, and prints it."""
    options = _options(arguments)
    started = time.perf_counter()
    found: dict[str, Any] = {}
    for part in _parts(options):
        found |= {**part, "seconds": round(time.perf_counter() - started, 1)}
        options.out.with_suffix(".json").write_text(json.dumps(found, indent=1), "utf-8")
        options.out.with_suffix(".md").write_text(report.markdown(found), "utf-8")
    print(report.markdown(found))


def _parts(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The parts of the report, each as soon as it is known."""
    answerer = Answerer(options.model, options.device, options.dtype)
    profile = profile_of(answerer.files, options.profile)
    prompt = PromptEncoder(profile.prompt, answerer.files.tokenizer)
    haystacks = _haystacks(options, answerer.backend)
    parameters = answerer.files.num_parameters()
    yield {"model": options.model, "parameters": parameters, "seed": options.seed}
    if options.frames:
        heldout = Heldout.load(options.frames)
        texts = list(haystacks.values())
        builder = CaseBuilder(heldout, texts, prompt, answerer.backend, options.seed)
        kinds = options.kinds or list(heldout.kinds)
        trials = retrieval(builder, answerer, kinds, options.cases, options.lengths)
        yield report.retrieval(trials, options.examples)
        trials = refusal(builder, answerer, heldout, options.cases, options.lengths)
        yield report.refusal(trials, options.examples)
    if options.squad:
        records = read_records(options.squad)
        contexts = [*dict.fromkeys(record["context"] for record in records)]
        asking = natural.Questioner(answerer, prompt, profile.max_new_tokens)
        asked, prose = records[: options.squad_cases], haystacks.get("prose")
        trials = asking.ask(asked, contexts, prose, max(options.lengths))
        yield report.squad(trials, options.examples)
    if options.held_out:
        held_out = list(read_texts(options.held_out, options.seed, HELD_OUT_LIMIT))
        train = list(read_texts(options.train_text, options.seed, TRAIN_LIMIT))
        yield {"bits_per_byte": bits_per_byte(answerer, prompt, held_out, train)}


def _haystacks(options: argparse.Namespace, backend: Tokenizer) -> dict[str, Haystack]:
    """The haystacks that paths were given for, by name."""
    started = time.perf_counter()
    given = {name: paths for name in HAYSTACKS if (paths := getattr(options, name))}
    found = {n: Haystack(n, paths, backend, options.seed) for n, paths in given.items()}
    seconds = time.perf_counter() - started
    print(f"read {', '.join(found) or 'no haystacks'} in {seconds:.0f} s", file=sys.stderr)
    return found


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="tiny, or a folder in Hugging Face format")
    parser.add_argument("--frames", type=Path, help="YAML file of held-out frames")
    for name in HAYSTACKS:
        text = f"files (also .xz, .gz) or folders of {name} to hide needles in"
        parser.add_argument(f"--{name}", type=Path, nargs="+", default=[], help=text)
    parser.add_argument("--profile", type=Path, help="YAML file; default: the model folder's own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--dtype", default="auto", help="auto, bf16, fp16 or fp32")
    parser.add_argument("--squad", type=Path, help="jsonl with context, question, answers")
    parser.add_argument("--squad-cases", type=int, help="records taken; all by default")
    parser.add_argument("--held-out", type=Path, nargs="+", default=[], help="bits per byte of it")
    parser.add_argument("--train-text", type=Path, nargs="+", default=[], help="for the n-grams")
    parser.add_argument("--cases", type=int, default=500, help="cases of each kind and length")
    parser.add_argument("--kinds", nargs="+", help="of the frames; all by default")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 4000])
    parser.add_argument("--examples", type=int, default=12, help="misses kept, of each kind")
    parser.add_argument("--out", type=Path, default=Path("evaluation"), help="without suffix")
    options = parser.parse_args(arguments)
    if options.frames and not any(getattr(options, name) for name in HAYSTACKS):
        parser.error("--frames needs --prose, --code or --log, to hide needles in")
    return options


def _ahead(builds: list[Callable[[], Any]]) -> Iterator[Any]:
    """Each function's result, in order; while one is in use, the next ones are made."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        for future in [pool.submit(build) for build in builds]:
            yield future.result()


def _tell(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
