"""What every reading method in the folder has to do, whatever it is; see `method_contract.py`."""

import dataclasses
import random
from collections.abc import Callable
from functools import cache

import pytest
from method_contract import QUESTION, Reading, cases, require_same_answer
from other_process import answers

from longctx.core import methods
from longctx.core.ask.session import Session
from longctx.core.ingest.ingest import ingest

CASES = [pytest.param(*case, id="-".join(filter(None, case))) for case in cases()]
pytestmark = pytest.mark.usefixtures("models_loaded_once")


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """No power fails here; and methods that keep tokens alone have chunks to stop between."""
    monkeypatch.setattr("os.fsync", lambda handle: None)
    monkeypatch.setattr("longctx.core.kv.tokens_alone.TokensAlone.chunk", 32)


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Callable[..., Reading]:
    """The reading of a method, the same one for all tests."""
    folder = tmp_path_factory.mktemp("contract")
    return cache(lambda *given: Reading(folder, *given))


@pytest.fixture
def reading(begun, setup_random, method, kv_dtype) -> Reading:
    return begun(setup_random, method, kv_dtype)


@pytest.mark.parametrize(("method", "kv_dtype"), CASES)
def test_a_reading_that_was_stopped_ends_with_the_same_bytes(reading):
    reading.stops_and_goes_on()


@pytest.mark.parametrize(("method", "kv_dtype"), CASES)
def test_what_is_added_is_read_as_if_it_had_been_there(reading):
    reading.appends()


@pytest.mark.parametrize(("method", "kv_dtype"), CASES)
def test_it_takes_what_was_planned(reading):
    reading.is_as_planned()


@pytest.mark.parametrize(("method", "kv_dtype"), CASES)
def test_inside_the_window_it_is_full_attention(reading):
    reading.is_full_attention_inside()


@pytest.mark.slow
def test_another_process_answers_the_same(begun, setup_random):
    """All of them at once: to start a process takes longer than to ask."""
    read = {one.name: one for one in (begun(setup_random, *case) for case in cases())}
    here = {name: one.asked() for name, one in read.items()}
    setups = {name: one.setup_to_ask for name, one in read.items()}
    library = next(iter(read.values())).library
    there = answers(library, QUESTION, 8, setups)
    assert there.keys() == here.keys()
    for name, answer in there.items():
        require_same_answer(here[name], answer)


@pytest.mark.gpu
@pytest.mark.parametrize("method", methods.names())
def test_a_state_made_on_the_gpu_is_asked_on_the_cpu(tmp_path, setup_random, method):
    """Every token is there once: equal ones tie in the first layer, and rounding decides."""
    letters = [chr(c) for c in range(33, 127)]
    random.Random(5).shuffle(letters)
    book = tmp_path / "book.txt"
    book.write_text("".join(letters))
    library = tmp_path / "library"
    cpu = dataclasses.replace(setup_random, method=method)
    cuda = dataclasses.replace(cpu, device="cuda")
    ingest(library, [str(book)], cuda, name="cuda")
    ingest(library, [str(book)], cpu, name="cpu")
    found = []
    for name, device in (("cuda", "cpu"), ("cpu", "cpu"), ("cuda", "cuda")):
        with Session(library, name, dataclasses.replace(setup_random, device=device)) as session:
            found.append(session.ask(QUESTION))
    spans = [[(p.start, p.end) for p in answer.passages] for answer in found]
    assert spans[0] == spans[1] == spans[2]
    assert spans[0]
    assert found[0].answer == found[1].answer == found[2].answer
