"""The demo behind `make demo`: read a book once, ask it three things, check the answers.

Runs the commands that a user would type, each in a new process, with a library of its own (.demo/).
Exits 1 when an expected answer is missing.
"""

import subprocess
import sys
from pathlib import Path

import yaml

SAMPLES = Path(__file__).parent
LIBRARY = SAMPLES.parent / ".demo"
QUESTIONS = 3


def longctx(*arguments: str) -> str:
    """Runs a command, shows it and what it prints, and returns that."""
    print(f"\n$ longctx {' '.join(map(quoted, arguments))}", flush=True)
    command = [sys.executable, "-P", "-m", "longctx.cli", *arguments, "--library", str(LIBRARY)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout, end="", flush=True)
    return done.stdout


def quoted(argument: str) -> str:
    """An argument as one would type it."""
    return f'"{argument}"' if " " in argument else argument


def main() -> int:
    """Runs the demo; returns the exit code."""
    sample = yaml.safe_load((SAMPLES / "questions" / "harbour-book.yaml").read_text("utf-8"))
    book = SAMPLES / sample["document"]
    named = str(book.relative_to(Path.cwd()) if book.is_relative_to(Path.cwd()) else book)
    longctx("ingest", named, "--model", "tiny")  # its answers are known, whatever is installed
    missing = []
    for item in sample["questions"][:QUESTIONS]:
        shown = longctx("ask", item["question"], "--answer-model", "own")
        answer = shown.splitlines()[0] if shown else ""
        if not any(right in answer for right in [item["answer"], *item.get("accept", [])]):
            missing.append(f"{item['question']} expected {item['answer']!r}, got {answer!r}")
    print(*(f"MISSING: {line}" for line in missing), sep="\n", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
