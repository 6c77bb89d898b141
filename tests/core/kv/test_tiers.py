"""Keys and values on the device, in host memory and on disk: the same rows come back from each."""

import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from row_list import RowList

from longctx.core.contracts.memory import Place
from longctx.core.kv import hosted
from longctx.core.kv.brought import Brought
from longctx.core.kv.coded import Coded, RowForm
from longctx.core.kv.host_memory import HostMemory
from longctx.core.kv.hosted import Hosted
from longctx.core.kv.keys import Keys
from longctx.core.kv.on_disk import OnDisk, StoredRows
from longctx.core.kv.resident import Resident
from longctx.core.kv.scanned import Scanned
from longctx.kernels.door import topk_scan

G, D, N = 2, 8, 90
CUTS = [1, 30, 7, 2, 40, 10]
STORED = [torch.float32, torch.bfloat16, torch.int8]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    """Blocks of 16 rows, and rows leave the device early."""
    monkeypatch.setattr(hosted, "LEAVE", 4)


def form_of(stored: torch.dtype) -> RowForm:
    return RowForm(G, D, stored, Place())


def coded(form: RowForm) -> Coded:
    return form.code(torch.randn(N, G, D, generator=torch.Generator().manual_seed(1)))


def filled(column, rows: Coded):
    """The column with all rows, appended in pieces."""
    assert sum(CUTS) == N
    start = 0
    for count in CUTS:
        column.append(rows.part(start, start + count))
        start += count
    return column


def columns(form: RowForm, rows: Coded) -> dict:
    """The rows in every kind of column, all of them full."""
    stored, names = RowList(), ("v.0", "v.0.scales")
    given = {name: x for name, x in zip(names, rows, strict=True) if x is not None}
    stored.append("kv", {name: x[5:60] for name, x in given.items()})
    kept = StoredRows(rows.part(0, 5), stored, "kv", tuple(given), 55)
    on_disk = OnDisk(form, kept)
    on_disk.append(rows.part(60, N))
    stays = Brought(form, kept, 10)
    stays.append(rows.part(60, N))
    memory = HostMemory("cpu", rows=16)
    return {
        "resident": filled(Resident(form), rows),
        "hosted": filled(Hosted(form, 20, memory), rows),
        "keys, all near": filled(Keys(form, 0, None, 20, memory), rows),
        "keys, some near": filled(Keys(form, 0, 33, 20, memory), rows),
        "keys, none near": filled(Keys(form, 0, 0, 20, memory), rows),
        "on disk": on_disk,
        "brought from disk": stays,
    }


@pytest.mark.parametrize("stored", STORED)
def test_every_column_gives_the_rows_that_it_took(stored):
    form = form_of(stored)
    rows = coded(form)
    expected = rows.decoded(torch.float32)
    for name, column in columns(form, rows).items():
        assert column.length == N, name
        for index in ([0, 4, 5, 59, 60, 89], list(range(N)), [3, 40, 40, 88], [N - 1]):
            picked = torch.tensor(index)
            assert torch.equal(column.gather(picked), expected[picked]), name
        beyond = column.gather(torch.tensor([N - 2, N + 5]))  # padding is clamped
        assert torch.equal(beyond, expected[[N - 2, N - 1]]), name


def test_no_more_room_is_made_on_the_device_than_its_limit():
    form = form_of(torch.float32)
    keys = Keys(form, 10, 33, 20, HostMemory("cpu", rows=16))
    keys.append(coded(form).part(0, 30))
    assert keys.buffer is not None
    assert len(keys.buffer.rows) == 33
    keys.append(coded(form).part(30, N))
    assert (keys.length, keys.buffer) == (N, None)


@pytest.mark.parametrize("stored", STORED)
def test_a_fork_grows_by_itself(stored):
    form = form_of(stored)
    rows = coded(form)
    more = form.code(torch.full((50, G, D), 3.0))
    everything = torch.arange(N)
    for name, column in columns(form, rows).items():
        before = column.gather(everything)
        fork = column.fork()
        for start in range(0, 50, 5):
            fork.append(more.part(start, start + 5))
        assert fork.length == N + 50, name
        assert (fork.gather(torch.arange(N, N + 50)) - 3).abs().max() < 0.02, name
        assert column.length == N, name
        assert torch.equal(column.gather(everything), before), name
        second = column.fork()  # what the first one added is gone
        second.append(more.part(0, 1))
        assert torch.equal(second.gather(everything), before), name


def test_rows_that_leave_the_device_are_in_blocks():
    form = form_of(torch.float32)
    column = filled(Hosted(form, 20, HostMemory("cpu", rows=16)), coded(form))
    held = column.held_bytes(N)
    assert held.host >= (N - 20 - 4) * form.bytes()
    assert held.device == 24 * form.bytes()
    assert len(column._tail.rows) < 24
    assert len(column._blocks) == -(-column._start // 16)
    assert column._row_table.tolist() == [block.rows.data_ptr() for block in column._blocks]


LAYERS: Any = tuple(
    SimpleNamespace(index=index, window=None, kv_heads=G, head_dim=D, device=None)
    for index in range(2)
)


def test_blocks_that_are_pinned_ahead_count_as_held():
    kept = Scanned(LAYERS, torch.float32, Place(room=0), keep=8)
    before = kept.held_bytes(N).host
    [memory] = kept._memory.values()
    memory._pinned = True
    block = memory.block_bytes(form_of(torch.float32))
    assert kept.held_bytes(8).host == 0
    assert kept.held_bytes(N).host - before == len(LAYERS) * block


@pytest.mark.parametrize("rows_that_fit", [2 * N, N + 30, N])
def test_what_a_reading_will_hold_is_known_before_it_begins(rows_that_fit):
    """Values that will be on the device are not reckoned as host memory."""
    room = rows_that_fit * len(LAYERS) * form_of(torch.float32).bytes()
    unknown, expecting = (
        Scanned(LAYERS, torch.float32, Place(tokens=tokens, room=room), keep=8) for tokens in (0, N)
    )
    held = unknown.held_bytes(N)
    assert held == expecting.held_bytes(N)
    assert held.device > N * len(LAYERS) * form_of(torch.float32).bytes()
    assert (held.host == 0) == (rows_that_fit == 2 * N)


def written() -> tuple[dict[str, torch.Tensor], RowList]:
    """The snapshot and the rows of a document of N tokens."""
    kept, stored = Scanned(LAYERS, torch.float32, Place(), keep=8), RowList()
    for layer in LAYERS:
        kept.append(layer, torch.randn(G, N, D), torch.randn(G, N, D))
    stored.append("kv", kept.rows(0))
    return kept.snapshot(), stored


@pytest.mark.parametrize("reading", [True, False])
def test_a_restored_document_has_room_once(monkeypatch, reading):
    """For keys and values where reading goes on, else for keys, as values stay on disk."""
    snapshot, stored = written()
    made: list[weakref.ref] = []

    def empty(form: RowForm, n: int, **where: Any) -> Coded:
        rows = made_by(form, n, **where)
        made.append(weakref.ref(rows.rows))
        alive.append(sum(len(x) for one in made if (x := one()) is not None))
        return rows

    made_by, alive = RowForm.empty, []
    monkeypatch.setattr(RowForm, "empty", empty)
    kept = Scanned(LAYERS, torch.float32, Place(tokens=5000), keep=8)
    assert max(alive) == 2 * 5000 * len(LAYERS)
    alive.clear()
    kept.restore(snapshot, stored, reading)
    assert max(alive) == (1 + reading) * 5000 * len(LAYERS)


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("limit", [None, 0, 10, 33, 200])
def test_keys_are_scanned_alike_wherever_they_are(stored, limit):
    form = form_of(stored)
    rows = coded(form)
    memory = HostMemory("cpu", rows=16)
    keys = filled(Keys(form, 0, limit, 20, memory), rows)
    q = torch.randn(4, 3, D, generator=torch.Generator().manual_seed(2))
    whole = rows if stored == torch.int8 else Coded(rows.rows.float())
    for first, last in ((0, N), (7, 80), (30, 36), (5, 6)):
        part = whole.part(first, last)
        expected = topk_scan(q, part.rows, 2, part.scales)
        found = keys.top(q, first, last, 2)
        assert torch.equal(found.keys, expected.keys)
        assert torch.equal(found.votes, expected.votes)
        assert torch.allclose(found.scores, expected.scores)
        assert torch.allclose(found.best, expected.best)


def test_what_was_just_read_from_disk_is_not_read_again():
    form = form_of(torch.float32)
    rows = coded(form)
    column, read = columns(form, rows)["on disk"], []
    stored = column._stored.stored
    take = stored.take
    stored.take = lambda group, wanted, names: (
        read.extend(wanted.tolist()) or take(group, wanted, names)
    )
    expected = rows.decoded(torch.float32)
    for index in ([2, 10, 11, 70], [10, 11, 12, 71], [3, 12, 40]):
        assert torch.equal(column.gather(torch.tensor(index)), expected[index])
    assert [place + 5 for place in read] == [10, 11, 12, 40]


def test_a_buffer_grows_without_losing_rows(monkeypatch):
    monkeypatch.setattr("longctx.core.kv.resident.STEP", 3)
    form = form_of(torch.float32)
    rows = coded(form)
    column = filled(Resident(form, 2), rows)
    assert torch.equal(column.coded().rows, rows.rows)
