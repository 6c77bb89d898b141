"""Questions of the model's own: it asks about stretches of text, and keeps what it can answer.

    python -m longctx.profiles.recipe.tuning.round_trip DOCUMENTS... --run RUN --out FILE

A stretch is read, an answer and its question are drawn, and the question is put to the model with
the stretch: it stays if the model gives the same answer, and that stands in the stretch (roundtrip
filtering: Alberti et al., ACL 2019). Writes the documents with the questions that stayed.
"""

import argparse
import random
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from longctx.core.measure.eval.text_match import f1
from longctx.profiles.recipe.data import asked
from longctx.profiles.recipe.data.asked import AskedDocument, Question
from longctx.profiles.recipe.tuning import settings, state
from longctx.profiles.recipe.tuning.model import Tuned
from longctx.profiles.recipe.tuning.train import Bench
from longctx.profiles.recipe.tuning.writing import Writer

SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?]+[\"'”’)\]]*|\n|$)|\n")  # noqa: RUF001
SIZES = 450, 1300  # characters of a stretch
SHARE = {"log": 0.3, "table": 0.2, "facts": 0.0, "babi": 0.0}  # how often, beside books' 1
ASKED, ANSWERED = 44, 24  # tokens written
SAME = 0.7  # F1 of two answers that are taken for the same
ABOUT = re.compile(r"\b(?:text|passage|paragraph|story|author|narrator|excerpt)\b", re.I)
VAGUE = re.compile(
    r"^\w+ (?:is|was|did|does|are|were|do) (?:he|she|it|they|this|that|these)\b[^A-Z]*$"
)


@dataclass(frozen=True)
class Stretch:
    """Characters [start, end) of a document."""

    document: int
    start: int
    end: int


def stretches(documents: list[AskedDocument], count: int, rng: random.Random) -> list[Stretch]:
    """About `count` stretches of whole sentences, from all documents by their length and kind."""
    weights = [len(one.text) * SHARE.get(one.kind, 1.0) for one in documents]
    total, found = sum(weights), []
    for number, (document, weight) in enumerate(zip(documents, weights, strict=True)):
        wanted = count * weight / total
        drawn = int(wanted) + (rng.random() < wanted % 1)
        if not drawn:
            continue
        sentences = [match.span() for match in SENTENCE.finditer(document.text)]
        for _ in range(drawn):
            first = rng.randrange(len(sentences))
            start, size = sentences[first][0], rng.randint(*SIZES)
            last = first
            while last + 1 < len(sentences) and sentences[last][1] - start < size:
                last += 1
            if sentences[last][1] - start > SIZES[0] // 2:
                found.append(Stretch(number, start, sentences[last][1]))
    return found


def drawn_pair(text: str, stretch: str) -> tuple[str, str] | None:
    """The answer and the question of a drawn text, if they can be used.

    Args:
        text: the answer, a line end, and the question.
        stretch: the text that was asked about.
    """
    answer, _, question = (part.strip() for part in text.partition("\n"))
    words = question.split()
    if not (question.endswith("?") and 4 <= len(words) <= 28 and 0 < len(answer.split()) <= 14):
        return None
    if answer.lower() not in stretch.lower() or answer.lower() in question.lower():
        return None
    if ABOUT.search(question) or VAGUE.match(question):
        return None
    return answer, question


def evidence_of(document: AskedDocument, stretch: Stretch, answer: str, question: str) -> Question:
    """The question with the sentence that has the answer and most of the question's words."""
    text = document.text[stretch.start : stretch.end]
    words = set(re.findall(r"\w{4,}", question.lower()))
    best, most = (stretch.start, stretch.end), -1
    for match in re.finditer(re.escape(answer), text, re.IGNORECASE):
        low, high = _sentence(text, match.start(), match.end())
        shared = len(words & set(re.findall(r"\w{4,}", text[low:high].lower())))
        if shared > most:
            best, most = (stretch.start + low, stretch.start + high), shared
    own = re.search(re.escape(answer), text, re.IGNORECASE)
    spelled = own.group() if own else answer
    return Question(question, " ".join(spelled.split()), (best,))


def _sentence(text: str, start: int, end: int) -> tuple[int, int]:
    low = max([0, *(m.end() for m in re.finditer(r"[.!?][\"'”’)]*\s|\n\n", text[:start]))])  # noqa: RUF001
    after = re.search(r"[.!?]|\n\n", text[end:])
    return low, end + after.end() if after else len(text)


class RoundTrip:
    """Asks and answers.

    Args:
        bench: prompts and tokenizer.
        writer: the model.
    """

    def __init__(self, bench: Bench, writer: Writer):
        self._bench, self._writer = bench, writer

    def questions(
        self, documents: list[AskedDocument], chosen: list[Stretch], temperature: float
    ) -> Iterator[tuple[int, Question]]:
        """Questions that the model answers as it asked them, with their documents' numbers."""
        texts = [documents[one.document].text[one.start : one.end].strip() for one in chosen]
        bodies = self._encoded(texts)
        prompts = [self._prompt(body, self._bench.ask) for body in bodies]
        written = self._writer.write(prompts, ASKED, temperature)
        pairs = {}
        for number, (ids, text) in enumerate(zip(written, texts, strict=True)):
            if pair := drawn_pair(self._decoded(ids), text):
                pairs[number] = pair
        asked_again = [
            self._prompt(bodies[number], self._bench.maker.question(pairs[number][1])[0])
            for number in pairs
        ]
        answers = self._writer.write(asked_again, ANSWERED)
        for number, ids in zip(pairs, answers, strict=True):
            answer, question = pairs[number]
            if f1((answer,), self._decoded(ids)) >= SAME:
                place = chosen[number]
                document = documents[place.document]
                yield place.document, evidence_of(document, place, answer, question)

    def _prompt(self, body: np.ndarray, closing: np.ndarray) -> np.ndarray:
        return np.concatenate([self._bench.shelf.prefix, body, closing])

    def _encoded(self, texts: list[str]) -> list[np.ndarray]:
        encoded = self._bench.backend.encode_batch(texts, add_special_tokens=False)
        return [np.array(one.ids, np.int32) for one in encoded]

    def _decoded(self, ids: list[int]) -> str:
        return self._bench.backend.decode(ids).strip()


def main() -> None:
    """Asks until there are enough, and writes the documents."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("documents", type=Path, nargs="+")
    parser.add_argument(
        "--run", type=Path, required=True, help="folder of a run that learnt to ask"
    )
    parser.add_argument("--settings", type=Path, default=settings.TINY)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100_000, help="stretches asked about")
    parser.add_argument("--seconds", type=float, default=240, help="after which no more are asked")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    started, rng = time.time(), random.Random(args.seed)
    documents = [one for path in args.documents for one in asked.read(path)]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    own = settings.load(args.settings)
    bench = Bench(own, [])
    model = Tuned(bench.files, own.rank, own.whole, torch.bfloat16).to(device)
    model.load(args.run / state.ADAPTER)
    trip = RoundTrip(bench, Writer(model, min(bench.files.eos_ids())))
    chosen = stretches(documents, args.count, rng)
    rng.shuffle(chosen)
    found: dict[int, list[Question]] = defaultdict(list)
    asked_about = kept = 0
    for at in range(0, len(chosen), 8192):
        for number, question in trip.questions(documents, chosen[at : at + 8192], args.temperature):
            found[number].append(question)
            kept += 1
        asked_about += len(chosen[at : at + 8192])
        print(f"{asked_about:,} asked, {kept:,} kept, {time.time() - started:.0f} s", flush=True)
        if time.time() - started > args.seconds:
            break
    asked.write(
        args.out,
        (replace(one, questions=(*one.questions, *found[n])) for n, one in enumerate(documents)),
    )


if __name__ == "__main__":
    main()
