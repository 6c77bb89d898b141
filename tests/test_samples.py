"""The sample documents: long enough, not filled in, and their questions point at the text."""

import re
from collections import Counter
from pathlib import Path

import yaml

SAMPLES = Path(__file__).parent.parent / "samples"
SHEET = yaml.safe_load((SAMPLES / "questions.yaml").read_text("utf-8"))
TEXT = (SAMPLES / SHEET["document"]).read_text("utf-8")


def test_there_are_8000_words_and_hardly_a_repeated_8_gram():
    words = re.findall(r"[\w'-]+", TEXT.lower())
    assert len(words) >= 8000
    grams = Counter(tuple(words[i : i + 8]) for i in range(len(words) - 7))
    repeated = sum(count for count in grams.values() if count > 1)
    assert repeated / len(words) < 0.005


def test_twenty_questions_with_answers_on_their_lines():
    lines = TEXT.splitlines()
    assert len(SHEET["questions"]) == 20
    for item in SHEET["questions"]:
        assert item["answer"] in lines[item["line"] - 1], item["question"]
        assert TEXT.count(item["answer"]) == 1, item["question"]
        assert item["answer"].lower() not in item["question"].lower()
