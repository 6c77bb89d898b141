"""When a reading writes a checkpoint. Knows nothing of what one holds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

TOKENS = 256 * 1024
SECONDS = 60
_SHARE = 20  # by default, checkpoints take at most a twentieth of the time


@dataclass
class Cadence:
    """Due after so many tokens or so many seconds, whichever comes first.

    Attributes:
        tokens: since the last checkpoint; None: however many.
        seconds: likewise.
        sparing: not before `_SHARE` times what the last checkpoint took.
        spent: seconds that checkpoints have taken so far.
    """

    tokens: int | None = TOKENS
    seconds: float | None = SECONDS
    sparing: bool = True
    spent: float = field(default=0.0, init=False)
    _last_tokens: int = field(default=0, init=False)
    _last_time: float = field(default=0.0, init=False)
    _took: float = field(default=0.0, init=False)

    @classmethod
    def given(cls, tokens: int | None, seconds: float | None) -> "Cadence":
        """Just as the user said; the usual one if neither is given."""
        return cls() if tokens is None and seconds is None else cls(tokens, seconds, sparing=False)

    def start(self, tokens: int) -> None:
        """The reading begins, with so many tokens already in the store."""
        self._last_tokens, self._last_time = tokens, time.monotonic()

    def is_due(self, tokens: int) -> bool:
        """Whether to write a checkpoint now, at `tokens` tokens."""
        elapsed = time.monotonic() - self._last_time
        if tokens <= self._last_tokens or (self.sparing and elapsed < _SHARE * self._took):
            return False
        read = tokens - self._last_tokens
        late = self.seconds is not None and elapsed >= self.seconds
        return late or (self.tokens is not None and read >= self.tokens)

    @contextmanager
    def writing(self, tokens: int) -> Iterator[None]:
        """Times the writing of a checkpoint at `tokens` tokens."""
        began = time.monotonic()
        yield
        self._took = time.monotonic() - began
        self.spent += self._took
        self.start(tokens)
