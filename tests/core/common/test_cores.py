"""How many threads a command takes, by what the cores did while it started."""

import pytest

from longctx.core.common.cores import left


def accounts(*cores: tuple[float, float]) -> dict[int, tuple[int, int]]:
    """Cores by their seconds idle and busy, in hundredths."""
    return {n: (int(100 * idle), int(100 * (idle + busy))) for n, (idle, busy) in enumerate(cores)}


@pytest.mark.parametrize(
    ("cores", "threads"),
    [
        ([(0, 1), (1, 0)], 2),  # one with us, one idle
        ([(0.1, 0.9), (0.7, 0.3)], 2),
        ([(0, 1), (0, 1)], 1),  # another program has it
        ([(0, 1), (0.5, 0.5)], 1),
        ([(0, 1)], 1),
        ([(1, 0), (1, 0)], 2),  # nobody, not even we, was busy
        ([(0, 1), (0, 1), (1, 0), (1, 0)], 3),
        ([(0.5, 0.5)] * 8, 5),
        ([(0, 0.01), (0.01, 0)], None),  # too short to tell
        ([], None),
    ],
)
def test_no_more_threads_than_cores_are_idle(cores, threads):
    begun = {core: (1000, 5000) for core in range(len(cores))}
    now = {core: (1000 + idle, 5000 + every) for core, (idle, every) in accounts(*cores).items()}
    assert left(begun, now) == threads


def test_a_core_that_was_not_noted_does_not_count():
    assert left({}, accounts((1, 0))) is None
