"""Lines that a regular expression matches, with a time limit for each of them."""

from collections.abc import Iterator

from longctx.core.common.errors import UsageError

SECONDS = 1.0  # for one line


class LineFilter:
    """A regular expression for lines, in the syntax of the `regex` module.

    Args:
        pattern: the user's.
        seconds: how long one line may take.

    Raises:
        UsageError: it is not a regular expression.
    """

    def __init__(self, pattern: str, seconds: float = SECONDS):
        import regex

        self._told, self._seconds = f"cannot use the regular expression {pattern!r}", seconds
        try:
            self._pattern = regex.compile(pattern)
        except (regex.error, OverflowError, RecursionError) as exc:
            raise UsageError(self._told, str(exc), "Correct it.") from exc

    def matches(self, line: str) -> bool:
        """Whether it matches anywhere in a line; empty matches count.

        Raises:
            UsageError: this exceeds the time limit.
        """
        try:
            return self._pattern.search(line, timeout=self._seconds) is not None
        except TimeoutError as exc:
            raise self._slow() from exc

    def spans(self, line: str) -> list[tuple[int, int]]:
        """The matches in a line, in characters, without empty ones.

        Raises:
            UsageError: as `matches`.
        """
        try:
            return [match.span() for match in self._found(line) if match.end() > match.start()]
        except TimeoutError as exc:
            raise self._slow() from exc

    def _found(self, line: str) -> Iterator:
        return self._pattern.finditer(line, timeout=self._seconds)

    def _slow(self) -> UsageError:
        why = f"one line took longer than {self._seconds:g} s"
        return UsageError(self._told, why, "Write it without repetitions in repetitions.")
