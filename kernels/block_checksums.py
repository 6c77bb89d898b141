"""Checksums of blocks of memory, in Triton: XXH3 with 128 bits, as its specification has it.

https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, "XXH3 Algorithm", inputs of more
than 240 bytes, with seed 0. A block is read in stripes of 64 bytes, eight lanes of 64 bits, and 16
stripes are summed before the lanes are scrambled. One program reads one block; the few operations
at the end are the host's. `block_checksums_ref.py` is the definition.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from longctx.kernels.launch import tl, triton

LEAST = 241  # bytes of a block; shorter inputs have other rules
LANES, STRIPES = 8, 16  # of 64 bits in a stripe; stripes that are summed
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825a"
    "d07dccff7221b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897"
    "a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d978"
    "7364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc"
    "8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
PRIME32 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
PRIME64 = (
    *(0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9),
    *(0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5),
)
BEGIN = PRIME32[2], *PRIME64[:4], PRIME32[1], PRIME64[4], PRIME32[0]  # of the lanes
LOW = (1 << 32) - 1
# Where the table of words has them:
_KEYS, _LAST = tl.constexpr(8), tl.constexpr(32)
_MORE = tl.constexpr(40)


def refusal(memory: Tensor, starts: Sequence[int], size: int) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    if size < LEAST or size % 64:
        return f"blocks of {size} bytes"
    aligned = memory.is_contiguous() and memory.data_ptr() % 8 == memory.storage_offset() % 8 == 0
    if not aligned or any(start % 8 for start in starts):
        return "blocks do not begin at words of 64 bits"
    return None


def block_checksums(memory: Tensor, starts: Sequence[int], size: int) -> Tensor:
    """As defined."""
    lanes = torch.empty(len(starts), LANES, dtype=torch.int64, device=memory.device)
    if starts:
        begins = torch.tensor(starts, device=memory.device) // 8
        words = memory[: len(memory) // 8 * 8].view(torch.int64)
        _lanes[len(starts),](words, begins, lanes, _table(memory.device), SIZE=size, num_warps=1)
    return _merged(lanes.cpu().numpy().view(np.uint64), size)


@cache
def _table(device: torch.device) -> Tensor:
    """Words: the lanes' begin, the secret, its words for the last stripe, and two numbers."""
    last = np.frombuffer(SECRET[len(SECRET) - 64 - 7 :][:64], "<u8")
    given = np.array(BEGIN, np.uint64), np.frombuffer(SECRET, "<u8"), last
    words = np.concatenate([*given, np.array([PRIME32[0], LOW], np.uint64)])
    return torch.from_numpy(words.view(np.int64)).to(device)


@triton.jit
def _word(words, place, mask):
    return tl.load(words + place, mask=mask, other=0).to(tl.uint64, bitcast=True)


@triton.jit
def _summed(words, place, lane, key, low, mask):
    """What stripes add to the lanes: their words, and the products of halves of keyed words."""
    keyed = _word(words, place + lane, mask) ^ key
    return _word(words, place + (lane ^ 1), mask) + (keyed & low) * (keyed >> 32)


@triton.jit
def _lanes(words, starts, lanes, table, SIZE: tl.constexpr):
    """The lanes (count, 8) after all stripes of each block."""
    WHOLE: tl.constexpr = (SIZE - 1) // 1024  # times that 16 stripes are followed by a scramble
    REST: tl.constexpr = (SIZE - 1 - WHOLE * 1024) // 64
    block = tl.program_id(0).to(tl.int64)
    words += tl.load(starts + block)
    lane, stripe = tl.arange(0, 8), tl.arange(0, 16)[:, None]
    every = stripe < 16
    prime, low = (
        _word(table, _MORE + lane * 0, lane < 8),
        _word(table, _MORE + 1 + lane * 0, lane < 8),
    )
    key = _word(table, _KEYS + stripe + lane[None, :], every)
    scramble = _word(table, _KEYS + 16 + lane, lane < 8)
    state = _word(table, lane, lane < 8)
    for n in range(WHOLE):
        place = n * 128 + stripe * 8
        state += tl.sum(_summed(words, place, lane[None, :], key, low[None, :], every), axis=0)
        state = ((state ^ (state >> 47)) ^ scramble) * prime
    place = WHOLE * 128 + stripe * 8
    some = stripe < REST
    rest = _summed(words, place, lane[None, :], key, low[None, :], some)
    state += tl.sum(tl.where(some, rest, low[None, :] * 0), axis=0)
    key = _word(table, _LAST + lane, lane < 8)
    state += _summed(words, SIZE // 8 - 8, lane, key, low, lane < 8)
    tl.store(lanes + block * 8 + lane, state.to(tl.int64, bitcast=True))


def _merged(lanes: np.ndarray, size: int) -> Tensor:
    """The checksums (count, 2) of lanes (count, 8) uint64."""
    wrap = (1 << 64) - 1
    begins = ~(size * PRIME64[1]) & wrap, size * PRIME64[0] & wrap
    found = np.empty((len(lanes), 2), np.uint64)
    for column, (begin, place) in enumerate(zip(begins, (len(SECRET) - 64 - 11, 11), strict=True)):
        keyed = lanes ^ np.frombuffer(SECRET[place:][:64], "<u8")
        total = _folded(keyed[:, ::2], keyed[:, 1::2]).sum(axis=1, dtype=np.uint64)
        found[:, column] = _avalanche(total + np.uint64(begin))
    return torch.from_numpy(found.view(np.int64))


def _folded(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Upper and lower half of the products of 128 bits, combined."""
    low, half = np.uint64(LOW), np.uint64(32)
    across = (a >> half) * (b & low), (a & low) * (b >> half)
    lowest = (a & low) * (b & low)
    middle = (lowest >> half) + (across[0] & low) + across[1]
    upper = (across[0] >> half) + (middle >> half) + (a >> half) * (b >> half)
    return upper ^ ((middle << half) | (lowest & low))


def _avalanche(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(37))) * np.uint64(0x165667919E3779F9)
    return x ^ (x >> np.uint64(32))
