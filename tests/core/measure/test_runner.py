"""Cases are asked like any document, what was gathered is told by bytes, runs are told apart."""

from dataclasses import replace

from longctx.core.ask.gather import Passage
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import prepare
from longctx.core.measure.case import Case, CaseQuestion, Span
from longctx.core.measure.runner import How, ask, gathered, of_asking, of_model, opened


def passage(start: int, end: int, source: str = "a/book.txt") -> Passage:
    return Passage("d", source, 1, "1", start, end, 0.5, "", "1", "")


def test_a_span_is_gathered_if_one_passage_holds_all_of_it():
    spans = (Span(10, 20), Span(30, 40))
    assert gathered(spans, [passage(10, 20)]) == 0.5
    assert gathered(spans, [passage(0, 15), passage(15, 40)]) == 0.5
    assert gathered(spans, [passage(0, 40)]) == 1
    assert gathered((Span(10, 20, "book.txt"),), [passage(0, 40)]) == 1
    assert gathered((Span(10, 20, "other.txt"),), [passage(0, 40)]) == 0
    assert gathered((Span(10, 20, "ook.txt"),), [passage(0, 40)]) == 0  # no whole part of a name
    assert gathered((Span(10, 20, "a/book.txt"),), [passage(0, 40)]) == 1
    assert gathered((), [passage(0, 40)]) is None


def test_a_case_is_read_and_asked():
    line = "The special magic number for Perth is 4471903."
    text = f"The sea was calm.\n{line}\nNobody came that night.\n"
    start = text.index(line)
    span = Span(start, start + len(line))
    query = CaseQuestion(
        "number", "What is the special magic number for Perth?", ("4471903",), (span,)
    )
    with opened(Case("perth", text, (query,)), Setup(threads=1), ["hybrid"]) as (done, session):
        asked = ask(session, query, How(max_new_tokens=12))
    assert done.tokens == asked.tokens["document"]
    assert asked.gathered == 1
    assert asked.answer == "4471903"


def test_another_prompt_or_number_format_is_another_run():
    engine = prepare(Setup(device="cpu", dtype="fp32"))
    usual = of_model(engine)
    assert usual["weights"] == engine.files.fingerprint().weights
    prompt = replace(engine.profile.prompt, question="Q: {question} A:")
    assert of_model(replace(engine, profile=replace(engine.profile, prompt=prompt))) != usual
    assert of_model(prepare(Setup(device="cpu", dtype="bf16"))) != usual


def test_another_way_of_asking_is_another_run():
    engine = prepare(Setup(device="cpu", dtype="fp32"))
    hows = [How(), How(gather=500), How(decode="quest"), How(gather_by="method")]
    told = [of_asking(engine, how) for how in hows]
    told += [of_asking(prepare(Setup(device="cpu", dtype="fp32", method="full")), How())]
    assert all(one not in told[:place] for place, one in enumerate(told))
