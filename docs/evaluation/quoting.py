"""What answers that must be quotations gain or lose beside free ones, and what they cost.

    python docs/evaluation/quoting.py LIBRARY DOCUMENT=QUESTIONS ... --gather 300,1024

One prompt for each question and number of gathered tokens; from it the model answers freely, by
the likeliest stretch (as `ask --quote`), by the stretch that always taking the likeliest allowed
token gives, and by the best of the stretches that `--passes` paths complete under other scores.
Times are CPU seconds. Prints Markdown.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from longctx.core.ask.answering import Begun, Question
from longctx.core.ask.quoting import PASSES, PHRASE, excerpts, phrase_of, spelling_of
from longctx.core.ask.session import Session
from longctx.core.decode.decode import Generation
from longctx.core.decode.policies import USUAL
from longctx.core.decode.quoting.forks import Forks
from longctx.core.decode.quoting.search import Reads, Search, Stretch
from longctx.core.engine.choice import Setup
from longctx.core.measure.eval.qa_questions import Item, read_items
from longctx.core.measure.eval.text_match import contained, exact_match
from longctx.core.measure.intervals import wilson
from longctx.core.passages.quotable import Quotable
from longctx.core.profile.sampling import Sampling

SCORES: dict[str, Callable[[Stretch], float]] = {
    "sum": lambda one: one.score,
    "sum without the end": lambda one: one.score - one.end,
    "mean of a token, the end one": lambda one: one.score / (len(one.path) + 1),
    "mean of a token without the end": lambda one: (one.score - one.end) / len(one.path),
}
FREE, QUOTE, GREEDY = "free", "`--quote`", "likeliest allowed token"


def timed(costs: dict[str, float], name: str, work: Callable[[], Any]) -> Any:
    """The result of some work, whose CPU seconds are added to `costs`."""
    begun = time.process_time()
    result = work()
    costs[name] += time.process_time() - begun
    return result


def answers(session: Session, item: Item, gather: int, passes: int) -> dict[str, Any]:
    """Every kind of answer to a question, with CPU seconds and passes."""
    engine, costs = session.engine, defaultdict(float)
    limit = engine.profile.max_new_tokens
    way = session._way(item.question, None)
    ids, scored = engine.prompt.question(item.question)
    asked = Question(ids, scored, limit, gather, USUAL, item.question)
    begun: Begun = timed(costs, "prompt", lambda: way.begin(asked, lambda: None))
    ends, tokenizer = sorted(engine.files.eos_ids()), engine.files.tokenizer
    assert begun.cache is not None

    def free() -> str:
        parts = begun.policy, begun.hidden, begun.prompt, Sampling(), limit, {*ends}
        return "".join(Generation(engine.decoder, *parts).texts(tokenizer)).strip()

    given = {FREE: timed(costs, "free", free)}
    text = Quotable(excerpts(way.documents, begun.found()))
    forks = Forks(engine.decoder, begun.cache, begun.hidden)

    known: dict[tuple[int, ...], torch.Tensor] = {}  # so that the other searches cost less

    def after(path: tuple[int, ...]) -> torch.Tensor:
        if path not in known:
            known[path] = forks.after(path)
        return known[path]

    def quote() -> tuple[Search, Stretch | None]:
        _, floor = phrase_of(tokenizer, forks, ends, limit)
        search = Search(text, spelling_of(tokenizer), after, ends, limit, floor)
        return search, search.run(PASSES)

    search, best = timed(costs, "quote", quote)
    given[QUOTE] = text.span(*best.spans[0]).text if best else PHRASE
    told = {"passes": search.passes, "exact": search.exact, "probability": best and best.score}
    wide = Search(text, spelling_of(tokenizer), after, ends, limit)
    while wide.passes < passes and wide.step():
        pass
    for name, score in SCORES.items() if wide.complete else ():
        given[name] = text.span(*max(wide.complete, key=score).spans[0]).text
    path = greedy(text, tokenizer, after, ends, limit)
    given[GREEDY] = tokenizer.decode(path)
    return {"answers": given, "costs": costs, **told}


def greedy(
    text: Quotable, tokenizer: Any, after: Reads, ends: list[int], limit: int
) -> tuple[int, ...]:
    """The path of the likeliest allowed token each time, until the end is likelier."""
    spelling, path, places = spelling_of(tokenizer), (), text.begins
    while len(path) < limit:
        scores = after(path)
        follow = (spelling.continuing if path else spelling.beginning)(text.data, places)
        if not follow:
            break
        numbers = torch.tensor([*follow])
        best = int(numbers[scores[numbers].argmax()])
        done = {*places} & text.ends and spelling.spelled(path).strip()
        if done and scores[ends].logsumexp(0) > scores[best]:
            break
        path, places = (*path, best), follow[best]
    return path


def table(rows: list[dict[str, Any]], items: list[Item], title: str) -> None:
    """Prints what was counted of the rows with one number of gathered tokens."""
    print(f"\n{title}\n\n| answer | answered | 95% | exact |\n|---|---|---|---|")
    for name in rows[0]["answers"]:
        texts = [row["answers"].get(name, "") for row in rows]
        texts = [" ".join(text.split()) for text in texts]
        pairs = [(item.answers, text) for item, text in zip(items, texts, strict=True)]
        right = sum(contained(*pair) for pair in pairs)
        low, high = wilson(right, len(pairs))
        exact = sum(exact_match(*pair) for pair in pairs)
        told = f"{right:.0f} of {len(pairs)}"
        print(f"| {name} | {told} | {low:.0%} to {high:.0%} | {exact:.0f} |")
    mean = {name: sum(row["costs"][name] for row in rows) / len(rows) for name in rows[0]["costs"]}
    passes = [row["passes"] for row in rows]
    costs = ", ".join(f"{name} {seconds:.2f}" for name, seconds in mean.items())
    unproved = sum(not row["exact"] for row in rows)
    told = f"passes {sum(passes) / len(rows):.1f}, at most {max(passes)}; not proved {unproved}"
    print(f"\nCPU seconds a question: {costs}; {told}")


def main() -> None:
    """Asks every question of every document named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", type=Path)
    parser.add_argument("sets", nargs="+", metavar="DOCUMENT=QUESTIONS")
    parser.add_argument("--gather", default="300,1024")
    parser.add_argument("--passes", type=int, default=12)
    parser.add_argument("--out", type=Path, help="a file for every answer")
    given = parser.parse_args()
    budgets = [int(one) for one in given.gather.split(",")]
    rows: dict[int, list[dict[str, Any]]] = {budget: [] for budget in budgets}
    items: list[Item] = []
    for name, _, file in (one.partition("=") for one in given.sets):
        with Session(given.library, name, Setup(threads=1)) as session:
            for item in read_items(Path(file)):
                items.append(item)
                for budget in budgets:
                    told = answers(session, item, budget, given.passes)
                    rows[budget].append(
                        {"document": name, "question": item.question, "right": item.answers, **told}
                    )
        if given.out:
            given.out.write_text(json.dumps(rows, indent=1), "utf-8")
    for budget in budgets:
        table(rows[budget], items, f"{budget:,} tokens gathered, {len(items)} questions")


if __name__ == "__main__":
    main()
