"""Held-out frames are held out: no wording of theirs stands in training, and they are many."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from longctx.core.measure.eval.frames import Heldout, slots_of
from longctx.profiles.recipe.data.corpus import read_text

ROOT = Path(__file__).parents[2]
FILE = ROOT / "profiles" / "tiny" / "heldout-frames.yaml"
RECIPE = ROOT / "profiles" / "recipe"
FORMATS = {".py", ".txt", ".yaml"}
SLOT = re.compile(r"\{\w+\}")
WORD = re.compile(r"[^\W_]+")


def four_grams(template: str) -> set[tuple[str, ...]]:
    """Runs of four words, in small letters and without punctuation, that no slot interrupts."""
    grams = set()
    for part in SLOT.split(template.replace("{{", " ").replace("}}", " ").lower()):
        words = WORD.findall(part.replace("'", "").replace("\u2019", ""))
        grams |= {tuple(words[i : i + 4]) for i in range(len(words) - 3)}
    return grams


def training_texts() -> dict[str, list[str]]:
    """Every text in the recipe's training files: lines, and strings of modules."""
    texts = {}
    for folder in (RECIPE / "data", RECIPE / "training"):
        for file in (each for each in folder.rglob("*") if each.suffix in FORMATS):
            texts[str(file.relative_to(RECIPE))] = file.read_text("utf-8").splitlines()
            if file.suffix == ".py":
                nodes = ast.walk(ast.parse(file.read_text("utf-8")))
                strings = [node.value for node in nodes if isinstance(node, ast.Constant)]
                texts[str(file.relative_to(RECIPE))] = [
                    text for text in strings if isinstance(text, str)
                ]
    return texts


@pytest.fixture(scope="module")
def heldout() -> Heldout:
    return Heldout.load(FILE)


@pytest.fixture(scope="module")
def pools() -> dict[str, list[str]]:
    return yaml.safe_load(FILE.read_text("utf-8"))["pools"]


def frames(heldout):
    return [frame for kind in heldout.kinds.values() for frame in kind.frames]


def held_out_grams(heldout) -> set[tuple[str, ...]]:
    templates = [text for f in frames(heldout) for text in (*f.statements, f.question)]
    return set().union(*map(four_grams, templates))


def test_four_grams_are_interrupted_by_slots_alone():
    grams = four_grams("The ferry's bell, {name}, rang in the old harbour")
    assert grams == {("rang", "in", "the", "old"), ("in", "the", "old", "harbour")}
    assert four_grams("{one} of the {two} in a {three}") == set()


def test_no_training_frame_shares_four_words_with_a_held_out_one(heldout):
    from longctx.profiles.recipe.data.facts.frames import FRAMES

    held, shared = held_out_grams(heldout), {}
    for number, frame in enumerate(FRAMES):
        common = held & (four_grams(frame.statement) | four_grams(frame.question))
        if common:
            shared[number] = sorted(" ".join(gram) for gram in common)
    assert not shared, f"training frames by number, with what they share: {shared}"


def test_no_other_text_of_training_shares_four_words_either(heldout):
    held = held_out_grams(heldout)
    for file, texts in training_texts().items():
        common = {gram for text in texts for gram in four_grams(text) & held}
        assert not common, (file, sorted(" ".join(gram) for gram in common))


def test_no_written_question_shares_four_words_either(heldout):
    held, asked = held_out_grams(heldout), []
    for file in (RECIPE / "data" / "written").iterdir():
        lines = read_text(file).splitlines()
        if ".tsv" in file.name:
            asked += [line.split("\t")[2] for line in lines]
        else:
            asked += [line[2:].split(" => ")[0] for line in lines if line.startswith("? ")]
    assert len(asked) > 5000
    common = {question for question in asked if four_grams(question) & held}
    assert not common


def test_training_knows_no_held_out_name_place_or_value(pools):
    for file, texts in training_texts().items():
        text = "\n".join(texts)
        words = set(re.findall(r"[\w'-]+", text))
        for pool in ("first", "last", "place", "phrase"):
            single = {entry for entry in pools[pool] if " " not in entry}
            common = (single & words) | {e for e in pools[pool] if " " in e and e in text}
            assert not common, (file, pool, sorted(common))


def test_there_are_enough_frames_of_every_kind(heldout):
    least = {"free-phrasing": 60}
    for name, kind in heldout.kinds.items():
        assert len(kind.frames) >= least.get(name, 12), name
        wordings = {(frame.statements, frame.question) for frame in kind.frames}
        assert len(wordings) == len(kind.frames), name


def test_names_places_and_values_are_many(pools):
    for name, entries in pools.items():
        assert len(set(entries)) == len(entries), name
    least = {"first": 150, "last": 200, "place": 150, "phrase": 150}
    for name, count in least.items():
        assert len(pools[name]) >= count, name
    assert all(len(phrase.split()) > 1 for phrase in pools["phrase"])


def test_an_answer_comes_from_the_statements_and_not_from_the_question(heldout):
    for frame in frames(heldout):
        told = {slot for text in frame.statements for slot in slots_of(text)}
        assert set(slots_of(frame.answer)) <= told - set(frame.keys), frame
        assert set(frame.keys) <= told, frame
        assert any(frame.answer in statement for statement in frame.statements), frame


def test_two_steps_are_needed_where_there_are_two_statements(heldout):
    steps = [frame for frame in frames(heldout) if len(frame.statements) > 1]
    assert len(steps) >= 24
    for frame in steps:
        for statement in frame.statements:
            assert not set(frame.keys + slots_of(frame.answer)) <= set(slots_of(statement)), frame
