"""The recipe of the reader that points: passages of a question, rows of several, learning."""

import random

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from longctx.profiles.recipe.data.asked import AskedDocument, Question
from longctx.profiles.recipe.reader.examples import Examples, Passage, drawn
from longctx.profiles.recipe.reader.export import quantized
from longctx.profiles.recipe.reader.losses import log_sums, loss
from longctx.profiles.recipe.reader.model import Pointer
from longctx.profiles.recipe.reader.packing import MPNET, ROW, item, step, steps
from longctx.profiles.recipe.reader.train import Learner

NAMES = ("Ada", "Bela", "Cato", "Dora", "Egon", "Fritz", "Gerda", "Hugo", "Ilse", "Jana")
TEXT = "".join(
    f"{name} kept the {number}th lamp of the harbour. It was lit by {name}'s brother at dusk, and "
    f"burned until {name} slept. Nobody asked who paid for the oil of that lamp in winter.\n"
    for number, name in enumerate(NAMES * 4, 1)
)


def asked(number):
    """Who kept a lamp, with the sentence that says it."""
    start = TEXT.index(f"{NAMES[(number - 1) % 10]} kept the {number}th")
    end = TEXT.index(".", start) + 1
    name = NAMES[(number - 1) % 10]
    return Question(f"Who kept the {number}th lamp?", name, ((start, end),))


@pytest.fixture(scope="module")
def document():
    return AskedDocument("lamps", TEXT, tuple(asked(number) for number in (3, 14, 27)))


@pytest.fixture(scope="module")
def tokenizer():
    """Words and signs, each a token; the first three are marks."""
    words = ["<s>", "<pad>", "</s>", "[UNK]"]
    for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(TEXT + " Who kept?"):
        words += [] if word in words else [word]
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def pointer(layers):
    torch.manual_seed(1)
    return Pointer(layers, width=32, heads=4, vocabulary=300, rate=0.0)


def test_the_first_passage_answers_and_no_other_does(document):
    for seed in range(5):
        for example in Examples(document, random.Random(seed)):
            right, *wrong = example.passages
            low, high = right.answer
            name = right.text[low:high]
            assert f"{name} kept the {example.question.split()[3]} lamp" in right.text
            assert wrong
            assert all(one.answer is None and name not in one.text for one in wrong)


def test_a_share_says_how_often_a_question_comes(document):
    counts = {}
    for share in (0.5, 1, 3):
        examples = drawn([document], {"lamps": share}, random.Random(2))
        waited = [next(examples) for _ in range(200)]
        counts[share] = {example.question for example in waited}
    assert all(len(questions) == 3 for questions in counts.values())
    rng = random.Random(3)
    often = AskedDocument("often", TEXT, (asked(5),))
    examples = drawn([document, often], {"lamps": 0.25, "often": 3}, rng)
    kinds = [next(examples).kind for _ in range(600)]
    assert 0.7 < kinds.count("often") / 600 < 0.9  # 3 of 3.75


def test_texts_of_a_row_do_not_see_each_other(document, tokenizer):
    model = pointer(2).eval()
    passages = next(iter(Examples(document, random.Random(4)))).passages
    question = tokenizer.encode("Who kept the 3th lamp?", add_special_tokens=False).ids
    items = [item(tokenizer, MPNET, question, one) for one in passages]
    pair = sorted(items, key=lambda one: len(one.ids))[:2]
    assert sum(len(one.ids) for one in pair) <= ROW
    together = step([pair])
    row = model(together.ids, together.places, together.segments)[0]
    at = 0
    for one in pair:
        alone = step([[one]])
        own = model(alone.ids, alone.places, alone.segments)[0, : len(one.ids)]
        assert torch.allclose(row[at : at + len(one.ids)], own, atol=1e-2)  # the bias is bfloat16
        at += len(one.ids)


def test_a_step_names_the_tokens_of_the_answers(document, tokenizer):
    examples = drawn([document], {}, random.Random(5))
    made = next(steps(examples, tokenizer, MPNET, 6, random.Random(5)))
    ids = made.ids.view(-1)
    answers = {tokenizer.token_to_id(name) for name in NAMES}
    there = made.starts != made.firsts
    assert there.any()
    assert {int(one) for one in ids[made.starts[there]]} <= answers
    assert torch.equal(made.starts, made.ends)
    assert (ids[made.firsts] == MPNET.first).all()


def test_log_sums_are_those_of_each_group():
    values = torch.randn(7)
    groups = torch.tensor([0, 2, 0, -1, 2, 2, 0])
    sums = log_sums(values, groups, 3)
    assert torch.allclose(sums[0], values[[0, 2, 6]].logsumexp(0))
    assert torch.allclose(sums[2], values[[1, 4, 5]].logsumexp(0))
    assert sums[1] < -60


def test_a_reader_and_the_smaller_one_beside_it_learn(document, tokenizer, tmp_path):
    examples = drawn([document], {}, random.Random(6))
    made = next(steps(examples, tokenizer, MPNET, 3, random.Random(6)))
    large, small = pointer(3), pointer(2)
    small.take(large, [0, 2])
    learners = [Learner("reader", large, 3e-3), Learner("student", small, 3e-3)]
    means = []
    for _ in range(2):
        for _ in range(12):
            taught = learners[1].learn(made, 1.0, learners[0].learn(made, 1.0, None))
        means.append([learner.mean() for learner in learners])
    assert taught.shape == (3, ROW, 2)
    assert all(later < 0.8 * first for first, later in zip(*means, strict=True))
    small.save(tmp_path / "student.safetensors")
    again = Pointer(2, width=32, heads=4, vocabulary=300)
    again.load(tmp_path / "student.safetensors")
    values = (model.eval()(made.ids, made.places, made.segments) for model in (small, again))
    assert torch.allclose(*values, atol=0.05)  # saved in bfloat16


def test_a_teacher_that_agrees_costs_nothing(document, tokenizer):
    examples = drawn([document], {}, random.Random(7))
    made = next(steps(examples, tokenizer, MPNET, 2, random.Random(7)))
    logits = torch.randn(2, ROW, 2)
    alone, followed = loss(logits, made), loss(logits, made, logits)
    assert followed == pytest.approx(0.3 * alone.item(), rel=1e-4)


def test_few_levels_lie_near_the_matrix():
    values = torch.randn(20, 64).numpy()
    for levels, most in ((127, 0.01), (19, 0.06)):
        rounded, scales = quantized(values, levels)
        assert abs(rounded).max() <= levels
        error = rounded * scales[:, None] - values
        assert (error**2).mean() ** 0.5 < most * (values**2).mean() ** 0.5


def test_an_answer_beyond_the_room_is_no_item(tokenizer):
    text = "lamp " * 900 + "Ada"
    question = [4] * 10
    far = Passage("", text, (len(text) - 3, len(text)))
    found = item(tokenizer, MPNET, question, far)
    assert found is not None
    assert tokenizer.id_to_token(found.ids[found.start]) == "Ada"
    assert len(found.ids) <= ROW
    assert item(tokenizer, MPNET, question, far._replace(answer=(0, len(text)))) is None
