"""The sentence that answers: chosen as the rule says, with its exact bytes."""

import hashlib
import random
from itertools import pairwise

import pytest
import torch
from small_documents import HEADER

from longctx.core.ask.sentence import LONGEST, answering_sentence, quoted_sentence
from longctx.core.contracts.memory import Scores
from longctx.core.passages.matching import Query
from longctx.core.passages.quotable import Excerpt
from longctx.core.passages.quotable import Span as Quotation
from longctx.core.passages.sentences import sentences
from longctx.core.passages.wrapping import unwrapped
from longctx.core.retrieve.best_passages import Chosen
from longctx.core.store.library import Library

WEIGHTS = {"boat": 2.0, "keeper": 1.0, "dawn": 0.5}
WRAPPED = (
    "Margit \u00d6rrock was the keeper of the light at Mirrel Haven,\n"
    "and her boat, which she had painted green, was called \u00bbPetite\r\nS\u0153ur\u00ab by "
    "nobody but herself. The rain fell. "
)


@pytest.fixture
def documents_of(tmp_path):
    """Documents of sources, each (text, encoding), with a token for every four bytes."""

    def make(*documents):
        library = Library.open(tmp_path / "library", create=True)
        for number, sources in enumerate(documents):
            with library.writer(f"d{number}", HEADER, True) as writer:
                for file, (text, encoding) in enumerate(sources):
                    data = text.encode(encoding)
                    writer.begin_source(f"{file}.txt")
                    writer.add_bytes(data)
                    starts = torch.arange(0, len(data), 4)
                    writer.append("tokens", {"ids": starts.int(), "starts": starts})
                    digest = hashlib.sha256(data).hexdigest()
                    writer.end_source(len(data), digest, encoding, 0)
                writer.complete({"none": torch.zeros(0)})
        return tuple(library.document(f"d{number}") for number in range(len(documents)))

    return make


def chosen(documents, runs, scores=None) -> Chosen:
    """Runs of tokens, with a score for each run; None: all tokens, without scores."""
    total = sum(document.manifest.tokens for document in documents)
    if runs is None:
        return Chosen(Scores(torch.zeros(0), torch.zeros(0)), torch.arange(total))
    raw = torch.zeros(total)
    for (first, end), score in zip(runs, scores, strict=True):
        raw[first:end] = score
    nothing = torch.zeros(0, dtype=torch.long)
    tokens = torch.cat([nothing, *(torch.arange(*run) for run in sorted(runs))])
    return Chosen(Scores(raw, raw), tokens)


def told(documents, runs, scores, answer, words="the boat of the keeper at dawn"):
    found = answering_sentence(
        documents, chosen(documents, runs, scores), Query(words, WEIGHTS), answer
    )
    if found is not None:
        (document,) = [one for one in documents if one.manifest.name == found.document]
        names = [source.name for source in document.manifest.sources]
        source = names.index(found.source)
        raw = document.text(source, found.start, found.end)
        assert raw.decode(document.manifest.sources[source].codec) == found.text
        assert (found.line, found.place) == (
            document.line(source, found.start),
            document.place(source, found.start),
        )
    return found


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "cp1252"])
def test_the_exact_bytes_of_a_sentence_of_wrapped_lines(documents_of, encoding):
    documents = documents_of([(f"It was so. {WRAPPED}", encoding)])
    found = told(documents, None, None, "petite  s\u0153ur.")
    assert found.text == WRAPPED.partition(" The rain")[0]
    assert [found.text[low:high] for low, high in found.marks] == ["Petite\r\nS\u0153ur"]
    assert "\n" not in found.line_text
    assert found.shown == (0, len(found.text))
    assert found.as_dict().keys() == {
        *("document", "source", "line", "place", "start", "end", "text", "marks"),
    }


def test_the_answer_counts_before_the_best_passage_and_that_before_words(documents_of):
    text = "The boat of the keeper came. ", "He saw the dawn. ", "Nobody saw 42 oars. "
    documents = documents_of([("".join(f"{one:<40}" for one in text), "utf-8")])
    runs, scores = [(0, 10), (11, 20), (21, 30)], [1.0, 3.0, 2.0]
    assert told(documents, runs, scores, "42").text == "Nobody saw 42 oars."
    assert told(documents, runs, scores, "4").text == "He saw the dawn."  # no whole word
    assert told(documents, runs, scores, "").text == "He saw the dawn."
    found = told(documents, None, None, " . ")
    assert found.text == "The boat of the keeper came."
    assert [found.text[low:high] for low, high in found.marks] == ["boat", "keeper"]


def test_nothing_in_common_is_no_sentence(documents_of):
    documents = documents_of([("Rain fell. Salt was sold.", "utf-8")])
    assert told(documents, None, None, "a boat") is None
    assert told(documents, None, None, "") is None
    assert told(documents, None, None, "SALT").text == "Salt was sold."
    assert told(documents, [], [], "salt") is None


def test_a_sentence_is_whole_where_few_of_its_tokens_were_kept(documents_of):
    text = "It was so. The keeper rowed her boat. It rained."
    documents = documents_of([(text, "utf-8")])
    where = text.index("rowed") // 4
    assert told(documents, [(where, where + 1)], [1.0], "").text == "The keeper rowed her boat."


def test_a_long_sentence_is_cut_to_what_matters_and_quote_marks_are_left_out(documents_of):
    words = " ".join(["rain"] * 300)
    documents = documents_of([(f"> It is {words} and the boat {words}.", "utf-8")])
    found = told(documents, None, None, "the boat")
    low, high = found.shown
    assert high - low <= LONGEST + 20
    assert "the boat" in found.line_text[low:high]
    assert found.text.startswith("It is") or found.start > 0


def test_the_answer_is_shown_uncut(documents_of):
    before, long = " ".join(["rain"] * 300), " ".join(f"oar{n}" for n in range(300))
    documents = documents_of([(f"It is {before} with {long} at dawn.", "utf-8")])
    found = told(documents, None, None, long)
    assert long in found.line_text[slice(*found.shown)]
    found = told(documents_of([(f"The boat is {before[:900]} red.", "utf-8")]), None, None, "blue")
    assert found.shown == (0, len(found.text))


@pytest.mark.parametrize(
    ("text", "answer", "sentence"),
    [
        ("He rowed. The boat is Ole. Harding's now. Rain fell.", "Ole. Harding's", (1, 3)),
        ("The boat is of\n\n* oak,\n* elm.\n\nRain fell.", "oak, * elm", (1, 3)),
        ("The boat came. It was red and old. Rain fell.", "an old red one", (1, 2)),
        ("The boat came. It was red. Rain fell.", '"\u201cred\u201d."', (1, 2)),
        ("The boat came. The text is red. Rain fell.", "not in the text", (0, 1)),
    ],
)
def test_the_sentence_holds_the_answer_or_most_of_its_words(documents_of, text, answer, sentence):
    bounds = sentences(text)[slice(*sentence)]
    found = told(documents_of([(text, "utf-8")]), None, None, answer)
    assert (found.start, found.end) == (bounds[0][0], bounds[-1][1])


def test_of_several_documents_and_sources_the_right_one_is_named(documents_of):
    documents = documents_of(
        [("Rain fell.  ", "utf-8"), ("A boat came.", "utf-16-le")], [("The oar is red. ", "utf-8")]
    )
    found = told(documents, None, None, "red")
    assert (found.document, found.source, found.start) == ("d1", "0.txt", 0)
    found = told(documents, None, None, "")
    assert (found.document, found.source, found.text) == ("d0", "1.txt", "A boat came.")


def test_a_quotation_is_shown_in_its_sentences(documents_of):
    text = f"{WRAPPED}\n\n{WRAPPED}"
    (document,) = documents_of([(text, "utf-8")])
    data = text.encode()
    words = b"herself. The rain"
    start = data.rindex(words)
    excerpt = Excerpt.of(document, 0, start - 8, start + len(words) + 4)
    found = quoted_sentence(Quotation(excerpt, start, start + len(words), words.decode()))
    assert data[found.start : found.end].decode() == found.text == WRAPPED.strip()
    assert [found.text[low:high] for low, high in found.marks] == [words.decode()]
    assert found.start > len(WRAPPED)


def by_hand(text: str, runs, scores, answer: str, query: Query):
    """The rule, literally, over the whole text: the sentence's [start, end), or None."""

    def has_answer(own: str) -> bool:
        return bool(answer) and f" {answer} " in f" {own.replace('.', ' ')} "

    def crosses(text: str, low: int, middle: int, high: int) -> bool:
        parts = text[low:high], text[low:middle], text[middle:high]
        whole, *halves = [has_answer(" ".join(part.lower().split())) for part in parts]
        return whole and text[middle - 1] != "." and not any(halves)

    order = sorted(zip(scores, runs, strict=True), key=lambda one: (-one[0], one[1]))
    best = None
    for rank, (_, (first, end)) in enumerate(order):
        held = [(a, b) for a, b in sentences(unwrapped(text)) if a < 4 * end and b > 4 * first]
        pairs = [(a, b) for (a, middle), (_, b) in pairwise(held) if crosses(text, a, middle, b)]
        for low, high in [*held, *pairs]:
            own = " ".join(text[low:high].lower().split())
            has = has_answer(own)
            near = answer.removeprefix("the ") in own.replace(".", " ").split() and 1.0
            key = (has, near or 0.0, rank == 0, *query.weight(own))
            if (has or near or key[3]) and (best is None or key > best[0]):
                best = key, (low, high)
    return best and best[1]


def test_as_the_rule_says_on_random_texts(documents_of):
    drawn = random.Random(5)
    words = ["boat", "Keeper", "dawn.", "rain", "oars.", "salt", "42", "The", "\n\n", "of the"]
    query = Query("the boat of the keeper at dawn", WEIGHTS)
    texts = [" ".join(drawn.choice(words) for _ in range(60)).ljust(400) for _ in range(40)]
    documents = documents_of(*([(text, "utf-8")] for text in texts))
    compared = 0
    for text, document in zip(texts, documents, strict=True):
        tokens = document.manifest.tokens
        runs = [(a, min(tokens, a + drawn.randrange(1, 9))) for a in range(0, tokens, 20)]
        scores = [float(drawn.randrange(4)) for _ in runs]
        answer = drawn.choice(["", "42", "salt", "nothing", "the boat"])
        found = answering_sentence([document], chosen([document], runs, scores), query, answer)
        own = found and (found.start, found.end)
        assert own == by_hand(text, runs, scores, answer, query)
        compared += found is not None
    assert compared > 20
