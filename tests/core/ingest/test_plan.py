"""What a dry run says of memory where a reading would record its chunks."""

import pytest

from longctx.core.engine import chunk_graphs
from longctx.core.ingest import plan as planning
from longctx.core.ingest.job import Job


@pytest.mark.parametrize(("words", "recorded"), [(2000, True), (40, False)])
def test_a_recorded_chunk_counts(
    tmp_path, setup_random, models_loaded_once, monkeypatch, words, recorded
):
    """The peak is as on a GPU that holds 10 GB, and 2 GB more while it reads a chunk."""
    monkeypatch.setattr(planning, "peak_memory", lambda device: 12 * 10**9)
    monkeypatch.setattr(planning, "held_memory", lambda device: 10 * 10**9)
    source = tmp_path / "some.txt"
    source.write_text("the keeper wrote of rain " * (words // 5))
    job = Job(tmp_path / "library", [str(source)], setup_random)
    peaks = []
    for capture in (None, object()):
        monkeypatch.setattr(chunk_graphs, "capture_of", lambda decoder, method, it=capture: it)
        peaks.append(planning.plan(job).peak_memory_bytes)
    more = peaks[1] - peaks[0]
    assert (more > 2 * 10**9) == recorded
    assert recorded or more == 0
    assert more < 3 * 10**9
