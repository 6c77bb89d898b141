"""Where answers stand: by their bytes, by their text, by their text on a line."""

import pytest
import torch

from longctx.core.ask.session import Session
from longctx.core.common.errors import UsageError
from longctx.core.ingest.ingest import ingest
from longctx.core.measure.eval.qa_places import LINE, PLACE, TEXT, PlacedQuestion, place
from longctx.core.measure.eval.qa_questions import Item, read_items


def item(*answers: str, **more: object) -> Item:
    return Item("a.yaml", "question", 4, "who?", answers, **more)


def placed(session, *answers: str, **more: object) -> PlacedQuestion:
    return place([item(*answers, **more)], session.document)[0]


def standing(session, *answers: str, **more: object) -> list[tuple[str, str]]:
    """The source and the text of each place, by its bytes; its tokens hold all of them."""
    found = placed(session, *answers, **more)
    texts = []
    for span, tokens in zip(found.query.spans, found.tokens, strict=True):
        number, start, end = session.document.span(*tokens)
        assert session.document.manifest.sources[number].name == span.source
        assert start <= span.start < span.end <= end
        assert session.document.span(tokens[0], tokens[0] + 1)[2] > span.start
        texts.append((span.source[-7:], session.document.text(number, span.start, span.end)))
    return [(source, text.decode()) for source, text in texts]


def test_places_are_bytes_also_after_other_scripts_and_in_other_sources(
    letters_session, questions, letter_lines, letter_texts
):
    document = letters_session.document
    first, second = letter_texts
    found = place(read_items(questions(*letter_lines)), document)
    for one, text in zip(found, (first, first, second), strict=True):
        (span,), ((token, end),) = one.query.spans, one.tokens
        assert text.encode()[span.start : span.end].decode() == one.item.answers[0]
        source, start, stop = document.span(token, end)
        assert document.manifest.sources[source].name == span.source
        assert start <= span.start < stop
        assert (one.counted, end) == (PLACE, token + 1)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"path": "one.txt", "byte_offset": 10**6}, r"byte 1,000,000 is beyond .*one.txt"),
        ({"path": "one.txt", "byte_offset": 1}, "stands 'r.*not its first answer 'Ёлка'"),
        ({"path": "three.txt", "byte_offset": 0}, "no source named 'three.txt'.*two.txt"),
        ({"path": "three.txt"}, "no source named 'three.txt'.*two.txt"),
        ({"path": "e.txt", "byte_offset": 0}, "no source named 'e.txt'"),  # not a whole part
        ({"byte_offset": 0}, "several sources to choose without a 'path'"),
        ({"line": 1}, "several sources to choose without a 'path'"),
        ({"path": "one.txt", "line": 2}, r"not stand on line 2 of .*only at 1, 3, 5\. "),
        ({"path": "two.txt", "line": 2}, "not stand on line 2 of .*nowhere in it"),
    ],
)
def test_a_wrong_place_is_named(letters_session, questions, letter_lines, where, said):
    file = questions(letter_lines[1], {**letter_lines[0], "where": where})
    with pytest.raises(UsageError, match=f"line 2 of .*{said}"):
        place(read_items(file), letters_session.document)


def test_without_a_place_an_answer_stands_wherever_its_words_do(letters_session):
    assert standing(letters_session, "BOAT") == [("one.txt", "boat")] * 3 + [("two.txt", "boat")]
    assert standing(letters_session, "boat", source="two.txt") == [("two.txt", "boat")]
    assert placed(letters_session, "BOAT").counted == TEXT


def test_words_are_whole_and_spaced_in_any_way(letters_session):
    assert standing(letters_session, "oat", "boa") == []
    spaced = standing(letters_session, " book.  a\nboat ")
    assert spaced == [("one.txt", "book.\nA boat")] * 3


def test_every_accepted_answer_counts_and_in_order(letters_session):
    found = standing(letters_session, "Zoë", "called Zoë", "boat is", source="two.txt")
    assert [text for _, text in found] == ["boat is", "called Zoë", "Zoë"]


def test_an_answer_begins_on_its_line_and_may_end_on_another(letters_session):
    assert placed(letters_session, "dawn", line=4, source="one.txt").counted == LINE
    for answer in ("boat", "dawn. Größe"):
        whole = placed(letters_session, answer, source="one.txt")
        one = placed(letters_session, answer, line=4, source="one.txt")
        assert one.tokens == whole.tokens[1:2]
        assert one.query.spans == whole.query.spans[1:2]


def test_an_answer_that_stands_nowhere_has_no_place(letters_session):
    one = placed(letters_session, "wolf")
    assert (one.tokens, one.query.spans) == ((), ())
    assert not one.is_among(torch.arange(letters_session.document.manifest.tokens))


def test_all_tokens_of_one_place_must_be_gathered():
    one = PlacedQuestion(item("x"), None, TEXT, ((3, 5), (8, 9)))
    gathered = [[3, 4], [0, 8, 11], [2, 3, 5], [4, 9], []]
    hits = [one.is_among(torch.tensor(tokens, dtype=torch.long)) for tokens in gathered]
    assert hits == [True, True, False, False, False]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_places_in_damaged_text_of_any_encoding(tmp_path, setup_random, encoding):
    text = "Größe und Maß der alten Brücke über den Fluß waren längst vergessen. " * 20
    damage = {"utf-8": b"\xff\xc3(", "utf-16": b"\x00\xd8", "cp1252": b"\x81"}[encoding]
    data = text.encode(encoding) + damage + "\nder Wärter hieß Zoë\n".encode(encoding)[-40:]
    (tmp_path / "a.txt").write_bytes(data)
    ingest(tmp_path / "library", [str(tmp_path / "a.txt")], setup_random, name="a")
    with Session(tmp_path / "library", "a", setup_random) as session:
        source = session.document.manifest.sources[0]
        (span,) = placed(session, "zoë").query.spans
        found = session.document.text(0, span.start, span.end)
        assert found.decode(source.encoding) == "Zoë"
