"""The exact top-k keys of every query by plain q·k, and their votes, in Triton.

The first pass goes through all keys by tiles, whose keys are divided into sets, and holds in
registers the k sets with the largest maxima of each query: the top k are in these. The second
computes the scores of their keys again, chooses, and counts votes with atomics. No sum or choice
depends on the order of programs. `topk_scan_ref.py` is the definition.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.kernels.launch import (
    aligned,
    bulk_tiles,
    padded_head,
    shared_memory,
    starts_early,
    tl,
    triton,
)
from longctx.kernels.topk_scan_ref import Top

MOST = 4  # most keys that the kernel finds for a query
NO_TILE = tl.constexpr(1 << 24)  # placeholder where fewer sets were seen than needed
NO_KEY = tl.constexpr((1 << 31) - 16)  # above every key; as a tile's number, it has no sets
NOTHING = tl.constexpr((-0x7F800001 << 32) + 15)  # packed: minus infinity and NO_KEY
CHUNK = 16  # entries of a float32 key multiplied at a time, without matrix units
# Second pass: warps, entries of a key read at a time, and whether a program reads as much at once
# as it can, which costs registers and so reduces concurrent programs.
CHOOSE_MANY = (1, 16, False)
CHOOSE_FEW = (4, 32, True)
FEW = 1024  # up to this many queries of all heads count as few
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Tile:
    """How the first pass is cut into programs.

    Attributes:
        rows: queries of a program.
        keys: multiplied at a time; a power of two, 16 or more.
        warps, stages: of a program, and of its pipeline.
        programs: target number, from which the number of parts of the keys follows.
        descriptor: keys are read by the GPU's bulk copies (Hopper and newer) if their alignment
            allows it, not by pointers.
        sets: 1, 2 or 4, among which the keys of a tile are divided in pairs. The first pass holds
            a set's maximum, and the second reads its keys. With 4, each lane of a matrix unit's
            result holds one set, and maxima need no exchange between lanes.
    """

    rows: int
    keys: int
    warps: int
    stages: int
    programs: int
    descriptor: bool = False
    sets: int = 4


def refusal(
    q: Tensor, keys: Tensor, k: int, scales: Tensor | None = None, count: Tensor | None = None
) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    if k > MOST:
        return f"it finds the best {MOST} keys, not {k}"
    kinds = (q.dtype, None) if scales is None else (torch.int8, torch.float16)
    if q.dtype not in DTYPES or (keys.dtype, scales if scales is None else scales.dtype) != kinds:
        scaled = "no scales" if scales is None else f"{scales.dtype} scales"
        return f"it takes no {q.dtype} queries with {keys.dtype} keys and {scaled}"
    if q.shape[-1] > 256:
        return f"head dimension {q.shape[-1]} is over 256"
    if not (q.numel() and keys.numel() and k > 0):
        return "there are no queries, no keys, or none are wanted"
    if count is not None and count.dtype != torch.int64:
        return f"it takes no {count.dtype} count"
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        return "Triton's interpreter multiplies no bfloat16"
    return None


def topk_scan(
    q: Tensor, keys: Tensor, k: int, scales: Tensor | None = None, count: Tensor | None = None,
    tile: Tile | None = None,
) -> Top:  # fmt: skip
    """As defined, for up to 4 keys, cut by `tile`; None: that of `tile_for`."""
    q = q.contiguous()  # queries read where they are cost more in every program than this copy
    keys = keys if keys.stride(-1) == 1 else keys.contiguous()
    k, tile = min(k, len(keys)), tile or tile_for(q, keys)
    return choose(q, keys, k, scales, count, tile, *best_sets(q, keys, k, scales, count, tile))


def tile_for(q: Tensor, keys: Tensor) -> Tile:
    """Sizes that fit registers and shared memory, for many queries or for few."""
    rows, D = q.shape[0] // keys.shape[1] * q.shape[1], padded_head(q)
    if q.dtype == torch.float32:  # no matrix units for exact float32
        return Tile(rows=16 if rows <= 16 else 32, keys=128, warps=8, stages=2, programs=2048)
    stages = 4 if D <= 64 else 3 if D <= 128 else 2
    if rows <= 16:  # decoding: as much in flight as possible
        if keys.dtype == torch.int8:
            return Tile(rows=16, keys=128, warps=2, stages=4, programs=512)
        return Tile(rows=16, keys=128, warps=4, stages=stages, programs=264)
    if rows <= 64:
        return Tile(rows=64, keys=128, warps=4, stages=stages, programs=2048)
    if keys.dtype == torch.int8:
        # Converted keys pass through registers: fewer warps have more of them each, and bulk
        # copies leave more free.
        stages = 4 if D <= 64 else 2
        return Tile(rows=128, keys=128, warps=4, stages=stages, programs=4224, descriptor=True)
    # On Hopper small programs are faster; later GPUs for desktops have less memory for their keys.
    small = starts_early(q.device) and D <= 128
    if small and (3 * 128 + 64) * D * keys.itemsize <= shared_memory(q.device):
        # A program that goes on for longer fills its pipeline less often.
        return Tile(rows=64, keys=128, warps=4, stages=3, programs=528, descriptor=True)
    # Two concurrent programs per multiprocessor are faster than larger tiles.
    keys_at_once = 128 if D <= 64 else 64
    return Tile(rows=128, keys=keys_at_once, warps=8, stages=stages, programs=4224)


def best_sets(
    q: Tensor, keys: Tensor, k: int, scales: Tensor | None, count: Tensor | None, tile: Tile
) -> tuple[Tensor, Tensor, Tensor]:
    """The first pass.

    Returns:
        Each query's k best sets in every part of the keys, int64 (H * T, parts, k), as in
        `_packed`; the initial votes and best scores of the keys.
    """
    (H, T, D), (N, G, _) = q.shape, keys.shape
    R = H // G * T  # rows: the queries of all heads of a group
    across = triton.cdiv(R, tile.rows)
    whole = N // tile.keys  # tiles; the remaining keys go to the last part
    parts = min(max(1, tile.programs // (across * G)), max(1, whole // 4))
    each = triton.cdiv(whole, parts)
    parts = max(1, triton.cdiv(whole, max(1, each)))
    found = torch.empty(H * T, parts, k, dtype=torch.int64, device=q.device)
    votes = torch.empty(N, dtype=torch.int32, device=q.device)
    best = torch.empty(N, dtype=torch.float32, device=q.device)
    descriptor = tile.descriptor and aligned(keys)
    source = bulk_tiles(keys, tile.keys, padded_head(q)) if descriptor else keys
    # Programs that run at the same time read the same keys.
    _best_sets[across, G, parts](
        q, source, q if scales is None else scales, q if count is None else count,
        found, votes, best, N, R, each, *_strides(keys, scales),
        K=k, D=D, SCALED=scales is not None, COUNTED=count is not None, DESCRIPTOR=descriptor,
        CHUNK=CHUNK if q.dtype == torch.float32 else padded_head(q),
        ROWS=tile.rows, KEYS=tile.keys, SETS=tile.sets, BLOCK_D=padded_head(q),
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return found, votes, best


def choose(
    q: Tensor, keys: Tensor, k: int, scales: Tensor | None, count: Tensor | None, tile: Tile,
    found: Tensor, votes: Tensor, best: Tensor,
) -> Top:  # fmt: skip
    """The second pass: the best keys of each query's best sets, and their votes."""
    (H, T, D), (N, G, _) = q.shape, keys.shape
    scores = torch.empty(H, T, k, dtype=torch.float32, device=q.device)
    index = torch.empty(H, T, k, dtype=torch.int64, device=q.device)
    candidates = found.shape[1] * k
    warps, chunk, hurry = CHOOSE_FEW if H * T <= FEW else CHOOSE_MANY
    _choose[H // G * T, G](
        q, keys, q if scales is None else scales, q if count is None else count,
        found, scores, index, votes, best, N, candidates, *_strides(keys, scales),
        K=k, D=D, SCALED=scales is not None, COUNTED=count is not None,
        KEYS=tile.keys, SETS=tile.sets, CANDIDATES=triton.next_power_of_2(candidates),
        CHUNK=min(padded_head(q), chunk), HURRY=hurry, BLOCK_D=padded_head(q),
        num_warps=warps,
    )  # fmt: skip
    return Top(scores, index, votes, best)


def _strides(keys: Tensor, scales: Tensor | None) -> tuple[int, ...]:
    """Strides of keys and scales, by head and by key."""
    by_scale = (0, 0) if scales is None else (scales.stride(1), scales.stride(0))
    return keys.stride(1), keys.stride(0), *by_scale


@triton.jit
def _packed(value, number):
    """A float32 and an int32 as an int64, larger for a larger float, or else a smaller int."""
    bits = tl.where(value == 0, 0.0, value).to(tl.int32, bitcast=True)  # zero has one sign
    image = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # ordered like the floats
    return (image.to(tl.int64) << 32) | (0x7FFFFFFF - number).to(tl.int64)


@triton.jit
def _unpacked(packed):
    """The float32 and the int32."""
    image = (packed >> 32).to(tl.int32)
    bits = tl.where(image < 0, image ^ 0x7FFFFFFF, image)
    number = 0x7FFFFFFF - (packed & 0x7FFFFFFF).to(tl.int32)
    return bits.to(tl.float32, bitcast=True), number


@triton.jit
def _best_of(packed, K: tl.constexpr):
    """(4,): the K largest, in order; the others are NOTHING."""
    place, chosen = tl.arange(0, 4), tl.full((4,), NOTHING, tl.int64)
    for j in tl.static_range(K):
        top = tl.max(packed, 0)
        packed = tl.where(packed == top, NOTHING, packed)
        chosen = tl.where(place == j, top, chosen)
    return chosen


@triton.jit
def _shift(above, above_tile, held, tile, value, number):
    """The entry below `above` after a value of a later tile is inserted in order."""
    place = tl.where(value > held, number, tile)  # on ties the earlier tile stays first
    place = tl.where(value > above, above_tile, place)
    return tl.maximum(held, tl.minimum(above, value)), place


@triton.jit
def _insert(m0, r0, m1, r1, m2, r2, m3, r3, value, number, K: tl.constexpr):
    """The K best, in order, of those held and a new one of a later tile."""
    if K > 3:
        m3, r3 = _shift(m2, r2, m3, r3, value, number)
    if K > 2:
        m2, r2 = _shift(m1, r1, m2, r2, value, number)
    if K > 1:
        m1, r1 = _shift(m0, r0, m1, r1, value, number)
    r0 = tl.where(value > m0, number, r0)
    return tl.maximum(m0, value), r0, m1, r1, m2, r2, m3, r3


@triton.jit
def _loaded(places, first, N, columns, MASKED: tl.constexpr, D: tl.constexpr, KEYS: tl.constexpr):
    """Entries `columns` of keys first..first+KEYS; zeros beyond D, and if MASKED beyond N."""
    if MASKED:
        live = (first + tl.arange(0, KEYS) < N)[:, None] & (columns < D)[None, :]
        return tl.load(places + columns[None, :], mask=live, other=0)
    else:
        return tl.load(places + columns[None, :], mask=(columns < D)[None, :], other=0)


@triton.jit
def _scores(
    q, queries, live, keys, scale, g, first, N, k_head, k_row, MASKED: tl.constexpr,
    SCALED: tl.constexpr, DESCRIPTOR: tl.constexpr, CHUNK: tl.constexpr,
    D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Scores (ROWS, KEYS) of keys first..first+KEYS; if MASKED, -inf beyond N."""
    along, columns = tl.arange(0, KEYS), tl.arange(0, CHUNK)
    if DESCRIPTOR:
        tile = keys.load([g, first, 0]).reshape(KEYS, BLOCK_D)
        scores = tl.dot(queries, tl.trans(tile.to(queries.dtype)))
    else:
        places = keys + g.to(tl.int64) * k_head + tl.cast(first, tl.int64) * k_row
        places = places + along[:, None] * k_row
        if CHUNK == BLOCK_D:
            tile = _loaded(places, first, N, columns, MASKED, D, KEYS)
            scores = tl.dot(queries, tl.trans(tile.to(queries.dtype)), input_precision="ieee")
        else:
            scores = tl.zeros((ROWS, KEYS), tl.float32)
            for start in tl.range(0, BLOCK_D, CHUNK):
                inside = live & (start + columns < D)[None, :]
                part = tl.load(q + start + columns[None, :], mask=inside, other=0.0)
                tile = _loaded(places, first, N, start + columns, MASKED, D, KEYS)
                scores = tl.dot(
                    part, tl.trans(tile.to(part.dtype)), scores, input_precision="ieee"
                )  # fmt: skip
    if SCALED:
        scores *= scale.to(tl.float32)[None, :]
    if MASKED:
        scores = tl.where((first + along < N)[None, :], scores, -float("inf"))
    return scores


@triton.jit
def _hold(
    m0, r0, m1, r1, m2, r2, m3, r3, scores, number,
    K: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, SETS: tl.constexpr,
):  # fmt: skip
    """The best tiles of each set, (ROWS, SETS), updated with a tile of scores."""
    # Key c is in set c // 2 % SETS.
    scores = scores.reshape(ROWS, KEYS // (2 * SETS), SETS, 2)
    value = tl.max(tl.max(scores, 3), 1)
    number += tl.zeros((ROWS, SETS), tl.int32)
    return _insert(m0, r0, m1, r1, m2, r2, m3, r3, value, number, K)


@triton.jit
def _pop(m0, r0, m1, r1, m2, r2, m3, r3, K: tl.constexpr, SETS: tl.constexpr):
    """Removes the best tile from the lists of its sets; returns it packed with their bits (ROWS,).

    Keys of different sets of a tile are not ordered: sets with equal maxima are all taken.
    """
    value = tl.max(m0, 1)
    number = tl.min(tl.where(m0 == value[:, None], r0, NO_TILE), 1)
    taken = (m0 == value[:, None]) & (r0 == number[:, None])
    bits = tl.sum(tl.where(taken, 1 << tl.arange(0, SETS)[None, :], 0), 1)
    bits = tl.where(value > -float("inf"), bits, 0)  # of no tile, no set
    m0, r0 = tl.where(taken, m1, m0), tl.where(taken, r1, r0)
    if K > 2:
        m1, r1 = tl.where(taken, m2, m1), tl.where(taken, r2, r1)
    if K > 3:
        m2, r2 = tl.where(taken, m3, m2), tl.where(taken, r3, r2)
    return _packed(value, (number << SETS) | bits), m0, r0, m1, r1, m2, r2


@triton.jit
def _clear(votes, best, N):
    """Clears votes and scores of every key, shared among the programs."""
    program = tl.program_id(0) + tl.num_programs(0) * (
        tl.program_id(1) + tl.num_programs(1) * tl.program_id(2)
    )
    programs = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2)
    along = tl.arange(0, 1024)
    for start in tl.range(program * 1024, N, programs * 1024):
        tl.store(votes + start + along, tl.zeros((1024,), tl.int32), mask=start + along < N)
        none = tl.full((1024,), -float("inf"), tl.float32)
        tl.store(best + start + along, none, mask=start + along < N)


# Not specialised to the numbers of keys and queries, which change with every call.
@triton.jit(do_not_specialize=["N", "R", "each"])
def _best_sets(
    q, keys, scales, count, found, votes, best, N, R, each, k_head, k_row, s_head, s_row,
    K: tl.constexpr, D: tl.constexpr, SCALED: tl.constexpr, COUNTED: tl.constexpr,
    DESCRIPTOR: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    SETS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    _clear(votes, best, N)
    g, part, parts = tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    if COUNTED:
        N = tl.load(count).to(tl.int32)
        each = tl.cdiv(N // KEYS, parts)
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK_D)
    row, live = g.to(tl.int64) * R + rows, (rows < R)[:, None]
    q += row[:, None] * D
    queries = q
    if CHUNK == BLOCK_D:  # else they are read again for every tile
        queries = tl.load(q + columns[None, :], mask=live & (columns < D)[None, :], other=0.0)

    none = tl.full((ROWS, SETS), -float("inf"), tl.float32)
    no_tile = tl.full((ROWS, SETS), NO_TILE, tl.int32)
    m0, r0, m1, r1, m2, r2, m3, r3 = none, no_tile, none, no_tile, none, no_tile, none, no_tile
    # A part may be empty where only the device counts, but for keys after the last whole tile.
    start = tl.minimum(part * each, N // KEYS)
    stop = tl.minimum(start + each, N // KEYS)
    # Each tile's scales are read while the previous tile is computed.
    along = tl.arange(0, KEYS)
    places = scales + g.to(tl.int64) * s_head + along.to(tl.int64) * s_row
    scale = along
    if SCALED:
        places += (start * KEYS).to(tl.int64) * s_row
        scale = tl.load(places, mask=start * KEYS + along < N, other=0.0)
    for number in tl.range(start, stop):
        first, ahead = number * KEYS, scale
        if SCALED:
            places += KEYS * s_row
            ahead = tl.load(places, mask=first + KEYS + along < N, other=0.0)
        scores = _scores(
            q, queries, live, keys, scale, g, first, N, k_head, k_row, False, SCALED, DESCRIPTOR,
            CHUNK, D, ROWS, KEYS, BLOCK_D,
        )  # fmt: skip
        m0, r0, m1, r1, m2, r2, m3, r3 = _hold(
            m0, r0, m1, r1, m2, r2, m3, r3, scores, number, K, ROWS, KEYS, SETS
        )  # fmt: skip
        scale = ahead
    if (part == parts - 1) & (N % KEYS != 0):
        first = stop * KEYS
        scores = _scores(
            q, queries, live, keys, scale, g, first, N, k_head, k_row, True, SCALED, DESCRIPTOR,
            CHUNK, D, ROWS, KEYS, BLOCK_D,
        )  # fmt: skip
        m0, r0, m1, r1, m2, r2, m3, r3 = _hold(
            m0, r0, m1, r1, m2, r2, m3, r3, scores, stop, K, ROWS, KEYS, SETS
        )  # fmt: skip

    found += (row * parts + part) * K
    for j in tl.static_range(K):
        packed, m0, r0, m1, r1, m2, r2 = _pop(m0, r0, m1, r1, m2, r2, m3, r3, K, SETS)
        tl.store(found + j, packed, mask=rows < R)


@triton.jit
def _keys_of(tile, left, N, KEYS: tl.constexpr, SETS: tl.constexpr):
    """The keys of one of the sets left (bits) of each tile; NO_KEY where none is left."""
    bit = left & -left
    which = tl.zeros_like(bit)
    for i in tl.static_range(1, SETS):
        which += (bit >> i > 0).to(tl.int32)
    along = tl.arange(0, KEYS // SETS)
    key = tile * KEYS + 2 * which
    key = key[:, None] + (along // 2 * (2 * SETS) + along % 2)[None, :]
    key = tl.where((bit > 0)[:, None] & (key < N), key, NO_KEY)
    return key.reshape(4 * KEYS // SETS), left - bit


@triton.jit
def _rescored(
    q, keys, key, k_row, N,
    CHUNK: tl.constexpr, HURRY: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """q·k of these keys, summed in float32; arbitrary for NO_KEY."""
    columns = tl.arange(0, CHUNK)
    places = keys + tl.where(key < N, key, 0).to(tl.int64)[:, None] * k_row + columns[None, :]
    products = tl.zeros((key.shape[0], CHUNK), tl.float32)
    ahead = tl.load(places, mask=(columns < D)[None, :], other=0)
    for start in tl.static_range(0, BLOCK_D, CHUNK):
        inside, tile = start + columns < D, ahead
        if start + CHUNK < BLOCK_D:
            later = start + CHUNK + columns < D
            ahead = tl.load(places + start + CHUNK, mask=later[None, :], other=0)
        part = tl.load(q + start + columns, mask=inside, other=0.0).to(tl.float32)
        if HURRY:  # else the compiler delays reads to save registers
            tl.debug_barrier()
        products += tile.to(tl.float32) * part[None, :]
    return tl.sum(products, 1)


@triton.jit(do_not_specialize=["N", "candidates"])
def _choose(
    q, keys, scales, count, found, scores, index, votes, best,
    N, candidates, k_head, k_row, s_head, s_row,
    K: tl.constexpr, D: tl.constexpr, SCALED: tl.constexpr, COUNTED: tl.constexpr,
    KEYS: tl.constexpr, SETS: tl.constexpr, CANDIDATES: tl.constexpr, CHUNK: tl.constexpr,
    HURRY: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    if COUNTED:
        N = tl.load(count).to(tl.int32)
    # A head's rows run together: they read the same keys.
    g = tl.program_id(1).to(tl.int64)
    row = g * tl.num_programs(0) + tl.program_id(0)
    q, keys, scales = q + row * D, keys + g * k_head, scales + g * s_head
    each = tl.arange(0, CANDIDATES)
    seen = tl.load(found + row * candidates + each, mask=each < candidates, other=NOTHING)
    _, number = _unpacked(_best_of(seen, K))
    tile, left = number >> SETS, number & ((1 << SETS) - 1)

    kept = tl.full((4,), NOTHING, tl.int64)
    while tl.max(left, 0) > 0:  # once, unless sets of a tile have equal maxima
        key, left = _keys_of(tile, left, N, KEYS, SETS)
        score = _rescored(q, keys, key, k_row, N, CHUNK, HURRY, D, BLOCK_D)
        if SCALED:
            scale = tl.load(scales + key.to(tl.int64) * s_row, mask=key < N, other=0.0)
            score *= scale.to(tl.float32)
        packed = tl.where(key < N, _packed(score, key), NOTHING)
        kept = _best_of(tl.join(kept, _best_of(packed, K)).reshape(8), K)

    score, key = _unpacked(kept)
    place = tl.arange(0, 4)
    tl.store(scores + row * K + place, score, mask=place < K)
    tl.store(index + row * K + place, key.to(tl.int64), mask=place < K)
    # Only a NaN query has no chosen key.
    chosen = (place < K) & (key < N)
    tl.atomic_add(votes + key, 1, mask=chosen, sem="relaxed")
    tl.atomic_max(best + key, score, mask=chosen, sem="relaxed")
