"""Something happens while the model reads a chunk of our choice: Ctrl-C, a signal, an error."""

from collections.abc import Callable

import pytest

from longctx.core.model.adapter import Decoder


def in_chunk(
    patch: pytest.MonkeyPatch, number: int, happens: Callable[[], object], *, after: bool = False
) -> None:
    """Something happens in a chunk.

    Args:
        patch: undoes it.
        number: of the chunk, from 1.
        happens: what.
        after: at the end of what the model does with it, when a method has changed; else before.
    """
    read, count = Decoder.read, 0

    def reading(self, *args):
        nonlocal count
        count += 1
        if count == number and not after:
            happens()
        done = read(self, *args)
        if count == number and after:
            happens()
        return done

    patch.setattr(Decoder, "read", reading)


def fail(error: BaseException) -> None:
    """Raises it."""
    raise error
