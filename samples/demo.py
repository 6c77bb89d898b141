"""The demo behind `make demo`: read a manual once, ask it six questions, compare.

Runs the commands that a user would type, each in a new process, with a library of its own (.demo/).
The questions (demo.yaml) were fixed before any model was asked them; a missed one is shown as such.
Exits 1 when fewer than five are answered.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

SAMPLES = Path(__file__).parent
LIBRARY = SAMPLES.parent / ".demo"
QUESTIONS = SAMPLES / "demo.yaml"
WANTED = 5  # answers that must be right


def longctx(*arguments: str) -> str:
    """Runs a command, shows it, and returns what it prints."""
    print(f"\n$ longctx {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-P", "-m", "longctx.cli", *arguments, "--library", str(LIBRARY)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def typed(path: Path) -> str:
    """A file as one would type it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def is_right(item: dict[str, Any], answer: str) -> bool:
    """Whether an answer has an accepted one as whole words, as `longctx eval qa` counts."""
    from longctx.core.measure.eval.text_match import contained

    return bool(contained((item["answer"], *item.get("accept", [])), answer))


def shown(item: dict[str, Any], told: dict[str, Any]) -> str:
    """A question with its answer, the place of the best passage, and what was expected."""
    right = is_right(item, told["answer"])
    words = "in other words than the text's" if item.get("reworded") else "in the text's words"
    places = [told["sentence"]] if told.get("sentence") else told["passages"]
    cited = next((f"  [{one['source']}:{one['line']}]" for one in places), "")
    verdict = "right" if right else f"MISSED: expected {item['answer']!r}"
    answer = " ".join(told["answer"].split())
    return f"\n{item['question']}  ({words})\n  {answer}{cited}\n  {verdict}"


def main() -> int:
    """Runs the demo; returns the exit code."""
    sample = yaml.safe_load(QUESTIONS.read_text("utf-8"))
    document = SAMPLES / sample["document"]
    print(longctx("ingest", typed(document)), end="")
    found = longctx("ask", "--questions", typed(QUESTIONS), "--doc", document.stem)
    told = [json.loads(line) for line in found.splitlines()]
    pairs = [*zip(sample["questions"], told, strict=True)]
    print(*(shown(*pair) for pair in pairs), sep="\n")
    right = sum(is_right(item, one["answer"]) for item, one in pairs)
    print(f"\n{right} of {len(pairs)} right; {WANTED} are wanted.")
    return 0 if right >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
