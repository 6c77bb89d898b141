"""Decoding: the tokens that transformers' `generate` draws, and where an answer ends."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, StopStringCriteria

from longctx.core.ask.recompute import recompute
from longctx.core.common.errors import UsageError
from longctx.core.decode.decode import UNFINISHED, Generation, texts
from longctx.core.decode.policies.dense import Options, Policy
from longctx.core.engine.setup import prepare
from longctx.core.model.files import open_model_files
from longctx.core.profile.sampling import Sampling

TEXT = "the keeper wrote: the END of a — boat\n\nQuestion: ENDED 🙂 news"
END = 1


@pytest.fixture(scope="module")
def tokenizer(model_folder):
    return open_model_files(str(model_folder)).tokenizer


class Script:
    """A decoder whose most likely tokens are those of a list."""

    device = torch.device("cpu")

    def __init__(self, ids: list[int]):
        self.ids, self.read_tokens = ids, 0

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.tensor([self.ids[self.read_tokens]]), 500).float()

    def read(self, token: torch.Tensor, memory: object) -> torch.Tensor:
        self.read_tokens += 1
        return torch.zeros(1, 1)


class NoPolicy:
    """The policy of a model that attends to nothing."""

    kind = None

    def begin_token(self) -> None: ...

    def end_token(self) -> None: ...

    def advance(self) -> None: ...


def scripted(ids: list[int], limit: int = 100, **sampling) -> Generation:
    prompt = torch.tensor([0])
    return Generation(
        Script([*ids, END]),
        NoPolicy(),
        torch.zeros(1, 1),
        prompt,
        Sampling(**sampling),
        limit,
        {END},
    )


# --- what ends an answer ---


@pytest.mark.parametrize(
    "stops",
    [
        ("END",),
        ("ND of",),  # begins inside a token or a word, ends in another
        ("\n\nQuestion:", "never"),
        ("e END", "the END of a"),  # the one that is complete first
        ("— b",),
        ("🙂",),  # several tokens for one character
        ("ENDING", "ENDED"),  # what begins like a stop string is shown when it is none
        ("news!",),
        ("t",),
    ],
)
@pytest.mark.parametrize("one_by_one", [False, True])
def test_an_answer_ends_before_a_stop_string_and_shows_nothing_of_it(tokenizer, stops, one_by_one):
    pieces = [*TEXT] if one_by_one else [TEXT]
    ids = [i for piece in pieces for i in tokenizer(piece, add_special_tokens=False).input_ids]
    answer = scripted(ids, stop=stops)
    shown = [*answer.texts(tokenizer)]
    places = {TEXT.index(stop) + len(stop): TEXT.index(stop) for stop in stops if stop in TEXT}
    assert "".join(shown) == TEXT[: places[min(places)] if places else None]
    assert all(shown)
    assert answer.stop == ("stop string" if places else "end")
    if places:  # after the very token after which transformers ends, and nothing is run for more
        criteria = StopStringCriteria(tokenizer, list(stops))
        count = next(
            n for n in range(1, len(ids) + 1) if criteria(torch.tensor([ids[:n]]), None).item()
        )
        assert answer.count == count == answer._decoder.read_tokens + 1


def test_text_is_shown_as_soon_as_it_is_certain(tokenizer):
    ids = [i for c in "a boat EN END" for i in tokenizer(c, add_special_tokens=False).input_ids]
    shown = [*scripted(ids, stop=("END",)).texts(tokenizer)]
    assert shown == [*"a boat ", "EN "]


def test_what_was_held_back_is_given_when_ctrl_c_comes(tokenizer):
    answer = scripted(tokenizer.encode("the END"), stop=("ENDED",))
    tokens, shown = answer.tokens, []

    def interrupted():
        yield from itertools.islice(tokens(), 100)
        raise KeyboardInterrupt

    answer.tokens = interrupted
    with pytest.raises(KeyboardInterrupt):
        shown.extend(answer.texts(tokenizer))  # piece by piece
    assert "".join(shown) == "the END"


def test_bytes_that_are_no_text_do_not_wait_for_ever(tokenizer):
    byte = tokenizer.encode("🙂")[0]
    assert tokenizer.decode([byte]) == "\N{REPLACEMENT CHARACTER}"
    tokens = [byte] * 3 * UNFINISHED + tokenizer.encode("news 🙂")
    shown = [*texts(tokenizer, iter(tokens))]
    assert len(shown) >= 3
    assert "".join(shown).lstrip("\N{REPLACEMENT CHARACTER}") == "news 🙂"


def test_the_models_end_and_the_length_are_told_apart(tokenizer):
    ids = tokenizer("the boat came home", add_special_tokens=False).input_ids
    for limit, stop in ((len(ids) + 1, "end"), (len(ids), "length"), (2, "length")):
        answer = scripted(ids, limit)
        assert [*answer.tokens()] == ids[:limit]
        assert (answer.stop, answer.count) == (stop, min(limit, len(ids)))
    beginning = scripted(ids, 1, stop=("the boat",))  # may have become one
    assert [*beginning.texts(tokenizer)] == ["the"]
    assert beginning.stop == "length"


def test_every_end_that_the_models_files_name_counts(model_folder, tmp_path):
    files = open_model_files(str(model_folder))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 7]}')
    config = SimpleNamespace(eos_token_id=9)
    moved = type(files)(files.name, tmp_path, config, files.tokenizer)
    assert moved.eos_ids() == {1, 5, 7, 9}


# --- what is drawn ---


@pytest.mark.parametrize(
    "choices",
    [
        {"repetition_penalty": 1.7},
        {"temperature": 1.5},
        {"temperature": 3.0, "top_k": 5},
        {"temperature": 2.0, "top_p": 0.8, "repetition_penalty": 1.3},
        {"temperature": 2.0, "min_p": 0.5, "top_p": 0.99, "top_k": 300},
    ],
)
def test_tokens_are_those_of_transformers_generate(setup_random, model_folder, choices):
    engine = prepare(setup_random)
    words = "the keeper wrote that a boat came home"
    prompt = torch.tensor(engine.files.tokenizer(words).input_ids)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    sampling = {"do_sample": "temperature" in choices, "top_k": 0, **choices}
    torch.manual_seed(11)
    expected = model.generate(prompt[None], max_new_tokens=24, eos_token_id=None, **sampling)
    read, hidden = recompute(engine.decoder, prompt[:0], prompt, prompt[:0], 24)
    policy = Policy(Options(), read, engine.window)
    answer = Generation(
        engine.decoder, policy, hidden, prompt, Sampling(**choices, seed=11), 24, set()
    )
    assert [*answer.tokens()] == expected[0, len(prompt) :].tolist()


def test_choices_stand_over_a_profiles(tmp_path):
    mine, profile = Sampling(top_k=3, temperature=0.0), Sampling(top_k=9, top_p=0.5, temperature=1)
    assert mine.over(profile) == Sampling(top_k=3, top_p=0.5, temperature=0.0)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"temperature": -1}, r"temperature -1.*Give --temperature 0, or 0.0001 or more"),
        ({"temperature": 1e-38}, r"temperature 1e-38"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"temperature": float("inf")}, "temperature inf"),
        ({"top_p": 0}, r"top-p 0.*above 0 and at most 1"),
        ({"top_p": 1.1}, r"top-p 1\.1"),
        ({"top_k": 0}, r"top-k 0.*1 or more"),
        ({"min_p": -0.1}, r"min-p -0\.1.*from 0 to 1"),
        ({"min_p": 1.5}, r"min-p 1\.5"),
        ({"repetition_penalty": 0}, r"repetition-penalty 0.*above 0"),
        ({"seed": -1}, r"seed -1.*from 0"),
        ({"max_new_tokens": 0}, "cannot generate 0 tokens"),
        ({"stop": ("a", "")}, r"empty text.*--stop"),
    ],
)
def test_choices_out_of_range_are_refused(choice, message):
    with pytest.raises(UsageError, match=message):
        Sampling(**choice)


def test_what_is_held_back_is_the_longest_beginning_of_a_stop_string(tokenizer):
    for text in map("".join, itertools.product("ab", repeat=7)):
        shown = "".join(scripted([], stop=("aaba", "bb"))._before_stop(text))
        ends = [n for n in range(len(text) + 1) if text[:n].endswith(("aaba", "bb"))]
        whole = text[: ends[0]] if ends else text
        assert shown == (whole.removesuffix("aaba").removesuffix("bb") if ends else whole)
