"""Passages as texts, and how well they answer, by the reader."""

import numpy as np
import pytest
from word_documents import write_texts

from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.stretches import Answers, stretch
from longctx.core.store.library import Library

TEXTS = {
    "one": ["# Lamps\n\nThe lamp was made in Dover. It is red.\n" * 2, "No lamp.\n"],
    "two": ["Ingrid Halvorsen kept the lighthouse.\n\n" + "The sea was calm that day.\n" * 60],
}


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Documents of these texts, and their passages."""
    library = Library.open(tmp_path_factory.mktemp("stretches") / "library", create=True)
    documents = [write_texts(library, *texts, name=name) for name, texts in TEXTS.items()]
    return documents, PassageIndex(*documents).passages


def test_passages_are_the_texts_whole_and_in_order(opened):
    documents, passages = opened
    found = [stretch(documents, passages, number) for number in range(len(passages))]
    for document, name in zip(documents, TEXTS, strict=True):
        own = [one for one in found if one.document is document]
        assert "".join(one.text for one in own) == "".join(TEXTS[name])
        assert own[0].start == 0
    assert found[-1].to_read().text == found[-1].text


def test_the_passage_that_answers_comes_first(opened):
    documents, passages = opened
    answers = Answers(documents, passages, "Who kept the lighthouse?", "cpu")
    numbers = np.arange(len(passages))
    values = answers.scores(numbers, np.zeros(len(passages)))
    assert values.shape == (len(passages),)
    best = int(values.argmax())
    assert int(passages.documents[best]) == 1
    assert int(passages.starts[best]) == 0
    assert answers.most == 32
