"""A model in memory: whose turn it is, its weights, and the documents opened with it."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from longctx.core.common import libraries
from longctx.core.common.turns import Turns
from longctx.core.engine.staying import Weights, always, weights_stay

if TYPE_CHECKING:
    from longctx.core.ask.asking import Asking
    from longctx.core.engine.choice import Setup

OPEN = 4  # documents that stay open with one model; of more, the least recently asked are closed


@dataclass
class _Held:
    setup: "Setup"
    session: "Asking"


class Running:
    """What several threads and documents share of one model."""

    def __init__(self) -> None:
        self._turns, self._weights = Turns(), Weights()
        self._readings = 0  # that have begun and not ended
        self._held: OrderedDict[object, _Held] = OrderedDict()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One thread at a time, in the order in which they came; its engines share the weights."""
        with self._turns, libraries.quiet(), weights_stay(self._weights):
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A turn to read in, in the midst of which others may have theirs."""
        with self.turn():
            self._readings += 1
            self._weights.before_moving = self._may_move
            try:
                yield
            finally:
                self._readings -= 1
                if not self._readings:  # else this object and the weights would keep one another
                    self._weights.before_moving = always

    def _may_move(self) -> bool:
        """Whether layers may go to other devices: what is open kept caches where they were.

        So it is closed. Another reading, which lets this one go first, cannot be.
        """
        if self._readings > 1:
            return False
        for owner in [*self._held]:
            self.let_go(owner)
        return True

    def give_way(self) -> None:
        """In the midst of long work: lets those go first who wait for a turn."""
        self._turns.give_way()

    def session(
        self, owner: object, setup: "Setup", finding: bool, opened: "Callable[[], Asking]"
    ) -> "Asking":
        """The session of a document or several, opened unless it is; inside `turn`.

        Args:
            owner: whose it is.
            setup: how it is asked.
            finding: nothing will be answered, so whatever answers will do.
            opened: opens it.
        """
        held = self._held.get(owner)
        if held is None or not _fits(held.setup, setup, finding):
            self.let_go(owner)
            held = self._held[owner] = _Held(setup, opened())
        self._held.move_to_end(owner)
        while len(self._held) > OPEN:
            self._held.popitem(last=False)[1].session.close()
        return held.session

    def let_go(self, owner: object) -> None:
        """Closes what is open of an owner; inside `turn`."""
        if held := self._held.pop(owner, None):
            held.session.close()

    def close(self) -> None:
        """Closes everything, and lets the weights go."""
        with self._turns:
            for owner in [*self._held]:
                self.let_go(owner)
            self._weights.held.clear()


def _fits(held: "Setup", setup: "Setup", finding: bool) -> bool:
    if not finding:
        return held == setup
    return _searching(held) == _searching(setup)


def _searching(setup: "Setup") -> "Setup":
    """What a search depends on."""
    of_answers = ("decode", "answer_model", "answer_profile", "answer_with", "server_model")
    return replace(setup, **dict.fromkeys(of_answers))
