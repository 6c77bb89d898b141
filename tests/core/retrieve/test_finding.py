"""Hits: which passages, and which of their lines; for rankings of any source."""

import random
from itertools import pairwise

import numpy as np
import pytest
import torch
from small_documents import HEADER, add_source
from small_passages import passages_of, small_passages
from word_documents import bytes_text, write_texts

from longctx.core.passages.cutting import SIZES
from longctx.core.passages.line_filter import LineFilter
from longctx.core.passages.matching import Query
from longctx.core.passages.sentences import sentences
from longctx.core.retrieve.finding import CHANCE, above_chance, find_hits, listed
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.ranked import Ranked, by_words
from longctx.core.store.library import Library

FILLER = "Of this there is nothing to say, and it was said at length. " * 12
STORY = (
    f"{FILLER}\nThe keeper hid the old map. He told nobody of it.\n{FILLER}\n"
    f"A boat came in.\nThe boat had maps, and a keeper of maps.\n{FILLER}"
)


@pytest.fixture
def library(tmp_path):
    return Library.open(tmp_path / "library", create=True)


def found(documents, words: str, most: int = 10, regexp: str | None = None, **more):
    index = PassageIndex(*documents)
    lines = None if regexp is None else LineFilter(regexp)
    query = Query(words, index.word_weights(words), lines)
    return find_hits(documents, by_words(index, words), query, most, index, **more)


def by_meaning(documents, meaning: dict[int, float], words: str = "") -> list:
    """Hits of a ranking by meaning alone; passages that are not named have a little."""
    passages = PassageIndex(*documents).passages
    values = 0.5 + 0.01 * np.random.default_rng(0).random(len(passages))
    for passage, value in meaning.items():
        values[passage] = value
    ranked = Ranked(passages, values, np.zeros(len(values)), values)
    return find_hits(documents, ranked, Query(words), 10)


def told(hits) -> list[tuple[int, str]]:
    return [(hit.match.line, hit.match.text) for hit in hits]


def require_sound(documents, hits) -> None:
    """Whatever was found stands where it says, whole, and is marked where it says."""
    for hit in hits:
        document = documents[hit.document]
        info = document.manifest.sources[hit.source]

        def text(start, end, document=document, hit=hit, info=info):
            return document.text(hit.source, start, end).decode(info.encoding, "replace")

        match = hit.match
        assert text(hit.start, hit.end) == hit.text == hit.text.strip() != ""
        assert text(match.start, match.end) == match.text == match.text.strip() != ""
        assert (hit.line, match.line) == tuple(
            1 + text(0, place).count("\n") for place in (hit.start, match.start)
        )
        assert [text(*span) for span in match.words] == [match.text[a:b] for a, b in match.marked]
        assert "\n" not in match.text
    lines = [(hit.document, hit.source, hit.match.start) for hit in hits]
    assert len(lines) == len(set(lines))


def test_the_line_that_matches_is_told_with_its_words(library):
    document = write_texts(library, STORY)
    hits = found([document], "Where did keepers hide maps?")
    require_sound([document], hits)
    assert (
        told(hits)
        == [
            (5, "The boat had maps, and a keeper of maps."),
            (2, "The keeper hid the old map. He told nobody of it."),
        ]
        or told(hits)[::-1]
    )
    (own,) = (hit.match for hit in hits if hit.match.line == 2)
    assert [own.text[low:high] for low, high in own.marked] == ["keeper", "map"]


def test_passages_begin_and_end_with_sentences(library):
    document = write_texts(library, STORY)
    whole = [STORY[low:high] for low, high in sentences(STORY)]
    for hit in found([document], "keeper boat map"):
        inside = [hit.text[low:high] for low, high in sentences(hit.text)]
        assert inside[0] in whole
        assert inside[-1] in whole
        assert hit.tokens >= SIZES.least


def test_an_exact_string_comes_first_whatever_its_score(library):
    hidden = "He was told of a map, maps of maps, and what maps show."
    document = write_texts(library, STORY.replace("He told nobody of it.", hidden))
    [first] = found([document], '"a boat came" told hid nobody show hidden')
    assert (first.exact, first.match.text) == (True, "A boat came in.")
    others = found([document], "a boat came told hid nobody show hidden")
    assert all(not hit.exact for hit in others)
    assert others[0].score > first.score
    (only,) = (hit for hit in found([document], "boat had maps") if hit.exact)
    assert only == found([document], "boat had maps")[0]


def test_a_string_in_quotes_is_in_every_line_that_is_told(library):
    twice = f"x7 {'a ' * 140}x7"  # one line, though each string has a passage of its own
    before = "b " * 90
    document = write_texts(library, f"{before}\n{twice}\nx8 came\n{FILLER}\nx7 went\n")
    hits = found([document], '"x7" came')
    require_sound([document], hits)
    assert told(hits) == [(2, twice), (5, "x7 went")]
    assert all(hit.exact for hit in hits)
    near = write_texts(library, f"{before}\nx7 is here\nx8 came\n", name="near")
    assert told(found([near], '"x7"', regexp="came")) == [(3, "x8 came")]
    for nowhere in ("x9", "x7 " * 400, " "):  # the second is too long to be searched for
        assert (3, "x8 came") in told(found([document], f'"{nowhere}" came'))


def test_passages_without_a_word_are_not_told(library):
    document = write_texts(library, STORY)
    assert found([document], "whale") == []
    assert {hit.match.line for hit in found([document], "map")} == {2, 5}


def test_no_line_is_told_twice(library):
    document = write_texts(library, "the keeper and the boat went on, " * 150)
    hits = found([document], "keepers", 3)
    require_sound([document], hits)
    starts = sorted((hit.start, hit.end) for hit in hits)
    assert all(hit.tokens <= SIZES.whole for hit in hits)
    assert all(before[1] <= after[0] for before, after in pairwise(starts))


def test_no_more_than_wanted_and_one_of_each_file(library):
    apart = FILLER * 3
    texts = [f"{apart}\na map {n}\n{apart}\nmaps again\n{apart}" for n in range(4)]
    document = write_texts(library, *texts)
    assert len(found([document], "map", 3)) == 3
    assert len(found([document], "map")) == 8
    hits = found([document], "map", one_of_each=True)
    assert sorted(hit.source for hit in hits) == [0, 1, 2, 3]


def test_several_documents_are_ranked_together(library):
    documents = [
        write_texts(library, FILLER + "\nA boat and a map of boats.", name="a"),
        write_texts(library, FILLER + "\nthe boat\n" + FILLER, name="b"),
    ]
    hits = found(documents, "boats")
    require_sound(documents, hits)
    assert {hit.document for hit in hits} == {0, 1}
    assert hits[0].as_dict(documents)["document"] == documents[hits[0].document].manifest.name


def test_an_expression_says_which_lines_can_be_found(library):
    text = (
        f"{FILLER}\nERROR 5: map\n{FILLER}\nmap map map\n{FILLER}\nERROR 7\n{FILLER}\nERROR 9 map"
    )
    document = write_texts(library, text)
    assert {text for _, text in told(found([document], "map", regexp=r"ERROR \d"))} == {
        "ERROR 5: map",
        "ERROR 9 map",
    }
    in_order = found([document], "is it", regexp=r"ERROR \d")
    require_sound([document], in_order)
    assert told(in_order) == [(2, "ERROR 5: map"), (6, "ERROR 7"), (8, "ERROR 9 map")]
    assert [hit.match.marked for hit in in_order] == [((0, 7),)] * 3
    assert told(found([document], "", 2, r"ERROR \d")) == told(in_order)[:2]
    assert len(found([document], "", regexp="ERROR", one_of_each=True)) == 1
    assert found([document], "", regexp="WARN") == []


def test_by_meaning_alone_the_first_sentence_of_a_passage_is_told(library, monkeypatch):
    small_passages(monkeypatch, 64, whole=64)
    parts = [f"Sentence {n} is here for you. " * 10 + "It ends here now. " for n in range(8)]
    document = write_texts(library, "".join(parts))
    assert len(PassageIndex(document).passages) == 8
    hit, *_ = by_meaning([document], {3: 9.0, 4: 5.0})
    assert hit.match.text.startswith("Sentence 3 is here for you.")
    assert hit.match.words == ()


def test_chance_is_what_so_many_passages_come_to():
    drawn = np.random.default_rng(3)
    for count in (100, 1000, 20_000):
        noise = np.abs(drawn.normal(1.0, 0.2, count))
        noise[7] = 1.0 + 0.2 * 1.3 * np.sqrt(2 * np.log(count))
        kept = above_chance(noise)
        assert kept[7]
        assert kept.sum() < 3 + count ** (1 - CHANCE**2) * 2
    assert above_chance(np.array([0.1, 0.0])).tolist() == [True, False]
    assert above_chance(np.ones(50)).sum() == 0
    assert above_chance(np.empty(0)).tolist() == []


def test_what_is_listed_has_a_word_or_stands_out():
    passages, meaning = passages_of(), np.r_[np.linspace(0.9, 1.1, 20), 5.0]
    words, scores = np.zeros(21), np.ones(21)
    words[2], scores[3] = 0.4, -np.inf

    def kept(words, meaning) -> list[int]:
        return np.flatnonzero(listed(Ranked(passages, scores, words, meaning))).tolist()

    assert kept(words, None) == [2]
    assert kept(words, meaning) == [2, 20]
    assert kept(None, meaning) == [20]
    assert kept(None, None) == [n for n in range(21) if n != 3]


def test_of_few_passages_words_decide_where_there_are_any():
    few, meaning = np.ones(3), np.array([0.1, 0.0, 2.0])

    def kept(words) -> list[int]:
        return np.flatnonzero(listed(Ranked(passages_of(), few, words, meaning))).tolist()

    assert kept(np.array([0.0, 1.0, 0.0])) == [1]
    assert kept(np.zeros(3)) == [0, 2]


QUERIES = [
    *("", "the and it", "a", "?", "!!", "boat " * 5000, "маяк горел", "灯塔", "قارب", '"', "\\"),
    *("x" * 3000, "\ud800", "İstanbul", "\x00", "*" * 50, "«»", "e\u0301"),
]
TEXTS = [
    *(
        "",
        "a",
        "boat",
        "\n\n\n",
        "Маяк горел всю ночь. Кто видел?",
        "灯塔的看守人。船来了。",
        "القارب.",
    ),
    *("boat\x00boat " * 90, "İ" * 200, "x" * 3000, "...", STORY),
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text[:8]))
def test_no_query_and_no_text_is_too_strange(library, text):
    with library.writer("odd", HEADER, True) as writer:
        add_source(writer, "odd.txt", text.encode())
        writer.complete({"none": torch.zeros(0)})
    document = library.document("odd")
    for words in QUERIES:
        require_sound([document], found([document], words))
        require_sound([document], found([document], words, regexp=r"\w"))
    if text.strip():
        (word,) = text.split()[:1]
        assert (
            found([document], text[:40]) or len(word) < 2 or text in ("...", "x" * 3000, "İ" * 200)
        )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "gb18030", "cp932"])
def test_bytes_without_sense_give_hits_that_are_sound(library, encoding):
    drawn = random.Random(11)
    data = bytes(drawn.choice([*range(256), *b" aet.\n", 10, 32]) for _ in range(4096))
    if encoding == "utf-16-le":
        data = data.replace(b"\n", b"\n\0")[:4096]
    document = bytes_text(library, data, 4, encoding)
    for words in ("ae", "t e", "a", "."):
        for hit in found([document], words):
            # A passage may begin with a sentence within the line that is shown.
            assert 0 <= hit.match.start < hit.match.end
            assert 0 <= hit.start < hit.match.end <= len(data) >= hit.end


WRAPPED = (
    "The keeper of the old lighthouse was asked by the harbour master how many of his\n"
    "lamps were still burning on that night in winter. He counted them again and said that\n"
    "there were seventeen, and went to bed.\n"
)


def test_a_question_is_answered_by_whole_sentences_of_wrapped_prose(library):
    document = write_texts(library, f"{FILLER}\n\n{WRAPPED}\n{FILLER}")
    question = "How many lamps did the keeper count?"
    match = found([document], question)[0].match
    assert match.line_text == " ".join(match.text.split())
    assert "seventeen" in match.line_text
    assert match.text == WRAPPED.strip()  # short enough to be shown whole, as a line would be
    (line,) = (hit.match.text for hit in found([document], "lamps burning"))
    assert line == WRAPPED.splitlines()[1]
    for words in ('"lamps" how many were there?', "How many lamps?"):
        hits = found([document], words, regexp=None if '"' in words else "lamps")
        assert all("\n" not in hit.match.text for hit in hits)


@pytest.mark.parametrize("query", ["pool_size", "where is pool_size defined?"])
def test_a_definition_comes_before_uses(library, query):
    uses = "resize(pool_size, pool_size, pool_size)\n" * 3
    text = f"{uses}{FILLER}\n{uses}{FILLER}\n\npool_size = 4\n\n{FILLER}\n{uses}"
    document = write_texts(library, text)
    hits = found([document], query)
    require_sound([document], hits)
    assert hits[0].match.text == "pool_size = 4"
    assert all(hit.exact is (query == "pool_size") for hit in hits[:1])
    assert found([document], '"pool_size"')[0].match.text.startswith("resize")


def test_of_a_plain_word_only_sure_definitions_come_first(library):
    uses = "The storm, the storm of storms, was a storm.\n"
    for line, first in (("storm: at sea", False), ("class storm(Weather):", True)):
        document = write_texts(library, f"{uses}{FILLER}\n\n{line}\n\n{FILLER}", name=f"d{first}")
        assert (found([document], "storm")[0].match.text == line) is first
