"""The steps of an answer: one ahead of the host, and captured; on the CPU by stand-ins."""

import logging
from collections import deque

import pytest
import torch

from longctx.core.contracts.policy import Spent
from longctx.core.decode.decode import Generation
from longctx.core.decode.stepping.choosing import Chooser
from longctx.core.decode.stepping.graphs import Captured, _tell
from longctx.core.decode.stepping.step import Step
from longctx.core.decode.stepping.steps import Steps
from longctx.core.model.files import open_model_files
from longctx.core.profile.sampling import Sampling

VOCABULARY = 11
CPU = torch.device("cpu")


class Counting:
    """A model after whose token t comes t + 1, and the policy of it: each step is of some kind."""

    device = CPU

    def __init__(self, kinds: str | None = "a", waits: str = ""):
        self.kinds, self.waits = kinds, waits
        self.read_tokens: list[int] = []
        self.advanced = 0

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(hidden % VOCABULARY, VOCABULARY).float()

    def read(self, token: torch.Tensor, memory: "Counting") -> torch.Tensor:
        self.read_tokens.append(int(token))
        return token + 1

    @property
    def kind(self) -> str | None:
        kind = self.kinds[self.advanced % len(self.kinds)]
        return None if kind in self.waits else kind

    def begin_token(self) -> None: ...

    def end_token(self) -> None: ...

    def advance(self) -> None:
        self.advanced += 1

    def spent(self) -> Spent:
        return Spent(self.advanced, None, self.advanced)


class Queue:
    """Tokens as a GPU sends them: each is what the latest was when it was sent."""

    def __init__(self, token: torch.Tensor):
        self.token, self.sent, self.most, self.waited = token, deque(), 0, False

    def send(self) -> None:
        self.sent.append(int(self.token))
        self.most = max(self.most, len(self.sent))

    def receive(self) -> int:
        return self.sent.popleft()

    def wait(self) -> None:
        self.waited = True


def answer_of(model: Counting, limit: int, end: int | None = None, ahead: bool = True):
    """An answer of a counting model that begins with 0; ahead: as if captured, on a queue."""
    hidden, prompt = torch.tensor([0]), torch.tensor([3])
    answer = Generation(model, model, hidden, prompt, Sampling(), limit, {end} - {None})
    if ahead:
        step = answer._steps._step
        run = Captured(step, lambda work, generator: work)
        answer._steps = Steps(step, run, Queue(step.token))
    return answer


# --- ahead of the host ---


@pytest.mark.parametrize("kinds", ["a", "ab", "aan", "n"])
@pytest.mark.parametrize(("limit", "end"), [(1, None), (2, None), (9, None), (9, 4), (9, 0)])
def test_what_is_run_ahead_changes_nothing(kinds, limit, end):
    found = []
    for ahead in (False, True):
        answer = answer_of(Counting(kinds, waits="n"), limit, end, ahead)
        found.append(([*answer.tokens()], answer.stop, answer.count, answer.spent()))
    assert found[0] == found[1]
    assert answer._steps._tokens.waited


def test_the_host_runs_one_step_ahead_and_not_where_a_step_waits():
    for kinds, extra in (("a", 1), ("n", 0)):
        model = Counting(kinds, waits="n")
        answer = answer_of(model, limit=9, end=5)
        assert [*answer.tokens()] == [0, 1, 2, 3, 4]
        assert model.read_tokens == [0, 1, 2, 3, 4, 5][: 5 + extra]
        assert answer._steps._tokens.most == 1 + extra
        assert model.advanced == 5


def test_an_answer_that_nobody_asks_on_counts_what_was_given():
    model = Counting()
    answer = answer_of(model, limit=9)
    tokens = answer.tokens()
    assert [next(tokens) for _ in range(3)] == [0, 1, 2]
    tokens.close()
    assert (answer.count, answer.stop, model.advanced) == (3, "interrupted", 2)
    assert answer._steps._tokens.waited


def test_rates_are_of_the_tokens_after_the_first(monkeypatch):
    times = iter([1.0, 1.5, 2.0, 5.0])
    monkeypatch.setattr("longctx.core.decode.decode.time.perf_counter", lambda: next(times))
    answer = answer_of(Counting(), limit=4)
    assert answer.tokens_per_s is None
    assert len([*answer.tokens()]) == 4
    assert answer.tokens_per_s == pytest.approx(3 / 4)


# --- interrupted ---


@pytest.mark.parametrize("ahead", [False, True])
def test_ctrl_c_in_a_step_leaves_what_there_is(ahead):
    model, given = Counting(), []
    answer = answer_of(model, limit=9, ahead=ahead)
    read = model.read

    def interrupted(token: torch.Tensor, memory: object) -> torch.Tensor:
        if int(token) == 3:
            raise KeyboardInterrupt
        return read(token, memory)

    model.read = interrupted
    with pytest.raises(KeyboardInterrupt):
        given.extend(answer.tokens())
    assert answer.stop == "interrupted"
    # The step after token 3 was begun before the host had read that, where it runs ahead.
    assert answer.count == (3 if ahead else 4)
    assert not ahead or answer._steps._tokens.waited


def test_ctrl_c_of_whoever_takes_the_text_ends_the_answer(model_folder):
    tokenizer, shown = open_model_files(str(model_folder)).tokenizer, []
    answer = answer_of(Counting(), limit=9)

    def show(texts) -> None:
        for text in texts:
            shown.append(text)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        show(answer.texts(tokenizer))
    del caught
    assert len(shown) == 1
    assert answer.stop == "interrupted"
    assert answer._steps._tokens.waited


# --- captured ---


def captured(model: Counting, capture, limit: int = 12, **sampling) -> tuple[Steps, Captured]:
    choose = Chooser(Sampling(**sampling), CPU)
    step = Step(model, model, choose, torch.tensor([3]), limit)
    run = Captured(step, capture)
    return Steps(step, run, Queue(step.token)), run


def taken(steps: Steps, count: int) -> list[int]:
    steps.begin(torch.eye(VOCABULARY)[:1])
    tokens = [steps.read(more=count > 1)]
    while len(tokens) < count:
        steps.go_on()
        tokens.append(steps.read(more=len(tokens) + 1 < count))
    return tokens


def test_a_kind_is_captured_when_it_comes_again():
    recorded, replayed = [], []

    def capture(work, generator):
        number = len(recorded)
        recorded.append(len(model.read_tokens))

        def replay() -> None:
            replayed.append(number)
            work()

        return replay

    model = Counting("aaban", waits="n")
    steps, run = captured(model, capture)
    assert taken(steps, 12) == [*range(VOCABULARY), 0]
    assert recorded == [1, 7]  # steps before: a | a, then b of the second round
    assert replayed == [0, 0, 0, 0, 1, 0, 0]  # a b a n | a a b a n | a: b once as it is
    assert steps.captured == run.kinds == ("a", "b")


@pytest.mark.parametrize("sampling", [{}, {"temperature": 5.0, "seed": 3}])
def test_where_capturing_fails_steps_run_as_they_are(sampling, caplog):
    attempts = []

    def capture(work, generator):
        attempts.append(generator)
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")

    _tell.cache_clear()
    with caplog.at_level(logging.INFO, "longctx.core.decode.stepping.graphs"):
        found = []
        for _ in range(2):
            steps, _ = captured(Counting("ab"), capture, 24, **sampling)
            found.append(taken(steps, 24))
            assert steps.captured == ()
    steps, _ = captured(Counting("c"), lambda work, generator: work, 24, **sampling)
    assert found == [taken(steps, 24)] * 2
    assert len(attempts) == 2  # once for each answer
    [message] = caplog.messages
    assert message.endswith("(RuntimeError: operation not permitted when stream is capturing)")
