"""Copy scores: what is looked at while it is generated, against loops and by hand."""

import pytest
import torch

from longctx.core.common.errors import UsageError
from longctx.core.measure.calibrate import copying
from longctx.core.measure.calibrate.copying import (
    Context,
    best_of_layers,
    copied,
    copy_scores,
    most_attended,
    score_table,
)
from longctx.core.measure.calibrate.tasks import NEEDLES, Haystacks, prose, value_tokens
from longctx.core.measure.haystack import Builder
from longctx.core.model.adapter import Decoder, Layer
from longctx.core.model.files import open_model_files
from longctx.core.model.rope import NoRope


def test_a_copied_token_counts_once_and_only_while_it_is_generated():
    ids = torch.tensor([9, 4, 5, 6, 5, 9])
    # One layer with two heads, over an answer of four tokens; the needle is [5, 6, 5] at 2 to 4.
    answer = [5, 6, 7, 5]
    looked = torch.tensor([[[2, 1]], [[3, 4]], [[3, 3]], [[2, 4]]])
    # Head 0: 5 at 2, 6 at 3, then 6 is not 7, then 5 at 2 once more: two of three.
    # Head 1: 4 is no needle, 5 at 4 is not 6, 6 is not 7, then 5 at 4: one of three.
    scores = copied(ids, range(2, 5), answer, looked)
    torch.testing.assert_close(scores, torch.tensor([[2 / 3, 1 / 3]], dtype=torch.float64))


def test_an_empty_answer_copies_nothing():
    scores = copied(torch.arange(5), range(1, 3), [], torch.zeros(0, 2, 4).long())
    assert torch.equal(scores, torch.zeros(2, 4, dtype=torch.float64))


@pytest.mark.parametrize("window", [None, 5])
def test_the_most_attended_token_by_the_softmax_of_each_head(window):
    H, G, S, D = 4, 2, 12, 8
    generator = torch.Generator().manual_seed(1)
    q, k = torch.randn(H, 1, D, generator=generator), torch.randn(G, S, D, generator=generator)
    k[:, 2] = 3 * q[::2, 0]  # outside of the window, the best for half of the heads
    layer = Layer(0, H, G, D, 0.3, window, NoRope())
    found = most_attended(layer, q, k).tolist()
    for head in range(H):
        logits = k[head // 2] @ q[head, 0] * 0.3
        if window is not None:
            logits[: S - window] = float("-inf")
        assert found[head] == int(logits.softmax(0).argmax())
    assert (2 in found) == (window is None)


@pytest.mark.parametrize("name", ["llama-default", "llama-dynamic", "mistral-window", "cohere2"])
def test_an_answer_is_that_of_full_attention_whatever_was_asked_before(make_model, name):
    decoder = Decoder(make_model(name))
    generator = torch.Generator().manual_seed(3)
    text = torch.randint(0, 61, (40,), generator=generator)
    questions = [torch.randint(0, 61, (n,), generator=generator) for n in (30, 1, 4)]
    context = Context()
    for chunk in text.split(16):
        decoder.read(chunk, context)
    for question in questions:
        answer, looked = copying._answer(decoder, context.fork(), question, 3, set())
        assert looked.shape == (3, 4, 4)
        ids = torch.cat([text, question])
        for chosen in answer:
            with decoder.as_it_is() as model, torch.inference_mode():
                assert int(model(ids[None]).logits[0, -1].argmax()) == chosen
            ids = torch.cat([ids, torch.tensor([chosen])])


def test_an_answer_ends_where_the_model_ends_it(make_model):
    decoder, context = Decoder(make_model("llama-default")), Context()
    question = torch.tensor([3, 4, 5])
    whole, _ = copying._answer(decoder, context, question, 4, set())
    ended, looked = copying._answer(decoder, Context(), question, 4, {whole[2]})
    assert ended == whole[: whole.index(whole[2])]
    assert len(looked) == len(ended)


def test_needles_are_their_values_tokens():
    tokenizer = open_model_files("tiny").tokenizer
    builder = Builder(tokenizer, prose())
    laid = Haystacks(builder, 1500, seed=1).make(0)
    assert laid.haystack.ids.shape == (1500,)
    assert len(laid.case.queries) == NEEDLES
    for query in laid.case.queries:
        own = tokenizer.decode(laid.haystack.ids[[*value_tokens(laid, query)]])
        assert (own.strip(),) == query.answers
        assert query.answers[0] not in query.question
    with pytest.raises(UsageError, match=r"room for 100 tokens.*longer window"):
        Haystacks(builder, 100, seed=1)


def test_every_needle_has_a_score_for_every_head(make_model):
    class Words:
        def prefix(self):
            return torch.tensor([1, 2])

        def question(self, words):
            return torch.tensor([len(words), 7]), torch.tensor([True, False])

    decoder = Decoder(make_model("llama-default"))
    ids = torch.randint(0, 61, (30,), generator=torch.Generator().manual_seed(3))
    needles = [("a", range(4, 7)), ("ab", range(20, 22))]
    found = list(copy_scores(decoder, Words(), ids, needles, set()))
    assert [each.scores.shape for each in found] == [(4, 4), (4, 4)]
    assert [len(each.answer) for each in found] == [3 + copying.MORE, 2 + copying.MORE]


def test_the_best_retrieval_head_of_each_layer():
    samples = [[[0.0, 0.4], [0.1, 0.1], [0.9, 0.3]], [[0.0, 0.2], [0.1, 0.1], [0.5, 0.3]]]
    heads = score_table(samples)
    assert [(h.layer, h.head) for h in heads[:3]] == [(2, 0), (0, 1), (2, 1)]
    assert heads[0].score == pytest.approx(0.7)
    assert heads[0].error == pytest.approx(0.2)
    best = best_of_layers(heads, {0, 1, 2})  # 0.1 is not above 0.1
    assert [(h.layer, h.head) for h in best] == [(0, 1), (2, 0)]
    assert [h.layer for h in best_of_layers(heads, {0, 1})] == [0]
