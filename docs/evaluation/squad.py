"""How well a model reads a paragraph: questions in SQuAD's format, alone and among others.

    python docs/evaluation/squad.py FILE --model small --others 7 --limit 400

Each question is put with its paragraph, and so many other paragraphs of the file, in an order drawn
from a fixed seed, in the model's own template; nothing is gathered. Exact match and F1 are SQuAD's.
FILE has JSON lines (also .xz) with `context`, `question` and `answers`.
"""

import argparse
import json
import lzma
import random
import sys
from pathlib import Path

import torch

from longctx.core.ask.recompute import recompute
from longctx.core.decode import policies
from longctx.core.decode.decode import Generation
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import Engine, prepare
from longctx.core.measure.eval.text_match import exact_match, f1
from longctx.core.measure.intervals import wilson
from longctx.core.profile.sampling import Sampling


def records(file: Path) -> list[dict]:
    """The questions of a file."""
    with lzma.open(file, "rt") if file.suffix == ".xz" else file.open() as lines:
        return [json.loads(line) for line in lines]


def text_of(record: dict, contexts: list[str], others: int, number: int) -> str:
    """The question's paragraph among others, in an order drawn from its number."""
    rng = random.Random(number)
    more = rng.sample([one for one in contexts if one != record["context"]], others)
    found = [record["context"], *more]
    rng.shuffle(found)
    return "\n\n".join(one.strip() for one in found)


@torch.inference_mode()
def answer(engine: Engine, text: str, question: str) -> str:
    """The model's answer, decoded greedily from the text in its template."""
    limit, tokenizer = engine.profile.max_new_tokens, engine.files.tokenizer
    asked, _ = engine.prompt.question(question)
    parts = engine.prompt.prefix(), engine.prompt.text(text), asked
    cache, hidden = recompute(engine.decoder, *parts, limit)
    policy = policies.load("dense").Policy(engine.decoding.options, cache, engine.window)
    ends = engine.files.eos_ids()
    generation = Generation(
        engine.decoder, policy, hidden, torch.cat(parts), Sampling(), limit, ends
    )
    return "".join(generation.texts(tokenizer)).strip()


def main() -> None:
    """Asks all questions, and prints the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--model", default="small")
    parser.add_argument("--others", type=int, default=7)
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    asked = records(options.file)
    contexts = [*dict.fromkeys(record["context"] for record in asked)]
    engine, scores = prepare(Setup(model=options.model, method="full")), []
    for number, record in enumerate(asked[: options.limit]):
        text = text_of(record, contexts, options.others, number)
        given, accepted = answer(engine, text, record["question"]), tuple(record["answers"])
        scores.append((exact_match(accepted, given), f1(accepted, given)))
        if number % 50 == 49:
            print(number + 1, *means(scores), file=sys.stderr, flush=True)
    exact, mean = means(scores)
    low, high = wilson(round(exact * len(scores)), len(scores))
    print(f"{len(scores)} questions: EM {exact:.3f} ({low:.3f} to {high:.3f}), F1 {mean:.3f}")


def means(scores: list[tuple[float, float]]) -> tuple[float, float]:
    """Mean exact match and F1."""
    exact, mean = (sum(values) / len(scores) for values in zip(*scores, strict=True))
    return round(exact, 3), round(mean, 3)


if __name__ == "__main__":
    main()
