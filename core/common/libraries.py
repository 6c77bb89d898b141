"""transformers, imported where it is needed, as late as that, and prepared then.

The command line wants it quiet, and sets its loggers; but importing it only for that would cost
more than a search.
"""

import sys
from collections.abc import Callable
from typing import Any

_prepare: list[Callable[[Any], None]] = []


def when_imported(prepare: Callable[[Any], None]) -> None:
    """Calls `prepare` with transformers when it is first imported, or now if it is."""
    _prepare[:] = [prepare]
    if "transformers" in sys.modules:
        transformers()


def transformers() -> Any:
    """The library; its models and tokenizers are still loaded when they are first used."""
    import transformers

    while _prepare:
        _prepare.pop()(transformers)
    return transformers
