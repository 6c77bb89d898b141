"""Quoted answers of whole sessions: the passages' own bytes, by any tokenizer, or the phrase."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch

from longctx.core.ask import candidates, quoting
from longctx.core.ask.answering import Begun, Question
from longctx.core.ask.joint_session import JointSession
from longctx.core.ask.quoting import quoted, spelling_of
from longctx.core.ask.session import Session
from longctx.core.common.errors import UsageError
from longctx.core.decode.policies import USUAL
from longctx.core.engine.choice import Setup
from longctx.core.ingest.ingest import ingest
from longctx.core.kv.prompt import Prompt
from longctx.core.profile.sampling import Sampling
from longctx.core.store.library import Library
from longctx.core.tokens.spelling import Spelling

pytestmark = pytest.mark.usefixtures("models_loaded_once")
TEXT = (
    "The keeper wrote\r\n  of caf\u00e9 7277776, at dawn.\r\n\r\nA boat came home with salt.\r\n"
    * 4
)
QUESTION = "who wrote of the boat?"
FEW = Sampling(max_new_tokens=6)


@pytest.fixture(scope="module")
def library(model_folder, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("quoted")
    profile = str(model_folder / "profile.yaml")
    usual = Setup(model=str(model_folder), profile=profile, device="cpu", dtype="fp32", threads=1)
    (folder / "dos.txt").write_bytes(TEXT.encode())
    (folder / "wide.txt").write_bytes(
        TEXT.replace("boat", "\u0448\u0445\u0443\u043d\u0430").encode("utf-16")
    )
    for name in ("dos", "wide"):
        ingest(folder / "library", [str(folder / f"{name}.txt")], usual)
    keeping = dataclasses.replace(usual, method="reattention")
    (folder / "kept.txt").write_bytes(TEXT.encode())
    ingest(folder / "library", [str(folder / "kept.txt")], keeping)
    return folder / "library"


def require_exact(answer, folder: Path) -> None:
    """Checks that a quoted answer stands where it says, whole words of the source."""
    quote = answer.quote
    raw = Path(quote.source).read_bytes()[quote.start : quote.end]
    assert raw.decode("utf-16-le" if "wide" in quote.source else "utf-8") == quote.text
    assert " ".join(quote.text.split()) == answer.answer
    words = TEXT + TEXT.replace("boat", "\u0448\u0445\u0443\u043d\u0430")
    assert re.search(rf"(?<!\w){re.escape(quote.text)}(?!\w)", words)
    held = answer.sentence
    assert (held.document, held.source) == (quote.document, quote.source)
    assert held.start <= quote.start < quote.end <= held.end
    assert [held.text[low:high] for low, high in held.marks] == [quote.text]
    for other in quote.also:
        same = Path(other.source).read_bytes()[other.start : other.end]
        assert b"".join(same.split()) == b"".join(raw.split())


@pytest.mark.parametrize("name", ["dos", "wide"])
@pytest.mark.parametrize("gather", [24, 60])
def test_an_answer_is_a_stretch_of_the_source(library, setup_random, name, gather):
    with Session(library, name, setup_random) as session:
        answer = session.ask(QUESTION, gather, FEW, quote=True)
        again = session.ask(QUESTION, gather, FEW, quote=True)
    assert answer.quote is not None
    require_exact(answer, library)
    assert (answer.stop, answer.tokens_per_s) == ("end", None)
    assert 0 < answer.tokens["answer"] <= 6
    assert again.quote == answer.quote
    values = answer.as_dict()
    assert values["quote"].keys() == {
        *("document", "source", "line", "place", "start", "end", "text", "also"),
    }
    assert values["quoting"].keys() == {"probability", "not_in_text", "exact", "passes"}


def test_several_documents_are_quoted_by_name(library, setup_random):
    documents = candidates.of_names(Library.open(library), ["dos", "wide"])
    with JointSession(documents, setup_random) as session:
        answer = session.ask(QUESTION, 60, FEW, quote=True)
    require_exact(answer, library)
    assert answer.quote.document == Path(answer.quote.source).stem


def test_what_the_text_lacks_is_said(library, setup_random, monkeypatch):
    monkeypatch.setattr(quoting, "PHRASE", "e")  # what this model says is not to be foreseen
    with Session(library, "dos", setup_random) as session:
        monkeypatch.setattr(quoting.Forks, "score", lambda *_: -1e-6)
        told: list[str] = []
        answer = session.ask(QUESTION, 60, FEW, told.append, quote=True)
    assert (answer.answer, told, answer.quote) == ("e", ["e"], None)
    assert (answer.quoting.probability, answer.quoting.not_in_text) == (None, 1.0)
    assert (answer.quoting.exact, answer.stop) == (True, "end")


def test_free_answers_say_nothing_of_quoting(library, setup_random):
    with Session(library, "dos", setup_random) as session:
        for quote in (None, False):
            answer = session.ask(QUESTION, 60, FEW, quote=quote)
            assert (answer.quote, answer.quoting) == (None, None)


def test_ctrl_c_leaves_no_quotation(library, setup_random, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(quoting.Forks, "after", interrupted)
    with Session(library, "dos", setup_random) as session:
        answer = session.ask(QUESTION, 60, FEW, quote=True)
    assert (answer.interrupted, answer.answer, answer.quote) == (True, "", None)


def test_what_cannot_be_quoted_is_refused(library, setup_random):
    with Session(library, "dos", setup_random) as session:
        with pytest.raises(UsageError, match="cannot quote with --decode quest"):
            session.ask(QUESTION, 60, FEW, decode="quest", quote=True)
        with pytest.raises(UsageError, match="--no-quote"):
            session.ask(QUESTION, 60, FEW, decode="raas", quote=True)
    with Session(library, "kept", setup_random) as session:
        with pytest.raises(UsageError, match="with the method 'reattention'"):
            session.ask(QUESTION, 60, FEW, quote=True)
        assert session.ask(QUESTION, 60, FEW, gather_by="bm25", quote=True).quoting.exact


def test_a_profile_that_wants_quotations_has_them_where_they_can_be(
    library, setup_random, monkeypatch
):
    monkeypatch.setattr(quoting, "wants_quotes", lambda profile: True)
    with Session(library, "dos", setup_random) as session:
        assert session.ask(QUESTION, 60, FEW).quoting is not None
        assert session.ask(QUESTION, 60, FEW, quote=False).quoting is None
        assert session.ask(QUESTION, 60, FEW, decode="quest").quoting is None
    with Session(library, "kept", setup_random) as session:
        assert session.ask(QUESTION, 60, FEW).quoting is None


def test_a_model_with_another_tokenizer_quotes_the_same_text(
    library, setup_random, make_model_folder, tmp_path
):
    """The passages of one model's document, put as text before another model."""
    other = make_model_folder(tmp_path / "other", "salt rain wrote boats " * 9, vocab_size=300)
    answering = Setup(
        model=str(other), profile=str(other / "profile.yaml"), device="cpu", dtype="fp32"
    )
    from longctx.core.engine.setup import prepare

    engine = prepare(answering)
    with Session(library, "dos", setup_random) as session:
        way = session._way(QUESTION, None)
        asked = Question(*session.engine.prompt.question(QUESTION), 6, 60, USUAL, QUESTION)
        begun = way.begin(asked, lambda: None)
        text = session.document.text(0, 0, 60).decode()
        ids = torch.tensor(engine.files.tokenizer(text).input_ids)
        cache = Prompt(len(ids) + 6)
        hidden = engine.decoder.read(ids, cache)[-1:]
        theirs = Begun(begun.policy, hidden, ids, 0, begun.found, 0, cache=cache)
        found = quoted(engine.decoder, engine.files.tokenizer, theirs, way.documents, [1], 6)
        quote = found.quote
        assert session.document.text(0, quote.start, quote.end).decode() == quote.text
    assert found.quoting.exact
    mine, other_one = (spelling_of(e.files.tokenizer) for e in (session.engine, engine))
    assert isinstance(mine, Spelling)
    assert mine is not other_one
    assert spelling_of(engine.files.tokenizer) is other_one


@pytest.mark.slow
def test_the_bundled_model_quotes_a_needle(tmp_path):
    source = tmp_path / "book.txt"
    filler = "The wind was in the east, and nothing came of it.\n"
    source.write_text(f"{filler * 30}The secret number of the vault is 7277776.\n{filler * 30}")
    setup = Setup(model="tiny", device="cpu", dtype="fp32", threads=1)
    ingest(tmp_path / "library", [str(source)], setup)
    with Session(tmp_path / "library", None, setup) as session:
        answer = session.ask("What is the secret number of the vault?", 300, quote=True)
    assert (answer.answer, answer.quoting.exact) == ("7277776", True)
    assert source.read_bytes()[answer.quote.start : answer.quote.end] == b"7277776"
    assert answer.quote.line == 31
