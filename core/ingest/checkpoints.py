"""When a reading writes a checkpoint. Knows nothing of its content."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

TOKENS = 256 * 1024
SECONDS = 60
_SHARE = 20  # by default, checkpoints take at most a twentieth of the time
_WORTH = 2  # seconds of reading that are saved before the document is completed


@dataclass(frozen=True)
class Cadence:
    """A checkpoint after so many tokens or so many seconds, whichever comes first.

    Attributes:
        tokens: tokens since the last checkpoint; None: no limit.
        seconds: likewise.
        sparing: wait at least `_SHARE` times as long as the last checkpoint took.
    """

    tokens: int | None = TOKENS
    seconds: float | None = SECONDS
    sparing: bool = True

    @classmethod
    def given(cls, tokens: int | None, seconds: float | None) -> "Cadence":
        """As the user said; the default if neither is given."""
        return cls() if tokens is None and seconds is None else cls(tokens, seconds, sparing=False)


class Checkpoints:
    """The checkpoints of one reading.

    Args:
        cadence: when they are due.
        tokens: tokens that are already in the store.

    Attributes:
        spent: seconds that they have taken so far.
    """

    def __init__(self, cadence: Cadence, tokens: int = 0):
        self.spent = self._took = 0.0
        self._cadence = cadence
        self.start(tokens)

    def start(self, tokens: int) -> None:
        """Counts from now, at `tokens` tokens."""
        self._last_tokens, self._last_time = tokens, time.monotonic()

    def skip(self, tokens: int) -> None:
        """Leaves out tokens that took no reading: they alone make no checkpoint due."""
        self._last_tokens += tokens

    def is_due(self, tokens: int, last: bool = False) -> bool:
        """Whether to write a checkpoint now, at `tokens` tokens.

        Args:
            tokens: of the document so far.
            last: all is read; what follows, such as the word index, may take a while too.
        """
        cadence, elapsed = self._cadence, time.monotonic() - self._last_time
        read = tokens - self._last_tokens
        if read <= 0 or (cadence.sparing and elapsed < _SHARE * self._took):
            return False
        if last:
            return elapsed >= _WORTH
        late = cadence.seconds is not None and elapsed >= cadence.seconds
        return late or (cadence.tokens is not None and read >= cadence.tokens)

    @contextmanager
    def writing(self, tokens: int) -> Iterator[None]:
        """Times the writing of a checkpoint at `tokens` tokens."""
        began = time.monotonic()
        yield
        self._took = time.monotonic() - began
        self.spent += self._took
        self.start(tokens)
