"""transformers, imported where it is needed, as late as that, and prepared then.

Who calls wants it quiet: the command line for good, and the Python interface while it works, since
it is not alone in its process. But importing it only for that would cost more than a search.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

_prepare: list[Callable[[Any], None]] = []
_prepared = False  # for good: nothing is changed for a while


def when_imported(prepare: Callable[[Any], None]) -> None:
    """Calls `prepare` with transformers when it is first imported, or now if it is."""
    global _prepared
    _prepare[:], _prepared = [prepare], True
    if "transformers" in sys.modules:
        transformers()


def transformers() -> Any:
    """The library; its models and tokenizers are still loaded when they are first used.

    It is imported by name, and only here: with a usual import in any file, a type checker reads the
    code of all its models, which takes a third of its time.
    """
    library = import_module("transformers")
    while _prepare:
        _prepare.pop()(library)
    return library


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, transformers prints nothing, also if it is imported there; unless it was prepared."""
    if _prepared:
        yield
        return
    before: list[tuple[Any, int, bool]] = []

    def hush(transformers: Any) -> None:
        logging = transformers.utils.logging
        before.append((logging, logging.get_verbosity(), logging.is_progress_bar_enabled()))
        logging.set_verbosity_error()
        logging.disable_progress_bar()

    _prepare.append(hush)
    if "transformers" in sys.modules:
        transformers()
    try:
        yield
    finally:
        if hush in _prepare:
            _prepare.remove(hush)
        for logging, verbosity, draws in before:
            logging.set_verbosity(verbosity)
            if draws:
                logging.enable_progress_bar()
