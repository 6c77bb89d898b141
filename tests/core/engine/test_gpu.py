"""What only a CUDA device can show: its fused attention, and a session equal to the CPU's."""

import dataclasses

import pytest
import torch

from longctx.core.common.errors import LongctxError
from longctx.core.engine.setup import prepare
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.ingest import ingest
from longctx.core.model.attention import causal_attention

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("softcap", "sinks"), [(None, False), (None, True), (2.0, False)])
@pytest.mark.parametrize(
    ("T", "S", "window"), [(65, 200, None), (90, 90, None), (1, 77, None), (64, 300, 96)]
)
def test_attention_after_a_cache_equals_the_cpus(dtype, T, S, window, softcap, sinks):
    generator = torch.Generator().manual_seed(T)
    q = torch.randn(8, T, 64, generator=generator)
    k, v = torch.randn(2, 2, S, 64, generator=generator).unbind()
    given = torch.linspace(-1, 3, 8) if sinks else None
    expected = causal_attention(q, k, v, 0.125, window, softcap, given)
    moved = (x.to("cuda", dtype) for x in (q, k, v))
    given = given.to("cuda", dtype) if sinks else None
    out = causal_attention(*moved, 0.125, window, softcap, given).float().cpu()
    error = (out - expected).norm() / expected.norm()
    assert error < (1e-5 if dtype == torch.float32 else 1e-2)


def test_what_a_closed_document_took_is_room_for_the_next(setup_random):
    engine = prepare(dataclasses.replace(setup_random, device="cuda"))
    before = engine._room()
    assert before is not None
    taken = torch.empty(before // 2, dtype=torch.uint8, device="cuda")
    assert (engine._room() or 0) < 0.6 * before
    del taken
    assert (engine._room() or 0) > 0.95 * before


def test_rows_that_nobody_waits_for_are_the_same(tmp_path, setup_random, monkeypatch):
    book = tmp_path / "book.txt"
    book.write_text("".join(f"line {i}: boat {i * 7919 % 1000} came home\n" for i in range(400)))
    cuda = dataclasses.replace(setup_random, device="cuda")
    every_chunk = Cadence.given(1, None)
    for name, cadence in (("behind", Cadence()), ("checkpoints", every_chunk)):
        ingest(tmp_path / name, [str(book)], cuda, cadence=cadence)

    def waited(rows, still=False):
        return {name: tensor.cpu() for name, tensor in rows.items()}, lambda: None

    monkeypatch.setattr("longctx.core.store.behind.to_host", waited)
    ingest(tmp_path / "waited", [str(book)], cuda)
    found = [
        {file.name: file.read_bytes() for file in (tmp_path / name).rglob("documents/book/*")}
        for name in ("behind", "checkpoints", "waited")
    ]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 4


def test_out_of_memory_has_figures_and_keeps_the_checkpoint(tmp_path, setup_random):
    book = tmp_path / "book.txt"
    book.write_text("".join(f"line {i}: boat {i * 7919 % 1000} came home\n" for i in range(80)))
    library = tmp_path / "library"
    cuda = dataclasses.replace(setup_random, device="cuda")

    def take_the_memory(progress):
        if progress.kept > 300:
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")

    every_chunk = Cadence.given(1, None)
    with pytest.raises(LongctxError, match=r"out of memory on cuda: .*weights.*B are free"):
        ingest(library, [str(book)], cuda, cadence=every_chunk, on_progress=take_the_memory)
    assert ingest(library, [str(book)], cuda).reused_tokens > 300
