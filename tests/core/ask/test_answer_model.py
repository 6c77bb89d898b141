"""Another model answers: its prompt, its logits, whose citations; with two tokenizers."""

import dataclasses
import itertools
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from small_passages import small_passages
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from longctx.core.ask import candidates, gathering
from longctx.core.ask.asking import Asking
from longctx.core.ask.joint_session import JointSession
from longctx.core.ask.session import Session
from longctx.core.common.errors import UsageError
from longctx.core.engine import setup as engines
from longctx.core.ingest.ingest import ingest
from longctx.core.profile.sampling import Sampling
from longctx.core.store.library import Library

pytestmark = pytest.mark.usefixtures("models_loaded_once")
LINES = [f"line {i}: the keeper wrote of Zoë, and boat {i * 7919 % 1000}" for i in range(40)]
LINES[25] += " saw a zeppelin 飛行船</s>"
LINES[5] += " and no zeppelin"
QUESTION = "which boat saw the zeppelin?"
FEW = Sampling(max_new_tokens=3)
PROFILE = """\
name: other
window: 250
prompt: {prefix: "<s>read this:\\n", question: "\\n\\n{question}\\nsay:"}
max_new_tokens: 5
methods: {reform: {gather: 140}}
"""


@pytest.fixture(scope="module", autouse=True)
def small_cuts():
    with pytest.MonkeyPatch.context() as patch:
        small_passages(patch, 32)
        yield


@pytest.fixture(scope="module")
def other(make_model_folder, tmp_path_factory) -> Path:
    """A model with other tokens and other weights."""
    words = "line boat saw zeppelin keeper wrote of and a the Zo line boat saw zeppelin keeper"
    folder = make_model_folder(tmp_path_factory.mktemp("models") / "other", words, 320)
    (folder / "profile.yaml").write_text(PROFILE)
    return folder


@pytest.fixture(scope="module")
def library(tmp_path_factory, setup) -> Path:
    folder = tmp_path_factory.mktemp("answering")
    texts = {"book": LINES, "second": LINES[20:30], "short": LINES[25:26], "kept": LINES[:30]}
    texts |= {"whole": LINES[25:27]}
    methods = {"kept": "reattention", "whole": "full"}
    for name, lines in texts.items():
        (folder / f"{name}.txt").write_text("\n".join(lines), "utf-8")
        changed = dataclasses.replace(setup, method=methods.get(name))
        ingest(folder / "library", [str(folder / f"{name}.txt")], changed)
    return folder / "library"


@pytest.fixture
def opened(library, setup, other):
    """Opens documents; another model answers, unless fields of the setup say otherwise."""
    with ExitStack() as stack:

        def open_session(*names: str, **fields) -> Asking:
            answers = {"answer_model": str(other), "answer_profile": str(other / "profile.yaml")}
            changed = dataclasses.replace(setup, **(answers | fields))
            if len(names) == 1:
                return stack.enter_context(Session(library, names[0], changed))
            chosen = candidates.of_names(Library.open(library), names)
            return stack.enter_context(JointSession(chosen, changed))

        yield open_session


@pytest.fixture
def prompts(monkeypatch) -> list[tuple[torch.Tensor, tuple[list[int], ...]]]:
    """Last hidden state, and prefix, document's part and question of each prompt."""
    seen, recompute = [], gathering.recompute

    def noted(*given):
        prompt, hidden = recompute(*given)
        seen.append((hidden, tuple(part.tolist() for part in given[1:4])))
        return prompt, hidden

    monkeypatch.setattr(gathering, "recompute", noted)
    return seen


def ids_of(folder: Path, text: str) -> list[int]:
    """A model's own tokens of a text, in which special tokens are text."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("by", ["hybrid", "bm25", "maxsim"])
@pytest.mark.parametrize("names", [("book",), ("second", "book")])
def test_the_prompt_is_the_passages_text_in_its_own_tokens(opened, other, prompts, by, names):
    session = opened(*names)
    answer = session.ask(QUESTION, sampling=FEW, gather_by=by, passages=2)
    ((hidden, (prefix, document, question)),) = prompts
    assert prefix == [0, *ids_of(other, "read this:\n")]
    assert question == ids_of(other, f"\n\n{QUESTION}\nsay:")
    in_order = sorted(answer.passages, key=lambda one: (names.index(one.document), one.start))
    assert document == [i for passage in in_order for i in ids_of(other, passage.text)]
    assert len(in_order) == 2 or by != "bm25"
    model = AutoModelForCausalLM.from_pretrained(other).eval()
    prompt = torch.tensor([[*itertools.chain(prefix, document, question)]])
    with torch.inference_mode():
        wanted = model(prompt).logits[0]
        assert torch.allclose(
            session.engine.answering.decoder.logits(hidden), wanted[-1:], atol=1e-4
        )
        said = model.generate(prompt, max_new_tokens=3, do_sample=False)[0, prompt.shape[1] :]
    tokenizer = AutoTokenizer.from_pretrained(other)
    if 1 not in said.tolist():  # it did not end
        assert tokenizer.decode(said).strip().rstrip("\ufffd") == answer.answer.rstrip("\ufffd")
    assert answer.state["model"] != answer.state["answer_model"] == str(other)
    read = {"tokens": len(document), "passages": len(in_order), "order": "document"}
    assert answer.state["read"] == read
    assert answer.tokens["question"] == len(question)
    assert len(prefix) + len(document) <= 140


def test_citations_are_the_documents(opened, library):
    with_other = opened("book").ask(QUESTION, 200, FEW, gather_by="bm25", passages=2)
    session = opened("book", answer_model=None, answer_profile=None)
    own = session.ask(QUESTION, 200, FEW, gather_by="bm25", passages=2)
    assert with_other.passages[0] == own.passages[0]
    raw = (library.parent / "book.txt").read_bytes()
    for passage in with_other.passages:
        assert raw[passage.start : passage.end].decode() == passage.text
    assert (with_other.found, with_other.evidence) == (own.found, own.evidence)


def test_what_fits_it_as_a_whole_is_read_as_it_is(opened, other, prompts, library):
    text = (library.parent / "short.txt").read_text()
    answer = opened("short").ask(QUESTION, sampling=FEW)
    assert prompts[0][1][1] == ids_of(other, text)
    assert answer.tokens["dropped"] == 0
    assert [passage.text for passage in answer.passages] == [text]
    by_method = opened("short").ask(QUESTION, sampling=FEW, gather_by="method")
    assert prompts[1][1] == prompts[0][1]
    assert by_method.state["read"] == answer.state["read"]


def test_the_published_rule_chooses_and_its_tokens_become_text(opened, other, prompts):
    answer = opened("book").ask(QUESTION, 120, FEW, gather_by="method")
    in_order = sorted(answer.passages, key=lambda passage: passage.start)
    wanted = [i for passage in in_order for i in ids_of(other, passage.text)]
    assert prompts[0][1][1] == wanted
    assert 60 < len(wanted) <= 120
    assert answer.state["read"]["order"] == "document"


def test_a_document_of_a_method_that_needs_all_is_put_before_it_whole(
    opened, other, prompts, library
):
    opened("whole").ask(QUESTION, sampling=FEW)
    assert prompts[0][1][1] == ids_of(other, (library.parent / "whole.txt").read_text())


@pytest.mark.parametrize("names", [("book",), ("book", "second")])
def test_the_model_that_read_is_loaded_only_to_search_with_it(opened, monkeypatch, names):
    loaded, load = [], engines.load_decoder

    def noted(folder, *given):
        loaded.append(Path(folder).name)
        return load(folder, *given)

    monkeypatch.setattr(engines, "load_decoder", noted)
    session = opened(*names)
    session.ask(QUESTION, sampling=FEW, gather_by="bm25")
    session.ask(QUESTION, sampling=FEW)
    assert loaded == ["other"]
    session.ask(QUESTION, sampling=FEW, gather_by="maxsim")
    session.ask(QUESTION, sampling=FEW, gather_by="maxsim")
    assert loaded == ["other", "random"]


@pytest.mark.parametrize("names", [("kept",), ("kept", "book")])
def test_keys_that_were_kept_are_not_another_models(opened, names):
    said = "cannot answer from 'kept' with another model.*'reattention'.*--gather-by bm25"
    with pytest.raises(UsageError, match=said):
        opened(*names).ask(QUESTION)


def test_text_of_such_a_document_is_gathered_by_words(opened, prompts, other):
    answer = opened("kept").ask("boat 63", sampling=FEW, gather_by="bm25")
    assert answer.state["method"] == "reattention"
    assert answer.state["read"]["passages"] >= 1
    assert answer.state["without_vectors"] == []


def test_decode_policies_work_on_its_prompt(opened):
    session = opened("book")
    dense, snapkv = (session.ask(QUESTION, decode=d) for d in ("dense", "snapkv:budget=64"))
    assert snapkv.policy["name"] == "snapkv"
    assert snapkv.held < dense.held
    assert dense.tokens["answer"] <= 5  # of its profile


def test_the_documents_own_model_as_the_one_that_answers_changes_nothing(
    opened, model_folder, prompts, setup, monkeypatch
):
    own = {"answer_model": str(model_folder), "answer_profile": setup.profile}
    loaded, load = [], engines.load_decoder
    monkeypatch.setattr(engines, "load_decoder", lambda *a: loaded.append(1) or load(*a))
    named = opened("book", **own).ask(QUESTION, sampling=FEW)
    assert len(loaded) == 1
    usual = opened("book", answer_model=None, answer_profile=None).ask(QUESTION, sampling=FEW)
    assert prompts[0][1] == prompts[1][1]
    assert (named.answer, named.passages) == (usual.answer, usual.passages)


def test_a_model_without_a_profile_answers_in_its_own_prompt(opened, prompts, other):
    answer = opened("book", answer_profile=None).ask(QUESTION, sampling=FEW)
    assert prompts[0][1][2] == ids_of(other, f"\n\nQuestion: {QUESTION}\nAnswer:")
    assert answer.state["read"]["tokens"] <= 128  # half of its window


def test_what_cannot_be_is_refused(opened):
    with pytest.raises(UsageError, match=r"answering model's profile.*--answer-model"):
        opened("book", answer_model=None)
    with pytest.raises(UsageError, match="no-such"):
        opened("book", answer_model="./no-such", answer_profile=None)
    with pytest.raises(UsageError, match="leaves no room"):
        opened("book").ask("boat " * 400)
