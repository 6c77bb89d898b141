"""Prose for haystacks: sentences that are those of the text, from files that may be broken."""

from itertools import islice
from random import Random

from longctx.core.measure.eval.prose import Prose, read_prose
from longctx.core.measure.prose import paragraphs

TEXT = 'He said "Go." Then nobody came!\nWho\nwould?\n\n  \nThe end (almost.) It rained'


def test_paragraphs_and_sentences():
    prose = Prose(tuple(paragraphs(TEXT)))
    first, second = ('He said "Go." Then nobody came! Who would?', "The end (almost.) It rained")
    assert prose.paragraphs == (first, second)
    found = list(islice(prose.sentences(Random(1)), 5))
    assert sorted(found) == sorted(
        [
            'He said "Go." ',
            "Then nobody came! ",
            "Who would?\n",
            "The end (almost.) ",
            "It rained\n",
        ]
    )


def test_every_pass_has_an_order_of_its_own():
    prose = Prose(tuple("abcdefgh"))
    drawn = [sentence.strip() for sentence in islice(prose.sentences(Random(0)), 24)]
    passes = [tuple(drawn[start : start + 8]) for start in (0, 8, 16)]
    assert all(sorted(order) == list("abcdefgh") for order in passes)
    assert len(set(passes)) == 3


def test_the_packages_own_prose_is_there():
    assert len(read_prose(None).text) > 40_000
