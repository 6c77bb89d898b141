"""The recipe at toy size: tokenizer, data, tasks, sequences, losses, a few steps, export."""

import json
import lzma
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from longctx.profiles.recipe import settings
from longctx.profiles.recipe.data import corpus, haystacks, mine, prepare
from longctx.profiles.recipe.data import tokenizer as tokenizers
from longctx.profiles.recipe.data.asked import AskedDocument, Question, read, write
from longctx.profiles.recipe.data.documents.document import ANSWER
from longctx.profiles.recipe.data.documents.questions import occurrences
from longctx.profiles.recipe.data.facts import frames, templates
from longctx.profiles.recipe.data.facts.grammar import Grammar, participle, past
from longctx.profiles.recipe.data.logs import LogFile
from longctx.profiles.recipe.data.needles.tasks import Tasks
from longctx.profiles.recipe.data.sequences import Sequences
from longctx.profiles.recipe.data.values.every import Values
from longctx.profiles.recipe.training import export
from longctx.profiles.recipe.training.model import Batch, Config, Model, pointing
from longctx.profiles.recipe.training.optim import Muon, orthogonal
from longctx.profiles.recipe.training.train import collate

BOOK = (
    "The old mill was built by the river in 1720. Mr. Harlow sold the cart to the miller of the "
    "town. Anna looked at the three boats near Dover, and went away with her brother. He had to "
    "carry the lamp to the top of the hill, which was very steep and dark. There were five horses "
    "in the yard of the inn, in the cold morning, slowly, and a small house of grey stone. "
)
SMALL = Config(
    vocab=400,
    width=16,
    layers=8,
    heads=2,
    kv_heads=1,
    head_dim=8,
    hidden=16,
    theta=1e7,
    epsilon=1e-5,
    window=4096,
    embedding_layers=(3, 4),
    retrieval_layers=(5, 7),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What `prepare` writes for one short book, one source file and two records."""
    root = tmp_path_factory.mktemp("recipe")
    (root / "books").mkdir()
    (root / "books" / "one.txt.xz").write_bytes(lzma.compress((BOOK * 60 + "\n\n").encode()))
    (root / "code").mkdir()
    (root / "code" / "one.py").write_text("def add(a, b):\n    return a + b\n\n\n" * 200)
    record = {
        "context": "The cat sat on a mat.",
        "question": "Where did it sit?",
        "answers": ["on a mat"],
    }
    lines = [
        json.dumps({**record, "source": source}) for source in ("qamr-dev", "squadshifts-new-wiki")
    ]
    (root / "qa.jsonl").write_text("\n".join(lines))
    texts = tokenizers.paragraphs([root / "books", root / "code"], 1.0)
    tokenizers.train([*texts, "Question: Answer: 0123456789"], settings.load(), 400).save(
        str(root / "tokenizer.json")
    )
    given = {name: root / name for name in ("books", "code")}
    prepare.LOG_FILES = 2
    prepare.prepare(
        **given,
        qa=root / "qa.jsonl",
        tokenizer=root / "tokenizer.json",
        out=root / "data",
        held=500,
        workers=1,
    )
    return root


@pytest.fixture(scope="module")
def sequences(folder) -> Sequences:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return Sequences(haystacks.load(folder / "data"), tokenizer, 1, settings.load())


@pytest.fixture(scope="module")
def tasks(folder) -> Tasks:
    return Tasks(
        json.loads((folder / "data" / "pools.json").read_text()),
        [],
        random.Random(0),
        settings.load(),
    )


def test_digits_stand_alone_and_bytes_come_back(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = "room 1720, café\n\n  x"
    encoded = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(encoded.ids) == text
    assert {"1", "7", "2", "0"} <= set(encoded.tokens)


def test_a_folder_without_texts_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no text files"):
        corpus.text_files(tmp_path)


def test_chunks_lose_nothing():
    text = "".join(f"line {number}\n" for number in range(500))
    assert "".join(corpus.chunks(text, 700)) == text


def test_prepare_keeps_the_end_and_what_the_model_did_not_read_apart(folder):
    assert len((folder / "data" / "held.txt").read_text()) == 500
    records = [json.loads(line) for line in (folder / "data" / "qa.jsonl").read_text().splitlines()]
    assert [record["source"] for record in records] == ["qamr"]
    pools = json.loads((folder / "data" / "pools.json").read_text())
    assert "Harlow" in pools["surnames"]
    assert "carry" in pools["verbs"]


def test_mined_questions_point_at_their_sentence(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = np.load(folder / "data" / "prose.npy")
    lines = (folder / "data" / "asked.jsonl").read_text().splitlines()
    assert len(lines) > 20
    for low, high, _, answer in map(json.loads, lines[:20]):
        assert answer in tokenizer.decode(ids[low:high].tolist())


@pytest.mark.parametrize(
    ("rule", "sentence", "question", "answer"),
    [
        (mine.ask_who, "Harlow opened the box.", "Who opened the box?", "Harlow"),
        (mine.ask_what, "The man could hear the sea.", "What could the man do?", "hear the sea"),
    ],
)
def test_rules_make_questions(rule, sentence, question, answer):
    assert rule(sentence, random.Random(0)) == (question, answer)


def test_alternatives_are_all_written_out():
    assert templates.expand("a <b|c> <|d>") == ["a b ", "a b d", "a c ", "a c d"]
    assert len(frames.FRAMES) > 2000


def test_a_frames_file_with_a_stray_line_is_refused(tmp_path):
    (tmp_path / "frames.txt").write_text("- {a} is {b}.\nwhat?\n")
    with pytest.raises(ValueError, match="what"):
        templates.read_facts(tmp_path / "frames.txt")


def test_every_slot_of_every_frame_can_be_filled(tasks):
    known = set(tasks.values.makers) | {"attr", "entity", "value", "a", "b", "v"}
    for fact in (*frames.FACTS, *frames.CHAINS, *frames.LINKS):
        for text in (*fact.statements, *(part for pair in fact.questions for part in pair)):
            assert {slot.rstrip("0123456789") for slot in templates.slots(text)} <= known, text


def test_invented_facts_have_slots_that_exist(tasks):
    grammar = Grammar(tasks.values, random.Random(3))
    for _ in range(200):
        fact = grammar.fact()
        for text in (*fact.statements, *(question for question, _ in fact.questions)):
            assert {slot.rstrip("0123456789") for slot in templates.slots(text)} <= set(
                tasks.values.makers
            )
    assert (past("carry"), participle("take"), past("love")) == ("carried", "taken", "loved")


def test_needles_hold_their_answers(tasks):
    for _ in range(300):
        needle = tasks.frames.frame()
        assert needle.answer.lower() in needle.texts[0].lower(), needle


def test_groups_ask_about_different_things(tasks):
    for near in (False, True):
        questions = [needle.question for _ in range(20) for needle in tasks.frames.group(4, near)]
        assert len(set(questions)) > 20


def test_chains_and_links_hold_their_answers(tasks):
    for needle in (*tasks.chains.chain(5), *tasks.chains.links(5)):
        assert needle.answer in needle.texts[needle.holder]
        assert len(needle.texts) > 1


def test_absent_needles_have_no_text(tasks):
    absent = [n for _ in range(300) for n in tasks.mixture(4) if n.kind == "absent"]
    assert absent
    assert all(needle.texts == () and needle.answer == settings.load().refusal for needle in absent)


def test_log_files_keep_their_format(tasks):
    text = LogFile(tasks.values.pools, random.Random(0)).lines(20)
    assert text.count("\n") == 20


def test_values_are_the_same_for_the_same_seed(tasks):
    made = [Values(tasks.values.pools, random.Random(7)) for _ in range(2)]
    assert [made[0].make(kind) for kind in made[0].makers] == [
        made[1].make(kind) for kind in made[1].makers
    ]


@pytest.mark.parametrize("progress", [0.0, 0.2, 0.9])
def test_sequences_are_exact_and_their_marks_right(sequences, progress):
    for _ in range(6):
        ids, weights, positions, asks, pairs, answers = sequences.sequence(1025, progress)
        assert len(ids) == len(weights) == len(positions) == 1025
        assert (np.diff(positions) >= 1).all()
        for start, end, _ in answers:
            assert (weights[start:end] == ANSWER).all()
            assert ids[end - 1] == 1  # <|eos|>
        for token, place, _ in pairs:
            assert ids[place] == ids[token + 1]
        for ask, ask_end, needle, needle_end, start in asks:
            assert start < needle < needle_end <= ask < ask_end


def test_occurrences():
    assert occurrences([1, 2, 1, 2, 3], [1, 2]) == [0, 2]


def batch_of(sequences: Sequences, size: int = 2, length: int = 192) -> Batch:
    """A small batch on the CPU."""
    arrays, _ = collate(sequences, size, length, 0.0)
    ids, weights, positions, asks, pairs = map(torch.from_numpy, arrays)
    return Batch(ids.long(), weights, positions, asks.long(), pairs.long())


def test_a_few_steps_lower_the_loss(sequences):
    torch.manual_seed(0)
    model = Model(SMALL)
    muon, batch = Muon(model, compiled=False), batch_of(sequences)
    adam = torch.optim.AdamW([model.embed_tokens.weight], lr=0.01)
    seen = []
    for _ in range(12):
        text, near, point, _ = model.losses(batch)
        (text + 0.1 * near + 0.1 * point).backward()
        muon.step(0.01, 0.0)
        adam.step()
        model.zero_grad()
        seen.append(text.item())
    assert seen[-1] < 0.9 * seen[0]


def test_orthogonal_brings_singular_values_near_one():
    made = orthogonal(torch.randn(3, 16, 32, generator=torch.Generator().manual_seed(0)))
    values = torch.linalg.svdvals(made.float())
    assert 0.5 < values.min() <= values.max() < 1.4


def test_pointing_is_small_where_the_key_matches():
    key = torch.eye(8)[None]  # (1, 8, 8): every token has a key of its own
    weights = torch.full((1, 8), 0.4)
    pairs = torch.tensor([[0, 7, 2, 0], [-1, 0, 0, 0]])
    batch = Batch(torch.zeros(1, 9), weights, torch.zeros(1, 8), torch.zeros(1, 6), pairs)
    right, wrong = (torch.zeros(1, 8, 8) for _ in range(2))
    right[0, 7, 2] = wrong[0, 7, 3] = 40.0
    assert pointing(right, key, batch) < 0.1 < 5 < pointing(wrong, key, batch)


def test_an_export_loads_in_transformers_and_here(tmp_path):
    torch.manual_seed(0)
    model = Model(SMALL)
    export.save(model, tmp_path)
    llama = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    again = export.from_llama(tmp_path, SMALL)
    ids = torch.arange(20)[None]
    with torch.inference_mode():
        hidden, _ = again(ids, ids)
        here = torch.nn.functional.linear(hidden, again.embed_tokens.weight)
        torch.testing.assert_close(llama(ids).logits, here, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["documents.jsonl", "documents.jsonl.xz"])
def test_documents_with_questions_come_back_as_they_were_written(tmp_path: Path, name: str):
    asked = Question("Who left?", "Anna", ((0, 10), (12, 30)))
    written = [
        AskedDocument("book", "Anna left.\nÉlise stayed there.", (asked,)),
        AskedDocument("log", "1 ok", (Question("Why?", None, ()),)),
    ]
    write(tmp_path / name, written)
    assert [*read(tmp_path / name)] == written
