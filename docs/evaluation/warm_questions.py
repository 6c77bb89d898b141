"""What a further question costs in a warm process: longctx, and beside it llama.cpp with a state.

    python docs/evaluation/warm_questions.py longctx [--tokens 6k,100k,1M] [--answers MODEL]
    python docs/evaluation/warm_questions.py llama --weights FILE.gguf [--tokens 6k]

Documents are prose of an exact number of tokens (of `tiny`) with twenty pass keys in it, the same
for both. Each question asks for one of them, on two cores, in a process that has the document open,
through the Python interface, and has answered a question before.

`llama` needs `pip install llama-cpp-python`. It reads the whole document once, saves its state in
memory, and begins every question from that. The published figures are of SmolLM2-135M-Instruct.

An answer has at most --answer-tokens tokens. Printed are p50 and p99 of the seconds until the first
token, until the whole answer, and of `find`, and how many answers have the key.
"""

import argparse
import math
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import longctx
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import prepare
from longctx.core.measure.haystack import Builder, Group, depths
from longctx.core.measure.niah.kinds import Needle, passkey
from longctx.core.measure.prose import read_prose

KEYS = 20
SIZES = {"k": 1_000, "m": 1_000_000}
READER = "tiny"
SYSTEM = "Answer the question from the document, in a few words."
WINDOW = 8192  # tokens that the model was trained on
ROOM = 256  # of these for the question and the answer


@dataclass(frozen=True)
class Text:
    """A document, and the questions on it."""

    text: str
    needles: Sequence[Needle]


def main() -> None:
    """Measures one of the two, and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=["longctx", "llama"])
    parser.add_argument("--tokens")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--answer-tokens", type=int, default=16)
    parser.add_argument("--answers", default="own", help="the model, or 'own'")
    parser.add_argument("--weights", type=Path, help="the GGUF file that llama reads")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--library", type=Path, help="where documents stay for a further run")
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    sizes = given.tokens or ("6k,100k,1M" if given.program == "longctx" else "6k")
    for size in sizes.split(","):
        tokens = int(float(size[:-1]) * SIZES[size[-1].lower()])
        text = made(tokens)
        print(f"{given.program}, {tokens:,} tokens, {given.cores} cores", flush=True)
        if given.program == "llama":
            of_llama(text, given.weights, given.questions, given.answer_tokens, given.cores)
            continue
        with tempfile.TemporaryDirectory() as folder:
            place = given.library or Path(folder, "library")
            of_longctx(text, place, f"prose-{size}", given)


def made(tokens: int) -> Text:
    """A document of so many tokens of the reader."""
    tokenizer = prepare(Setup(READER, device="cpu")).files.tokenizer
    prose, draw = read_prose(), random.Random("warm questions")
    cities = draw.sample(prose.cities, KEYS)
    needles = [passkey(draw, city) for city in cities]
    places = zip(depths(KEYS), needles, strict=True)
    groups = [Group(depth, needle.lines) for depth, needle in places]
    text = Builder(tokenizer, prose).build(groups, tokens, "warm questions").text
    return Text(text, needles)


def of_longctx(text: Text, place: Path, name: str, given: argparse.Namespace) -> None:
    """Reads the document unless it is there, and asks it."""
    model = longctx.Model(READER, answers=given.answers, device="cpu", threads=given.cores)
    with model, longctx.Library(place, model) as library:
        if name not in library:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, f"{name}.txt")
                file.write_text(text.text, "utf-8")
                began = time.perf_counter()
                library.ingest(file, name=name)
                print(f"  read in {time.perf_counter() - began:.1f} s", flush=True)
        document = library.document(name)
        asked = Asked(document, given.answer_tokens)
        told(text, given.questions, asked)
        finds = [  # the first one is not counted
            seconds(lambda needle=needle: document.find(needle.question))[0]
            for needle in turns(text, given.questions)
        ]
        print(f"  find: {shown(finds[1:])}", flush=True)


@dataclass
class Asked:
    """A document that is asked through the Python interface."""

    document: longctx.Document
    most: int

    def __call__(self, question: str) -> tuple[float, str]:
        """Seconds until the first token, and the answer."""
        answer = self.document.ask(question, max_new_tokens=self.most)
        return answer.timings["first_token_s"], answer.answer


def of_llama(text: Text, weights: Path, questions: int, most: int, cores: int) -> None:
    """Reads the document into llama.cpp's cache, saves the state, and asks from that."""
    from llama_cpp import Llama

    llama = Llama(str(weights), n_ctx=WINDOW, n_threads=cores, n_threads_batch=cores, verbose=False)
    before = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{text.text}\n"
    prompt = llama.tokenize(before.encode(), add_bos=False, special=True)
    if len(prompt) + ROOM > WINDOW:
        raise SystemExit(f"{len(prompt):,} tokens do not fit its window of {WINDOW:,}")
    spent, _ = seconds(lambda: llama.eval(prompt))
    print(f"  read in {spent:.1f} s: {len(prompt):,} of its tokens", flush=True)
    state = llama.save_state()
    print(f"  the state has {state.llama_state_size / 1e6:.1f} MB", flush=True)

    def ask(question: str) -> tuple[float, str]:
        began = time.perf_counter()
        llama.load_state(state)
        behind = f"{question}<|im_end|>\n<|im_start|>assistant\n"
        ids = llama.tokenize(behind.encode(), add_bos=False, special=True)
        first, made_ids = math.nan, []
        for token in llama.generate(ids, temp=0.0, reset=False):
            first = time.perf_counter() - began if math.isnan(first) else first
            if token == llama.token_eos():
                break
            made_ids.append(token)
            if len(made_ids) == most:
                break
        return first, llama.detokenize(made_ids).decode("utf-8", "replace")

    told(text, questions, ask)


def told(text: Text, questions: int, ask: Callable[[str], tuple[float, str]]) -> None:
    """Asks, the first question uncounted, and prints."""
    firsts, wholes, right = [], [], 0
    for number, needle in enumerate(turns(text, questions)):
        spent, (first, answer) = seconds(lambda needle=needle: ask(needle.question))
        if number:
            firsts.append(first)
            wholes.append(spent)
            right += needle.value in answer
    print(f"  first token: {shown(firsts)}")
    print(f"  whole answer: {shown(wholes)}; {right} of {questions} have the key", flush=True)


def turns(text: Text, questions: int) -> Iterator[Needle]:
    """One question to warm up with, then those that count."""
    for number in range(questions + 1):
        yield text.needles[number % KEYS]


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """How long a call takes, and what it gives."""
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def shown(spent: Sequence[float]) -> str:
    """The median and the 99th percentile (nearest rank)."""
    ordered = sorted(spent)
    p50, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.99))
    return f"p50 {p50:.3f} s, p99 {p99:.3f} s"


if __name__ == "__main__":
    main()
