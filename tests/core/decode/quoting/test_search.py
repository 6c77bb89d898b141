"""The likeliest stretch, beside every stretch in every spelling; continuations of one prompt."""

import math
from types import SimpleNamespace

import pytest
import torch
from quoted_by_hand import best_by_hand, byte_level, plain_text, scores, sentence_pieces

from longctx.core.decode.quoting.forks import Forks
from longctx.core.decode.quoting.search import Search
from longctx.core.kv.prompt import Prompt
from longctx.core.model.adapter import Decoder
from longctx.core.tokens.spelling import Spelling, token_bytes

PASSAGES = ("the boat 7277776 came", "a cafe 7277 of the keeper boat")
WORDS = "the keeper and the boat came to the cafe of the keeper at 7277776 and 77"
ENDS, LONGEST = [1], 3


@pytest.fixture(params=["byte-level", "pieces"])
def tokenizer(request):
    return byte_level(WORDS) if request.param == "byte-level" else sentence_pieces(WORDS)


def forks_of(model, prompt: list[int]) -> Forks:
    """A prompt read by our adapter, ready to be continued."""
    decoder, cache = Decoder(model), Prompt(len(prompt) + 8)
    hidden = decoder.read(torch.tensor(prompt), cache)[-1:]
    return Forks(decoder, cache, hidden)


def sharper(make_model, tokenizer, name: str = "llama-default"):
    """A random model that is surer of its tokens, so that stretches of several of them win."""
    size = tokenizer.backend_tokenizer.get_vocab_size()
    model = make_model(name, vocab_size=size, tie_word_embeddings=False)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(8)
    return model


def test_the_likeliest_stretch_is_found(make_model, tokenizer):
    model = sharper(make_model, tokenizer)
    spelling, tokens = Spelling(tokenizer), dict(token_bytes(tokenizer))
    text, found = plain_text(*PASSAGES), set()
    for seed in range(5):
        drawn = torch.Generator().manual_seed(seed)
        prompt = torch.randint(3, len(tokens), (9,), generator=drawn).tolist()
        model.set_attn_implementation("sdpa")
        by_hand = best_by_hand(model, prompt, PASSAGES, tokens, ENDS, LONGEST)
        forks = forks_of(model, prompt)
        search = Search(text, spelling, forks.after, ENDS, LONGEST)
        best = search.run(100_000)
        model.set_attn_implementation("sdpa")
        stretch = text.data[slice(*best.spans[0])].decode()
        assert (stretch, best.score) == (by_hand[0], pytest.approx(by_hand[1], abs=1e-2))
        assert search.exact
        assert all(text.data[slice(*span)].decode() == stretch for span in best.spans)
        found.add(len(best.path))
    assert max(found) > 1  # else beginnings alone were compared


def scores_of(wanted: dict[tuple[int, ...], dict[int, float]], size: int):
    """Log-probabilities that favour some tokens after some paths; all else is very unlikely."""

    def read(path):
        scores = torch.full((size,), -60.0)
        for token, probability in wanted.get(path, {}).items():
            scores[token] = math.log(probability)
        return scores

    return read


@pytest.fixture
def letters():
    """A tokenizer of single bytes, and the id of each character."""
    tokenizer = byte_level("", 258)
    ids = {spelled: number for number, spelled in token_bytes(tokenizer)}
    return Spelling(tokenizer), lambda text: [ids[bytes([byte])] for byte in text.encode()]


def follow(ids: list[int], last: float) -> dict[tuple[int, ...], dict[int, float]]:
    """A model that is almost sure of a path, and of the end after it with a probability."""
    steps = {tuple(ids[:place]): {token: 0.9} for place, token in enumerate(ids)}
    return {**steps, tuple(ids): {1: last}}


@pytest.mark.parametrize("wrong", ["727777", "72777776", "77776", "7277"])
def test_a_part_of_a_number_is_never_given(letters, wrong):
    spelling, ids = letters
    wanted = follow(ids("7277776"), 0.1) | follow(ids(wrong), 0.99)
    wanted[()] = {ids("7")[0]: 0.9}
    search = Search(plain_text("it was 7277776 of"), spelling, scores_of(wanted, 300), ENDS, 20)
    best = search.run(64)
    assert best.spans == ((7, 14),)


def test_a_greedy_choice_is_not_taken_where_another_is_likelier(letters):
    spelling, ids = letters
    a, b = ids("ab")
    wanted = {(): {a: 0.6, b: 0.4}, (a,): {1: 0.1}, (b,): {1: 0.9}}
    search = Search(plain_text("a x b"), spelling, scores_of(wanted, 300), ENDS, 5)
    assert search.run(64).spans == ((4, 5),)
    assert search.exact


def test_what_is_no_likelier_than_the_floor_is_not_given(letters):
    spelling, ids = letters
    read = scores_of(follow(ids("boat"), 0.5), 300)
    likely = 4 * math.log(0.9) + math.log(0.5)
    for floor, given in ((likely - 0.01, True), (likely + 0.01, False)):
        search = Search(plain_text("a boat"), spelling, read, ENDS, 9, floor)
        assert (search.run(64) is not None, search.exact) == (given, True)


def test_a_stretch_longer_than_allowed_is_not_considered(letters):
    spelling, ids = letters
    read = scores_of(follow(ids("boat"), 0.5), 300)
    assert Search(plain_text("a boat"), spelling, read, ENDS, 4).run(64).spans == ((2, 6),)
    found = Search(plain_text("a boat"), spelling, read, ENDS, 3).run(64)
    assert found.spans == ((0, 1),)


def test_at_its_limit_it_says_so_and_still_has_an_answer(letters):
    spelling, ids = letters
    read = scores_of(follow(ids("keeper"), 0.5), 300)
    search = Search(plain_text("the keeper"), spelling, read, ENDS, 20)
    best = search.run(2)
    assert best.spans == ((4, 10),)
    flat = Search(plain_text("the keeper"), spelling, lambda _: torch.full((300,), -6.0), ENDS, 9)
    assert flat.run(3) is not None
    assert not flat.exact
    assert flat.passes <= 3 + 9


def test_every_place_of_the_same_words_is_known(letters):
    spelling, ids = letters
    read = scores_of(follow(ids("boat"), 0.5), 300)
    text = plain_text("a boat boats", "boat by boat")
    assert Search(text, spelling, read, ENDS, 9).run(64).spans == ((2, 6), (13, 17), (21, 25))


def test_no_stretch_goes_on_in_the_next_passage(letters):
    spelling, ids = letters
    wanted = follow(ids("a boat"), 0.9)
    search = Search(plain_text("a", "boat"), spelling, scores_of(wanted, 300), ENDS, 9)
    best = search.run(64)
    assert best.spans == ((0, 1),)


@pytest.mark.parametrize("name", ["llama-default", "llama-longrope", "qwen3-windows"])
def test_a_fork_reads_as_if_it_alone_followed(make_model, name):
    model = make_model(name)
    for length in (9, 62):  # the longer one crosses the model's window
        prompt = torch.randint(
            2, 61, (length,), generator=torch.Generator().manual_seed(5)
        ).tolist()
        model.set_attn_implementation("sdpa")
        paths = [(5,), (5, 7, 9, 11), (5, 7), (3,), (5, 7, 9, 12), (5, 7, 9, 12, 4)]
        expected = scores(model, prompt, paths, ENDS)
        forks = forks_of(model, prompt)
        for path in paths:
            steps = [forks.after(path[:count]) for count in range(len(path))]
            own = sum(float(step[token]) for step, token in zip(steps, path, strict=True))
            read = own + float(forks.after(path)[ENDS].logsumexp(0))
            assert read == pytest.approx(expected[path], abs=1e-3)
            assert forks.score(path, ENDS) == pytest.approx(expected[path], abs=1e-3)
        assert forks.spent().held == length + 5


def test_rotations_that_depend_on_the_length_are_those_of_the_path(make_model):
    model, prompt = make_model("llama-dynamic"), [*range(2, 61)] * 2
    prompt = prompt[:62]  # the first path crosses the model's window, where rotations change
    used, fresh = forks_of(model, prompt), forks_of(model, prompt)
    used.after((5, 7, 9, 11))
    assert torch.allclose(used.after((3,)), fresh.after((3,)), atol=1e-4)


def test_other_tokenizers_are_refused():
    from tokenizers import Tokenizer, decoders, models

    from longctx.core.common.errors import UsageError

    backend = Tokenizer(models.WordPiece({"a": 0}, unk_token="a"))
    backend.decoder = decoders.WordPiece()
    with pytest.raises(UsageError, match="WordPiece"):
        Spelling(SimpleNamespace(backend_tokenizer=backend))
