"""The figures of one method, way and length, as a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from longctx.core.measure.intervals import wilson
from longctx.core.measure.journal import Record


@dataclass(frozen=True)
class Row:
    """One method, asked in one way, at one length. Figures are None if nothing was asked.

    Attributes:
        ceiling: whether it is full attention within the window.
        method, gather_by, decode: reading method, gather source, decode policy.
        length: tokens of the texts.
        questions: number of questions asked.
        quality, low, high: mean of the tasks' mean scores, and its 95% interval.
        tasks: mean score of each task.
        gathered: mean share of the needed places that were gathered; None if tasks name no places.
        read_s: seconds to read a text, without loading the model.
        read_tokens_per_s: prefill speed.
        first_token_s, total_s: seconds per question, on an open document.
        tokens_per_s: decoding speed after the first token.
        peak_memory: bytes on the device, or of the process on a CPU.
        state_bytes: size of a text's state on disk.
        not_applicable: why it cannot be asked this way; empty if it can.
        failed: why it ended early; empty if it did not.
    """

    ceiling: bool
    method: str
    gather_by: str
    decode: str
    length: int
    questions: int
    quality: float | None
    low: float | None
    high: float | None
    tasks: dict[str, float | None]
    gathered: float | None
    read_s: float | None
    read_tokens_per_s: float | None
    first_token_s: float | None
    total_s: float | None
    tokens_per_s: float | None
    peak_memory: int | None
    state_bytes: int | None
    not_applicable: str = ""
    failed: str = ""

    @property
    def line(self) -> tuple[bool, str, str, str]:
        """What rows of one method and way share."""
        return self.ceiling, self.method, self.gather_by, self.decode

    @property
    def why(self) -> str:
        """Why figures are missing; empty if none are."""
        if self.not_applicable:
            return f"not applicable: {self.not_applicable}"
        return f"failed: {self.failed}" if self.failed else ""


def make_row(samples: Sequence[Record], **given: Any) -> Row:
    """A row of means over samples.

    Args:
        samples: as `compare_job` reports them.
        **given: fields of `Row`: which row it is, and why figures are missing.
    """
    questions = [question for sample in samples for question in sample["questions"]]
    by_task: dict[str, list[float]] = {}
    for sample in samples:
        scores = [question["score"] for question in sample["questions"]]
        by_task.setdefault(sample["task"], []).extend(scores)
    tasks = {name: _mean(scores, 4) for name, scores in by_task.items()}
    quality = _mean([*tasks.values()], 4)
    low, high = (
        (None, None) if quality is None else wilson(quality * len(questions), len(questions))
    )
    timings = [question["timings"] for question in questions]
    seconds = fsum(sample["read_s"] for sample in samples)
    read = sum(sample["tokens"] for sample in samples)
    return Row(
        **given,
        questions=len(questions),
        quality=quality,
        low=_rounded(low, 4),
        high=_rounded(high, 4),
        tasks=tasks,
        gathered=_mean([question["gathered"] for question in questions], 4),
        read_s=_mean([sample["read_s"] for sample in samples], 3),
        read_tokens_per_s=_rounded(read / seconds, 1) if seconds else None,
        first_token_s=_mean([timing.get("first_token_s") for timing in timings], 4),
        total_s=_mean([timing["total_s"] for timing in timings], 4),
        tokens_per_s=_mean([question["tokens_per_s"] for question in questions], 2),
        peak_memory=_largest([sample["peak_memory"] for sample in samples]),
        state_bytes=_largest([sample["state_bytes"] for sample in samples]),
    )


def _mean(values: Sequence[float | None], digits: int) -> float | None:
    """The mean of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return round(fsum(known) / len(known), digits) if known else None


def _largest(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
