"""Rows from all over a group's files: runs of neighbours are read straight to their places.

What lies in verified blocks takes one small read a run. The rest, for which whole blocks are read
and verified, is read by several threads, a file by each.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from longctx.core.store.open_files import in_threads

if TYPE_CHECKING:
    import numpy as np

    from longctx.core.store.shard_reader import TensorFile


def take_rows(
    files: "Sequence[tuple[int, TensorFile]]", rows: "np.ndarray", name: str
) -> "np.ndarray":
    """Rows of one tensor of a group that is stored with its own number type.

    Args:
        files: of the group, each with its first row.
        rows: ascending positions (S,) in the group.
        name: the tensor's; bfloat16 comes as int16.

    Returns:
        (S, ...).

    Raises:
        StateMismatch: a file is damaged.
    """
    import numpy as np

    steps = np.diff(rows)
    if not steps.all():  # some more than once: each is read once
        once, places = np.unique(rows, return_inverse=True)
        return take_rows(files, once, name)[places]
    like = files[0][1].array_rows(name, 0, 0)
    taken = np.empty((len(rows), *like.shape[1:]), like.dtype)
    if not taken.size:
        return taken
    data, width = taken.reshape(-1).view(np.uint8).data, taken[0].nbytes
    waiting: dict[int, list[partial]] = {}
    for number, first, begin, end in _runs(rows, steps, [first for first, _ in files]):
        start, file = files[number]
        part = data[begin * width : end * width]
        if not file.fill_verified(name, first - start, part):
            waiting.setdefault(number, []).append(
                partial(file.fill_rows, name, first - start, part)
            )
    in_threads([partial(_each, calls) for calls in waiting.values()])
    return taken


def _runs(
    rows: "np.ndarray", steps: "np.ndarray", starts: list[int]
) -> "zip[tuple[int, int, int, int]]":
    """Neighbours in one file: its number, their first row, and their places [begin, end) in rows.

    Args:
        rows: (S,), ascending, S > 0.
        steps: between them (S - 1,).
        starts: the first row of each file.
    """
    import numpy as np

    cuts = np.concatenate([[0], np.flatnonzero(steps != 1) + 1, np.searchsorted(rows, starts)])
    begins = np.unique(cuts[cuts < len(rows)])
    firsts = rows[begins]
    numbers = np.searchsorted(starts, firsts, side="right") - 1
    ends = [*begins[1:].tolist(), len(rows)]
    return zip(numbers.tolist(), firsts.tolist(), begins.tolist(), ends, strict=True)


def _each(calls: list[partial]) -> None:
    for call in calls:
        call()
