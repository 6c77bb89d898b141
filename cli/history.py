"""The lines typed at the prompt, kept between sessions by readline in the user's state folder.

The file is its owner's alone. Without readline, as on Windows, lines are neither edited nor kept.
"""

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from longctx.cli.settings import state_path
from longctx.core.common import file_limits
from longctx.core.common.errors import LongctxError
from longctx.core.common.outputs import PRIVATE, Output
from longctx.core.common.regular_files import TooLarge, read_regular

FILE = "history"
MOST = 1000  # lines
_log = logging.getLogger(__name__)


class History:
    """Line editing at the prompt, with earlier lines.

    Args:
        kept: read earlier lines, and keep new ones. Without a terminal on both sides, Python does
            not use readline, and nothing is kept.
    """

    def __init__(self, kept: bool):
        self._readline = _readline() if sys.stdin.isatty() and sys.stdout.isatty() else None
        self._path: Path | None = None
        if kept and self._readline is not None:
            try:
                self._path = _prepared()
                self._readline.read_history_file(self._path)
            except (OSError, LongctxError) as error:
                self._give_up(error)

    def keep(self) -> None:
        """Keeps the line that was just typed, which readline has already noted."""
        if self._path is None or self._readline is None:
            return
        try:
            if hasattr(self._readline, "append_history_file"):
                self._readline.append_history_file(1, self._path)
            else:  # of some systems' libedit
                self._readline.write_history_file(self._path)
                self._path.chmod(PRIVATE)
        except OSError as error:
            self._give_up(error)

    def completes(self, complete: Callable[[str, int], str | None]) -> None:
        """Lets Tab complete lines.

        Args:
            complete: from the line up to the cursor, and a number from 0, to a whole line that it
                may become; None: there are no more.
        """
        if self._readline is None:
            return
        # A name may have any sign, so the whole line is one word to readline.
        self._readline.set_completer_delims("")
        self._readline.set_completer(complete)
        is_libedit = "libedit" in (self._readline.__doc__ or "")
        self._readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")

    def typed(self) -> str:
        """What stood in the line when Ctrl-C came; empty if that is unknown."""
        return "" if self._readline is None else self._readline.get_line_buffer()

    def _give_up(self, error: Exception) -> None:
        self._path = None
        _log.info("lines typed at the prompt are not kept: %s", error)


def _readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:
        return None
    readline.clear_history()
    return readline


def _prepared() -> Path:
    """The file, private, with the last lines only; made if absent."""
    path = state_path(FILE)
    lines: list[bytes] = []
    with suppress(FileNotFoundError, TooLarge):  # a larger one is lost
        lines = read_regular(path, file_limits.STATE).splitlines(keepends=True)
        path.chmod(PRIVATE)
    if not lines or len(lines) > MOST:
        Output(path).write(b"".join(lines[-MOST:]))
    return path
