"""Logging: each line as text for people and as data for programs.

`--report` collects the data. Nothing here decides where a log goes. Never log the text of a
document, question or answer: only names, counts, sizes and times.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stage(log: logging.Logger, name: str, what: str) -> Iterator[None]:
    """Logs how long something took, even if it failed.

    Args:
        log: the module's logger.
        name: the stage's key in a report's `timings`, without the unit.
        what: the stage, for people.
    """
    began = time.perf_counter()
    log.debug("%s: begins", what)
    try:
        yield
    except BaseException:  # Ctrl-C too: an interrupted stage is logged as failed
        _told(log, name, f"{what}: failed", began)
        raise
    _told(log, name, what, began)


def _told(log: logging.Logger, name: str, what: str, began: float) -> None:
    seconds = time.perf_counter() - began
    log.info("%s: %.2f s", what, seconds, extra={"stages": {f"{name}_s": seconds}})


def notice(log: logging.Logger, text: str) -> None:
    """Logs what people should know although they did not ask for a log.

    The command line shows it as a note.

    Args:
        log: the module's logger.
        text: the sentence.
    """
    log.warning("%s", text, extra={"notice": True})


def facts(log: logging.Logger, text: str, *values: Any, **known: Any) -> None:
    """Logs what was chosen or found.

    Args:
        log: the module's logger.
        text, values: the line and its arguments, as for `logging`.
        known: the same facts as data.
    """
    log.info(text, *values, extra={"facts": known})
