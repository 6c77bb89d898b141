"""Questions that are recorded and replayed have the embeddings that the layers give."""

import pytest
import torch
from held_tables import are_held

from longctx.core import methods
from longctx.core.engine import question_graphs
from longctx.core.engine.encode import encode
from longctx.core.engine.question_graphs import STEP, QuestionReader
from longctx.core.model import adapter
from longctx.core.model.adapter import Decoder
from longctx.kernels import choice

ORDER = torch.randint(0, 61, (900,), generator=torch.Generator().manual_seed(3))
DOCUMENT, QUESTIONS = ORDER[:200], ORDER[200:]
HEADS = ((0, "v", 0), (1, "q", 1), (3, "k", 0))
OPTIONS = {"heads": HEADS, "first": 2, "last": 2, "queries": 8, "pool": 2, "budget": 64}


class Nowhere:
    """Keeps no rows."""

    def append(self, group, rows) -> None:
        """Does nothing."""


@pytest.fixture
def captured(monkeypatch):
    """Whether each piece of work that was recorded has run, and how often; nothing is recorded."""
    runs = []

    def capture(device, work):
        runs.append(0)
        number = len(runs) - 1

        def replay():
            runs[number] += 1
            work()

        return replay

    monkeypatch.setattr(question_graphs, "capture_of", lambda decoder: capture)
    monkeypatch.setattr(adapter, "wanted", lambda device: True)
    return runs


def asked(make_model, chunk=512):
    """A decoder, and a memory that has read the document."""
    module = methods.load("reform")
    decoder = Decoder(make_model("llama-default"))
    method = module.Method(module.Options(**OPTIONS, chunk=chunk), decoder.layers)
    for _ in encode(decoder, method, DOCUMENT[:5], DOCUMENT[5:].split(23), Nowhere()):
        pass
    return decoder, method


def assert_embedded(decoder, method, reader, ids) -> None:
    """The question has the embeddings that the layers give for it alone."""
    found = method.embed(lambda memory: reader.read(ids, memory, method.depth))
    expected = method.embed(lambda memory: decoder.read(ids, memory, method.depth))
    assert len(found[0]) == len(ids)
    assert int((found[0].int() - expected[0].int()).abs().max()) <= 1
    assert torch.allclose(found[1], expected[1], rtol=2e-3)


def test_the_third_of_a_length_is_replayed(make_model, captured):
    decoder, method = asked(make_model)
    reader = QuestionReader(decoder)
    for number, length in enumerate((20, 9, STEP, 31, 1, 17)):
        assert_embedded(decoder, method, reader, QUESTIONS[40 * number :][:length])
        assert captured == [[], [1], [2], [3], [4], [5]][number]


def test_a_recording_holds_the_tables_that_it_reads(make_model, captured):
    """The rotary embedding has few at a time: an answer of another length may take their place."""
    decoder, method = asked(make_model)
    reader = QuestionReader(decoder)
    for _ in range(3):
        assert_embedded(decoder, method, reader, QUESTIONS[:20])
    assert are_held(decoder.layers[0].rope, 110)


def test_few_recordings_are_kept(make_model, captured, monkeypatch):
    decoder, method = asked(make_model)
    reader = QuestionReader(decoder)
    for length in (20, 50, 80, 110, 140):
        for at in (0, 1, 2):
            assert_embedded(decoder, method, reader, QUESTIONS[at:][:length])
    assert len(reader._recorded) == question_graphs.KEPT
    assert_embedded(decoder, method, reader, QUESTIONS[:50])
    assert captured[1] == 3
    assert_embedded(decoder, method, reader, QUESTIONS[:20])  # this one was dropped
    assert captured[5:] == [1]


def test_another_document_is_another_recording(make_model, captured):
    decoder, method = asked(make_model)
    _, other = asked(make_model)
    reader = QuestionReader(decoder)
    for at in range(3):
        assert_embedded(decoder, method, reader, QUESTIONS[at:][:20])
    assert_embedded(decoder, other, reader, QUESTIONS[:20])
    assert captured == [2]


@pytest.mark.parametrize(("chunk", "length"), [(16, 20), (512, question_graphs.LONGEST + 1)])
def test_what_has_several_pieces_or_is_long_is_read_directly(make_model, captured, chunk, length):
    decoder, method = asked(make_model, chunk)
    reader = QuestionReader(decoder)
    found = [
        method.embed(lambda memory: reader.read(QUESTIONS[:length], memory, method.depth))
        for _ in range(3)
    ]
    assert len(found[0][0]) == length
    assert not captured


@pytest.mark.parametrize("fails", ["recording", "replaying"])
def test_what_cannot_be_replayed_is_read_directly(make_model, captured, monkeypatch, fails):
    def capture(device, work):
        if fails == "recording":
            choice.broken["kernel", device] = "it cannot be recorded"
            raise RuntimeError("not here")
        return lambda: (work(), next(iter(work.__self__._taken.values())).add_(1))

    monkeypatch.setattr(question_graphs, "capture_of", lambda decoder: capture)
    decoder, method = asked(make_model)
    reader = QuestionReader(decoder)
    for at in range(4):
        assert_embedded(decoder, method, reader, QUESTIONS[at:][:20])
    assert not reader._recorded
    assert ("kernel", torch.device("cpu")) not in choice.broken


def test_a_cpu_records_nothing(make_model):
    assert question_graphs.capture_of(Decoder(make_model("llama-default"))) is None
