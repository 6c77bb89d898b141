"""What every decode policy must do, and a toy that is one file in a folder of its own."""

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import preloaded
import pytest
import torch
from decoded import ORDER, WIDE, greedy, step
from row_list import RowList
from sampled import WHOLE
from toys import POLICY, toy

from longctx.core.ask.session import Session
from longctx.core.common.errors import UsageError
from longctx.core.contracts import policy as contract
from longctx.core.contracts.memory import Place
from longctx.core.decode import policies
from longctx.core.decode.policies import choose, load
from longctx.core.engine.choice import Setup
from longctx.core.engine.encode import encode
from longctx.core.ingest.ingest import ingest
from longctx.core.kv.prompt import Prompt
from longctx.core.methods import reattention
from longctx.core.model.adapter import Decoder
from longctx.core.profile.sampling import Sampling

TOY = "loud+clear"
NAMES = [*policies.names(), TOY]
# Budgets that what is asked here just fits; others are tried as they are by default.
TIGHT = {
    "recycled": "recycled:budget=128,stride=3",
    "quest": "quest:budget=96",
    "raas": "raas:budget=128",
    "quest+raas": "quest+raas:budget=64,answer_budget=64",
    "snapkv": "snapkv:budget=96",
}
BEYOND = ["recycled:budget=48", "quest:budget=48", "quest+raas:budget=48", "snapkv:budget=48"]
STEPS = 20
# Models, with tokens of the prompt. Of the last three, frequencies depend on the length.
MODELS = [
    *((name, 25) for name in ("llama-default", "llama-one-kv-head", "qwen3-windows", "gemma2")),
    *((name, 25) for name in ("gemma3", "gpt_oss", "cohere2", "mistral-window", "phi3-longrope")),
    *(("llama-longrope", 25), ("llama-dynamic", 57), ("qwen3-windows, longrope", 25)),
]
GROWING = [name for name, _ in MODELS[-3:]]
QUESTION = "who wrote?"
ASKING = """\
import json
from longctx.core.ask.session import Session
from longctx.core.decode import policies
from longctx.core.engine.choice import Setup
library, model, toys, *names = GIVEN
policies.__path__.append(toys)
setup = Setup(model=model, profile=f"{model}/profile.yaml", device="cpu", dtype="fp32", threads=1)
with Session(library, "whole", setup) as session:
    print(json.dumps([session.ask("who wrote?", decode=name).answer for name in names]))
raise SystemExit
"""


@pytest.fixture(scope="module", autouse=True)
def toys(tmp_path_factory) -> Path:
    """The folder with the toy, which is a policy for all tests here."""
    folder = tmp_path_factory.mktemp("toys")
    with toy(policies, "loud_clear", POLICY, folder):
        yield folder


# --- tokens of an answer ---


def answered(decoder, text, prompt, limit):
    """The most likely tokens, their logits and what was spent, with room for `limit` tokens."""
    chosen = choose(text, {})
    cache = Prompt(prompt + chosen.options.reserve(limit), chosen.options.observed)
    decoder.read(torch.tensor(ORDER[:prompt]), cache)
    policy = load(chosen.name).Policy(chosen.options, cache, WIDE)
    return *greedy(decoder, policy, ORDER[prompt], STEPS), policy.spent()


@pytest.fixture(scope="module")
def dense_of(make_model):
    """A decoder of each model, and what dense decoding gives with it."""
    known = {}

    def of(name: str, prompt: int):
        if name not in known:
            kind, _, rope = name.partition(", ")
            decoder = Decoder(make_model(kind, vocab_size=400, **({"rope": rope} if rope else {})))
            known[name] = decoder, answered(decoder, "dense", prompt, STEPS)
        return known[name]

    return of


# Every third policy with a model, and every third model with a policy.
WITHIN = [
    (*model, name)
    for m, model in enumerate(MODELS)
    for n, name in enumerate(sorted({*NAMES} - {"dense"}))
    if WHOLE or (m + n) % 3 == 0
]


@pytest.mark.parametrize(("model", "prompt", "name"), WITHIN)
def test_within_the_budget_it_is_dense_whatever_the_room(dense_of, model, prompt, name):
    decoder, (tokens, logits, spent) = dense_of(model, prompt)
    if model in GROWING:
        assert not decoder.layers[0].rope.same_basis(prompt, prompt + STEPS)
    for limit in (STEPS, 4 * STEPS)[model not in GROWING :]:
        found = answered(decoder, TIGHT.get(name, name), prompt, limit)
        assert found[0] == tokens
        assert np.abs(found[1] - logits).max() < 1e-4 * max(1, np.abs(logits).max())
        assert found[2].attended == pytest.approx(spent.attended)


def recalled(decoder, name):
    """Logits after tokens over all that was kept, all of it in every window, and what was spent."""
    wide = reattention.Options(first=4, local=60, chunk=12, top_k=2, voted=5, span=4, gather=40)
    method, ids = reattention.Method(wide, decoder.layers, Place()), torch.tensor(ORDER)
    list(encode(decoder, method, ids[:3], [ids[3:12]], RowList()))
    memory = method.recall()
    decoder.read(ids[12:20], memory)
    memory.begin_answer()
    policy = load(name).Policy.recalling(choose(name, {}).options, memory, WIDE)
    return np.array([step(decoder, policy, token) for token in ORDER[20:32]]), policy.spent()


@pytest.mark.parametrize("name", [name for name in NAMES[:-1] if load(name).Policy.recalling])
@pytest.mark.parametrize("model", ["llama-default", "gemma3", "mistral-window"])
def test_over_what_was_kept_it_is_dense_within_the_budget(dense_of, model, name):
    decoder, _ = dense_of(model, 25)
    (logits, spent), (found, mine) = (recalled(decoder, each) for each in ("dense", name))
    assert np.abs(found - logits).max() < 1e-4 * max(1, np.abs(logits).max())
    assert mine.attended == pytest.approx(spent.attended)


# --- questions ---


@pytest.fixture(scope="module")
def setup(model_folder) -> Setup:
    profile = str(model_folder / "profile.yaml")
    return Setup(model=str(model_folder), profile=profile, device="cpu", dtype="fp32", threads=1)


@pytest.fixture(scope="module")
def library(tmp_path_factory, setup) -> Path:
    """A document that is recomputed whole, and one of which all was kept."""
    folder = tmp_path_factory.mktemp("documents")
    (folder / "a.txt").write_text("the keeper wrote in his book that a boat came home " * 6)
    for name, method in (("whole", "full"), ("kept", "reattention")):
        changed = Setup(**{**vars(setup), "method": method})
        ingest(folder / "library", [str(folder / "a.txt")], changed, name)
    return folder / "library"


@pytest.fixture(scope="module")
def whole(library, setup) -> Session:
    with Session(library, "whole", setup) as session:
        yield session


@pytest.fixture(scope="module")
def kept(library, setup) -> Session:
    with Session(library, "kept", setup) as session:
        yield session


@pytest.fixture(scope="module")
def asked_elsewhere(library, model_folder, toys) -> dict[str, str]:
    """What each policy answers in another process."""
    given = [str(library), str(model_folder), str(toys), *NAMES]
    done = preloaded.run([], before=f"GIVEN = {given!r}\n{ASKING}")
    assert done.returncode == 0, done.stderr
    return dict(zip(NAMES, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_another_process_gives_the_same_answer(whole, asked_elsewhere, name):
    found, dense = (whole.ask(QUESTION, decode=each) for each in (name, "dense"))
    assert (found.answer, found.attended_per_step) == (dense.answer, dense.attended_per_step)
    assert asked_elsewhere[name] == found.answer
    assert found.policy["name"] == name


def test_every_policy_is_run_beyond_its_budget():
    """But `raas`, which refuses such a prompt: it evicts only from the answer (test_raas.py)."""
    tried = {text.partition(":")[0] for text in BEYOND}
    assert tried == {*policies.names()} - {"dense", "raas", TOY}


@pytest.mark.parametrize("text", BEYOND)
def test_beyond_the_budget_less_is_attended_to(whole, text):
    dense = whole.ask(QUESTION)
    assert whole.ask(QUESTION, decode=text).attended_per_step < dense.attended_per_step


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_ends_by_its_length_and_before_a_stop_string(whole, name):
    long = whole.ask(QUESTION, sampling=Sampling(max_new_tokens=6), decode=name)
    assert (long.tokens["answer"], long.stop) == (6, "length")
    text = long.answer
    ended = whole.ask(QUESTION, sampling=Sampling(max_new_tokens=6, stop=(text[3:5],)), decode=name)
    assert (ended.answer, ended.stop) == (text[: text.index(text[3:5])], "stop string")


@pytest.mark.parametrize("name", NAMES)
def test_what_was_kept_is_decoded_over_or_refused(kept, name):
    if load(name).Policy.recalling:
        found = kept.ask(QUESTION, decode=TIGHT.get(name, name))
        assert (found.policy["name"], found.tokens["answer"] > 0) == (name, True)
        return
    fitting = [each for each in sorted(NAMES) if load(each).Policy.recalling]
    with pytest.raises(UsageError, match="the policies for that are") as refused:
        kept.ask(QUESTION, decode=name)
    assert ", ".join(fitting) in str(refused.value)


# --- what it says of itself ---


@pytest.mark.parametrize("name", NAMES)
def test_options_that_it_does_not_have_or_take_are_refused(name):
    options = fields(load(name).Options)
    with pytest.raises(UsageError, match="unknown key 'nope'"):
        choose(f"{name}:nope=1", {})
    for option in options:
        with pytest.raises(UsageError, match=f"{option.name}.*Correct --decode"):
            choose(f"{name}:{option.name}={{}}", {})
    if "budget" in {option.name for option in options}:
        with pytest.raises(UsageError, match="budget"):
            choose(f"{name}:budget=0", {})


@pytest.mark.parametrize("name", policies.names())
def test_it_has_a_section_in_the_docs(name):
    documented = (Path(__file__).parents[4] / "docs" / "decoding.md").read_text("utf-8")
    assert f"\n## `{name}`\n" in documented


@pytest.mark.parametrize(
    ("base", "lacks"), [("Policy", "attend, kind, spent"), ("Recalling", "attend, spent")]
)
def test_a_class_that_lacks_members_cannot_be_made(base, lacks):
    with pytest.raises(TypeError, match=f"Half lacks {lacks}$"):
        type("Half", (getattr(contract, base),), {})
