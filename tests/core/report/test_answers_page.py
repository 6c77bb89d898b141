"""The page of answers: what of the documents it shows, where, and what is highlighted."""

import dataclasses
from itertools import product

import pytest
from page_elements import Elements
from small_passages import small_passages

from longctx.core.ask.follow_up import Exchange
from longctx.core.ask.session import Session
from longctx.core.engine.choice import Setup
from longctx.core.ingest.ingest import ingest
from longctx.core.profile.sampling import Sampling
from longctx.core.report import excerpts
from longctx.core.report.answers import MOST, answers_page, shown
from longctx.core.report.excerpts import excerpt
from longctx.core.store.library import Library

pytestmark = pytest.mark.usefixtures("models_loaded_once")
LINES = [f"line {i}: the keeper <b>wrote</b> of boat {i * 7919 % 1000}" for i in range(300)]
LINES[150] = "line 150: in the fog the boat 675 saw a zeppelin & its <script>crew</script>"
QUESTION = "which boat saw the zeppelin?"
FEW = Sampling(max_new_tokens=3)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a library, in which a text is read by a method once for all tests."""
    return tmp_path_factory.mktemp("asked")


@pytest.fixture
def ask(place, model_folder, monkeypatch):
    """What a page shows of an answer about lines of text."""
    small_passages(monkeypatch, 32)
    profile = str(model_folder / "profile.yaml")
    setup = Setup(str(model_folder), profile, device="cpu", dtype="fp32", threads=1)

    def of(lines, end="\n", method="reform", **more):
        text = end.join(lines)
        name = f"{method}-{len(text)}"
        if not (place / "library" / "documents" / name).exists():
            (place / "b&w.txt").write_bytes(text.encode())
            setup_of = dataclasses.replace(setup, method=method)
            ingest(place / "library", [str(place / "b&w.txt")], setup_of, name)
        found = []
        with Session(place / "library", name, setup) as session:
            answer = session.ask(QUESTION, sampling=FEW, on_based=found.append, **more)
            (based,) = found
            return shown(answer, based.documents, based.ranked)

    return of


def _marked(page: str) -> list[tuple[str | None, str]]:
    """The highlighted parts of passages: (class, text)."""
    read = Elements(page)
    return [(attrs.get("class"), text) for tag, attrs, text in read.inside if tag == "mark"]


def test_the_sentence_that_answers_is_highlighted_in_its_passage(ask):
    one = ask(LINES, gather=60, gather_by="bm25")
    page = answers_page([one])
    passage, found = one.passages[0]
    text = "".join(segment.text for segment in found.segments)
    whole = "\n".join(LINES)
    assert text in whole
    inside = "".join(segment.text for segment in found.segments if segment.inside)
    assert inside == passage.text
    before = "".join(s.text for s in found.segments[:2] if not s.inside and s is found.segments[0])
    assert before.count("\n") == excerpts.LINES
    answering = "".join(segment.text for segment in found.segments if segment.answers)
    assert answering == one.answer.sentence.text
    assert "zeppelin" in answering
    marked = "".join(text for look, text in _marked(page) if look in (None, "strong"))
    assert LINES[150] in marked
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert ("strong", "zeppelin") in _marked(page)


@pytest.mark.parametrize(
    ("method", "by"),
    [
        ("reform", "hybrid"),
        *product(["reform", "reattention", "full", "truncate"], ["bm25", "method"]),
    ],
)
def test_every_way_to_answer_has_a_page(ask, method, by):
    lines = {"full": LINES[149:152], "reattention": LINES[100:200]}.get(method, LINES)
    one = ask(lines, method=method, gather=60 if by != "method" else None, gather_by=by)
    page = answers_page([one])
    read = Elements(page)
    assert len(one.passages) == min(MOST, len(one.answer.passages))
    bars = [attrs for tag, attrs in read.found if attrs.get("class") == "bin"]
    ticks = [attrs for tag, attrs in read.found if attrs.get("class") == "tick"]
    assert len(ticks) == (len(one.passages) if one.strip else 0)
    assert bool(bars) == (one.strip is not None and any(one.strip.bins))
    if by == "bm25":
        assert one.strip is not None
    links = {attrs["href"] for tag, attrs in read.found if tag == "a"}
    assert links <= {f"#{attrs['id']}" for _, attrs in read.found if "id" in attrs}
    if len(one.answer.passages) > MOST:
        assert f"{len(one.answer.passages) - MOST:,} more passages were gathered." in read.texts


def test_a_tick_is_where_its_passage_begins(ask):
    one = ask(LINES, gather=60, gather_by="bm25")
    share = one.ticks[0] / one.strip.total
    ticks = [a for _, a in Elements(answers_page([one])).found if a.get("class") == "tick"]
    assert float(ticks[0]["x"]) == pytest.approx(1000 * share, abs=0.01)
    assert 0.4 < share < 0.6  # line 150 of 300


def test_of_a_long_passage_the_part_that_answers_is_shown(ask, place):
    one = ask(LINES, gather=60, gather_by="bm25")
    text = "\n".join(LINES)
    document = Library.open(place / "library").document(f"reform-{len(text)}")
    whole = dataclasses.replace(
        one.answer.passages[0], start=0, end=len(text), text=text, place="1", line=1
    )
    found = excerpt(document, whole, one.answer.sentence)
    part = "".join(segment.text for segment in found.segments)
    assert LINES[150] in part
    assert excerpts.LONG / 2 < len(part) <= excerpts.LONG
    assert part == text[found.before : len(text) - found.after]
    assert part.startswith("line ")
    page = answers_page([dataclasses.replace(one, passages=((whole, found),), ticks=(0,))])
    assert f"[{found.before:,} characters of this passage]" in page
    assert f"[{found.after:,} characters of this passage]" in page
    beginning = excerpt(document, dataclasses.replace(whole, best_text=""), None)
    assert beginning.before == 0
    assert beginning.after == len(text) - len("".join(s.text for s in beginning.segments)) > 0


def test_other_line_ends_and_scripts_are_shown_once(ask):
    lines = [*LINES[:10], "Zoë saw the 飛行船 zeppelin", *LINES[10:20]]
    one = ask(lines, end="\r\n", gather=40, gather_by="bm25")
    text = "".join(segment.text for segment in one.passages[0][1].segments)
    assert "Zoë saw the 飛行船 zeppelin" in text
    assert "\r" not in text
    assert "\n\n" not in text


def test_many_questions_have_one_page_with_a_list(ask):
    one = ask(LINES, gather=60, gather_by="bm25")
    second = dataclasses.replace(one.answer, question="<i>And then?</i>", answer="", sentence=None)
    second = dataclasses.replace(second, continues=(Exchange("first?", "so"),), stop="interrupted")
    page = answers_page([one, dataclasses.replace(one, answer=second)])
    read = Elements(page)
    assert [a["href"] for t, a in read.found if t == "a"][:2] == ["#q1", "#q2"]
    assert len({a["id"] for _, a in read.found if "id" in a}) == 2 + 2 * len(one.passages)
    assert {"(no answer)", "after: first? (so)", "<i>And then?</i>"} <= {*read.texts}
    assert "interrupted: the answer is not whole" in read.texts
    assert page.count("<h2>") == 2
