"""Garbage collection, paused. Imports nothing of ours."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """For work that makes many objects and hardly any reference cycles.

    Imports of model libraries make a million lasting objects, and collecting among them would cost
    a tenth; a thousand manifests have many parts.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
