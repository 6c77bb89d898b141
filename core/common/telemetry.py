"""Logging: each line as text for people and as data for programs.

`--report` collects the second. Nothing here says where a log goes. Never log text of a document, of
a question or of an answer: only names, counts, sizes, times.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stage(log: logging.Logger, name: str, what: str) -> Iterator[None]:
    """Logs how long something took, also where it failed.

    Args:
        log: the module's.
        name: the stage, as `timings` of a report call it, without its unit.
        what: the same for people.
    """
    began = time.perf_counter()
    log.debug("%s: begins", what)
    try:
        yield
    except BaseException:  # Ctrl-C too: a stage that it ended is logged like one that failed
        _told(log, name, f"{what}: failed", began)
        raise
    _told(log, name, what, began)


def _told(log: logging.Logger, name: str, what: str, began: float) -> None:
    seconds = time.perf_counter() - began
    log.info("%s: %.2f s", what, seconds, extra={"stages": {f"{name}_s": seconds}})


def facts(log: logging.Logger, text: str, *values: Any, **known: Any) -> None:
    """Logs what was chosen or found.

    Args:
        log: the module's.
        text, values: the line, as `logging` takes it.
        known: the same for programs.
    """
    log.info(text, *values, extra={"facts": known})
