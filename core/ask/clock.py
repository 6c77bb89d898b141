"""How long an answer took, and its parts."""

import time


class Clock:
    """Seconds since a question was asked.

    Args:
        load_s: what opening documents and model took before.
    """

    def __init__(self, load_s: float):
        self._started = time.perf_counter()
        self._marks = {"load_s": load_s}

    def mark(self, name: str) -> None:
        """Notes the time of a moment; the first time counts."""
        self._marks.setdefault(name, time.perf_counter() - self._started)

    def timings(self) -> dict[str, float]:
        """All moments so far, and the time until now as `total_s`."""
        times = {**self._marks, "total_s": time.perf_counter() - self._started}
        return {name: round(seconds, 4) for name, seconds in times.items()}
