"""The questions on the samples' prose in the form that `longctx eval qa` reads.

    python docs/evaluation/sample_questions.py > samples.jsonl
    longctx ingest samples/*.md --name samples
    longctx eval qa samples samples.jsonl

The server's log is left out: it is made, and is no prose.
"""

import json
from pathlib import Path

import yaml

SAMPLES = Path(__file__).parents[2] / "samples"


def main() -> None:
    """Prints one question a line, with the byte at which its answer begins."""
    for sheet in sorted((SAMPLES / "questions").glob("*.yaml")):
        asked = yaml.safe_load(sheet.read_text("utf-8"))
        text = SAMPLES / asked["document"]
        if text.suffix != ".md":
            continue
        lines = text.read_bytes().splitlines(keepends=True)
        for question in asked["questions"]:
            before, line = lines[: question["line"] - 1], lines[question["line"] - 1]
            answer = question["answer"].encode()
            where = sum(map(len, before)) + line.index(answer)
            answers = [question["answer"], *question.get("accept", ())]
            told = {"path": text.name, "byte_offset": where}
            print(json.dumps({"question": question["question"], "answers": answers, "where": told}))


if __name__ == "__main__":
    main()
