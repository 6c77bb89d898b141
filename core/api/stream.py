"""An answer as it is decoded, in a thread of its own, for whoever iterates over it."""

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self

from longctx.core.common.interrupts import Stopped, ended_by

if TYPE_CHECKING:
    from longctx.core.ask.answer import Answer

Asks = Callable[[Callable[[str], None]], "Answer"]
Told = queue.SimpleQueue[str | BaseException | None]  # pieces; then what ended them, if anything


class AnswerStream(Iterator[str]):
    """The pieces of an answer as they are decoded; then `answer` is the whole.

    A thread decodes, however fast the pieces are taken. `close`, from any thread, ends that at the
    next token, and so does the end of the context of a `with`, or dropping the stream.

    """

    def __init__(self, asks: Asks):
        self._told: Told = queue.SimpleQueue()
        self._done: list[Answer] = []
        self._end, self._over = threading.Event(), False
        weakref.finalize(self, self._end.set)
        work = asks, self._told, self._done, self._end
        self._thread = threading.Thread(target=_work, args=work, name="longctx-answer")
        self._thread.start()

    @property
    def answer(self) -> "Answer | None":
        """The whole answer, once it has ended; after `close` what there was of it.

        None before that, and where it was closed before anything was decoded, or failed.
        """
        return self._done[0] if self._done else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        """The next piece.

        Raises:
            LongctxError: the question cannot be asked; as `Document.ask`.
        """
        if self._over:
            raise StopIteration
        try:
            told = self._told.get()
        except BaseException:  # Ctrl-C: nobody waits for the rest
            self._end.set()
            raise
        if isinstance(told, str):
            return told
        self._over = True
        if told is not None:
            raise told
        raise StopIteration

    def close(self) -> None:
        """Ends the decoding, and waits until it has ended; also from another thread.

        Whoever iterates gets the pieces that were decoded by then, and no more.
        """
        self._end.set()
        self._thread.join()


def _work(asks: Asks, told: Told, done: "list[Answer]", end: threading.Event) -> None:
    """Asks, and passes on what comes of it; knows nothing of the stream, which may be dropped."""
    try:
        with ended_by(end):
            done.append(asks(told.put))
        told.put(None)
    except Stopped:
        told.put(None)
    except BaseException as error:
        told.put(error)
