"""How `longctx serve` stands many clients at once, with `tiny` on a CPU.

    python docs/evaluation/serve_load.py [--clients N] [--seconds N] [--threads N] [--waiting N]

Two of the samples are read, and some of their questions are asked alone, one after another, through
the Python interface. Then the server runs in a process of its own, and clients (the `openai`
package, without retries) ask the same questions for some time: by chat completions and responses,
whole and streamed. Printed: how many requests were completed, told to wait (429) or failed; whether
every answer equals the one asked alone; seconds of an answer; the server's memory on the way.

The exit code is 1 unless at least 90% are completed, all others are told to wait, and all answers
are equal.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import openai
import yaml

import longctx

SAMPLES = Path(__file__).parent.parent.parent / "samples"
BOOKS = ("harbour-book", "minutes")
MEMORY = re.compile(r"^longctx_memory_bytes (\d+)", re.M)
LISTENS = re.compile(r"http://[\w.:]+")
PROMISED = 0.9  # of all requests are completed

Question = tuple[str, str]  # document, words


@dataclass
class Load:
    """What came of the requests.

    Attributes:
        outcomes: how many were completed, told to wait, or failed, and why.
        wrong: answers that are not those asked alone.
        seconds: of each completed request.
        memory: the server's bytes, from time to time.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    @property
    def is_as_promised(self) -> bool:
        """Whether enough was completed, the rest told to wait, and nothing wrong."""
        total, completed = self.outcomes.total(), self.outcomes["completed"]
        told = completed + self.outcomes["told to wait"]
        return not self.wrong and told == total > 0 and completed >= PROMISED * total


def main() -> int:
    """Reads, asks alone, asks together, and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--waiting", type=int, default=64)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "library")
        alone = asked_alone(library, [SAMPLES / f"{book}.md" for book in BOOKS], given.threads)
        print(f"{len(alone)} questions asked alone", flush=True)
        with serving(library, given.waiting, given.threads) as address:
            load = together(address, alone, given.clients, given.seconds)
    tell(load)
    return 0 if load.is_as_promised else 1


def asked_alone(
    library: Path, files: list[Path], threads: int | None, most: int = 10
) -> dict[Question, str]:
    """Reads files, each into a document, and answers the first questions on each.

    Args:
        library: the library's folder, which is made.
        files: samples.
        threads: CPU threads; None: the usual number.
        most: questions on each.
    """
    answers = {}
    model = longctx.Model("tiny", answers="own", device="cpu", threads=threads)
    with model, longctx.Library(library, model) as documents:
        for file in files:
            document = documents.ingest(file)
            asked = yaml.safe_load((SAMPLES / "questions" / f"{file.stem}.yaml").read_text("utf-8"))
            for question in asked["questions"][:most]:
                words = question["question"]
                answers[document.name, words] = document.ask(words).answer
    return answers


@contextmanager
def serving(library: Path, waiting: int, threads: int | None) -> Iterator[str]:
    """A server in a process of its own; gives its address."""
    command = [sys.executable, "-m", "longctx", "serve", "--library", str(library), "--port", "0"]
    command += ["--model", "tiny", "--answer-model", "own", "--device", "cpu"]
    command += ["--waiting", str(waiting)]
    command += [] if threads is None else ["--threads", str(threads)]
    environment = {**os.environ, "LONGCTX_SERVE_TOKEN": ""}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        told = process.stderr.readline()
        found = LISTENS.search(told)
        if found is None:
            raise SystemExit(told + process.stderr.read())
        try:
            yield found[0]
        finally:
            process.terminate()
            process.stderr.read()


def together(address: str, alone: Mapping[Question, str], clients: int, seconds: float) -> Load:
    """Has clients ask at once, until the time is over and every request has its end.

    Args:
        address: of the server.
        alone: the questions, and the answers that are right.
        clients: how many.
        seconds: for which new requests are made.
    """
    load, lock, over = Load(), threading.Lock(), time.monotonic() + seconds
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="-", max_retries=0, timeout=600)
    threads = [
        threading.Thread(target=_client, args=(client, alone, number, over, load, lock))
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        load.memory.append(_memory(address))
        time.sleep(max(0.2, seconds / 24))
    client.close()
    return load


def _client(
    client: openai.OpenAI,
    alone: Mapping[Question, str],
    number: int,
    over: float,
    load: Load,
    lock: threading.Lock,
) -> None:
    """One client: asks, checks, and asks again; where it is told to wait, it waits."""
    chance, began = random.Random(number), 0.0
    while not began or time.monotonic() < over:
        question = chance.choice([*alone])
        began = time.monotonic()
        try:
            answer, outcome, pause = ask(client, *question, way=chance.randrange(4)), "completed", 0
        except openai.RateLimitError as error:
            answer, outcome = None, "told to wait"
            pause = int(error.response.headers["retry-after"])
        except openai.OpenAIError as error:
            answer, outcome, pause = None, f"{type(error).__name__}: {error}", 1
        with lock:
            load.outcomes[outcome] += 1
            if answer is not None:
                load.seconds.append(time.monotonic() - began)
                if answer.strip() != alone[question]:
                    load.wrong.append(f"{question}: {answer!r}, alone {alone[question]!r}")
        time.sleep(min(pause, max(0.0, over - time.monotonic())))


def ask(client: openai.OpenAI, document: str, words: str, way: int) -> str:
    """An answer, by one of the four ways in which it can be asked for."""
    model = f"longctx/{document}"
    if way == 0:
        completion = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": words}]
        )
        return completion.choices[0].message.content or ""
    if way == 1:
        chunks = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": words}], stream=True
        )
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    if way == 2:
        return client.responses.create(model=model, input=words).output_text
    events = client.responses.create(model=model, input=words, stream=True)
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def _memory(address: str) -> int:
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as response:
        found = MEMORY.search(response.read().decode())
    return int(found[1]) if found else 0


def tell(load: Load) -> None:
    """Prints what came of it."""
    total = load.outcomes.total()
    for outcome, count in load.outcomes.most_common():
        print(f"{outcome}: {count} of {total} ({count / total:.1%})")
    print(f"not the answer asked alone: {len(load.wrong)}")
    for line in load.wrong[:5]:
        print(f"  {line}")
    if seconds := sorted(load.seconds):
        middle, late = seconds[len(seconds) // 2], seconds[len(seconds) * 99 // 100]
        print(f"seconds until an answer was whole: median {middle:.1f}, p99 {late:.1f}")
    quarter = load.memory[len(load.memory) // 4 :]
    shown = ", ".join(f"{bytes_ / 1e6:.0f}" for bytes_ in quarter)
    print(f"memory of the server in MB, from a quarter of the time on: {shown}")


if __name__ == "__main__":
    sys.exit(main())
