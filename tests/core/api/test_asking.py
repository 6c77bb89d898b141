"""Questions and searches: of one document or several, at once or piece by piece."""

import pytest

import longctx


def test_a_question_is_answered(library, capfd):
    document = library["book"]
    answer = document.ask("who came home", max_new_tokens=5)
    assert str(answer) == answer.answer
    assert answer.tokens["answer"] <= 5
    passage = answer.passages[0]
    assert isinstance(passage, longctx.Passage)
    assert passage.cite.endswith(f":{passage.best_place}")
    assert answer.as_dict()["documents"] == ["book"]
    assert capfd.readouterr() == ("", "")


def test_what_was_loaded_is_used_again(library, monkeypatch):
    from longctx.core.ask import session
    from longctx.core.engine import setup

    library["book"].ask("who came home")
    monkeypatch.setattr(session, "Session", None)
    monkeypatch.setattr(setup, "load_decoder", None)
    assert library["book"].ask("who came home").timings
    assert library["book"].find("boat").passages


def test_an_answer_comes_in_pieces(library):
    whole = library["book"].ask("who came home")
    with library["book"].ask("who came home", stream=True) as stream:
        pieces = [*stream]
        assert [*stream] == []
    assert stream.answer.answer == whole.answer == "".join(pieces).strip()
    heard = []
    library["book"].ask("who came home", on_text=heard.append)
    assert heard == pieces


def test_what_goes_wrong_is_raised_where_pieces_are_taken(library):
    stream = library["book"].ask("x " * 900, stream=True)
    with pytest.raises(longctx.UsageError):
        next(stream)
    assert stream.answer is None
    assert [*stream] == []
    with pytest.raises(longctx.UsageError):
        library["book"].ask("who", stream=True, gather_by="nothing")


def test_passages_are_found(library):
    findings = library["book"].find("a boat", k=3, around=1)
    assert len(findings) == len([*findings]) == len(findings.as_dict()["passages"]) <= 3
    best = findings.passages[0]
    assert isinstance(best, longctx.Passage)
    assert "boat" in best.line_text
    assert best.cite == f"{best.source}:{best.match.place}"
    assert library["book"].text(best.start, best.end) == best.text
    assert [line.text for line in best.behind] == ["with salt and news of rain"]
    assert best.as_dict() == findings.as_dict()["passages"][0]
    assert findings.documents == ["book"]
    assert findings.query == "a boat"
    assert {findings.found} <= {"yes", "unsure", "no"}
    assert findings.evidence is not None
    assert findings.timings["total_s"] >= 0


def test_lines_are_found_without_a_model(library, monkeypatch):
    monkeypatch.setattr("longctx.core.api.asking.open_session", None)
    found = library["book"].find(regexp="^that a", k=4)
    assert [passage.match.line for passage in found] == [2, 5, 8, 11]
    assert library["book"].find("salt", gather_by="bm25").passages[0].exact
    for wrong in ({}, {"query": "a", "k": 0}, {"query": "a", "gather_by": "nothing"}):
        with pytest.raises(longctx.UsageError):
            library["book"].find(**wrong)


def test_several_are_asked_together(library):
    answer = library.ask("who came home")
    assert answer.documents == ["book", "notes"]
    assert {passage.document for passage in library.find("boat")} == {"book", "notes"}
    with library.ask("who came home", ["book", library["notes"]], stream=True) as stream:
        assert "".join(stream).strip() == stream.answer.answer == answer.answer
    assert library.find("boat", ["notes"]).documents == ["notes"]


def test_its_text_is_given_in_bytes_and_lines(library):
    book = library["book"]
    assert book.text().startswith("the keeper wrote")
    assert book.text(4, 10) == "keeper"
    assert book.lines(0, 2, 3) == [
        (2, "that a boat came home at dawn"),
        (3, "with salt and news of rain"),
    ]
    assert book.lines(0, 27, 99) == [(27, "with salt and news of rain")]
    assert book.lines(0, 28, 30) == book.lines(0, 3, 2) == []
    for wrong in (
        lambda: book.text(5, 4),
        lambda: book.text(0, 10**9),
        lambda: book.lines(1, 1, 2),
    ):
        with pytest.raises(longctx.UsageError):
            wrong()


def test_what_is_recorded_is_told(library):
    told = library["notes"].as_dict()
    assert told["default"]
    assert not library["book"].as_dict()["default"]
    assert told["name"] == "notes"
    assert told["sources"][0]["tokens"] == library["notes"].tokens
    assert library["notes"].created.isoformat() == told["saved"]
    assert library["notes"].size == told["state_bytes"] > 0
    assert "notes" in repr(library["notes"])
    assert library["notes"].model == told["model"]
