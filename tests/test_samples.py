"""The sample documents: long enough, not filled in, and their questions point at the text."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from longctx.samples import demo

SAMPLES = Path(__file__).parent.parent / "samples"
NAMES = sorted(path.stem for path in SAMPLES.glob("*.md"))
TEXTS = {name: (SAMPLES / f"{name}.md").read_text("utf-8") for name in NAMES}


def words(text: str) -> list[str]:
    return re.findall(r"[\w'-]+", text.lower())


def test_there_are_25000_words_of_seven_kinds():
    assert len(NAMES) == 7
    assert sum(len(words(text)) for text in TEXTS.values()) >= 25_000
    assert len(words(TEXTS["harbour-book"])) >= 8000


def test_hardly_an_8_gram_stands_twice_in_all_of_them():
    grams = Counter()
    for text in TEXTS.values():
        said = words(text)
        grams.update(tuple(said[i : i + 8]) for i in range(len(said) - 7))
    repeated = sum(count for count in grams.values() if count > 1)
    assert repeated / grams.total() < 0.005


@pytest.mark.parametrize("name", NAMES)
def test_twenty_questions_with_answers_on_their_lines(name):
    sheet = yaml.safe_load((SAMPLES / "questions" / f"{name}.yaml").read_text("utf-8"))
    assert sheet["document"] == f"{name}.md"
    lines = TEXTS[name].splitlines()
    assert len({item["question"] for item in sheet["questions"]}) == 20
    for item in sheet["questions"]:
        assert item["answer"] in lines[item["line"] - 1], item["question"]
        assert TEXTS[name].count(item["answer"]) == 1, item["question"]
        assert item["answer"].lower() not in item["question"].lower()


def test_every_sheet_has_a_document():
    sheets = {path.stem for path in (SAMPLES / "questions").iterdir()}
    assert sheets == {*NAMES, "server-log"}  # that one's document is written by make_log.py


def test_the_demo_asks_six_questions_that_are_in_no_sheet():
    sheet = yaml.safe_load((SAMPLES / "demo.yaml").read_text("utf-8"))
    name = Path(sheet["document"]).stem
    asked = [item["question"] for item in sheet["questions"]]
    assert len(asked) == 6
    assert sum(item.get("reworded", False) for item in sheet["questions"]) == 3
    others = yaml.safe_load((SAMPLES / "questions" / f"{name}.yaml").read_text("utf-8"))
    assert not {*asked} & {item["question"] for item in others["questions"]}
    lines = TEXTS[name].splitlines()
    for item in sheet["questions"]:
        assert item["answer"] in lines[item["line"] - 1], item["question"]


@pytest.mark.parametrize(("missed", "code"), [(0, 0), (1, 0), (2, 1)])
def test_the_demo_shows_what_is_missed_and_fails_under_five(monkeypatch, capsys, missed, code):
    items = yaml.safe_load(demo.QUESTIONS.read_text("utf-8"))["questions"]
    answers = [item["answer"] for item in items[missed:]]
    told = [{"answer": one, "passages": []} for one in ["no idea"] * missed + answers]
    lines = "\n".join(map(json.dumps, told))
    monkeypatch.setattr(demo, "longctx", lambda *words: lines if words[0] == "ask" else "read\n")
    assert demo.main() == code
    out = capsys.readouterr().out
    assert out.count("MISSED") == missed
    assert f"{6 - missed} of 6 right" in out
