"""Changes of values, texts and bytes, drawn from a `random.Random`: the same draw, the same change.

`Drawn` is such a one whose draws are bytes that somebody else chooses, as `guided.py` does: so what
coverage leads is the structure of a case, and not its bytes alone.
"""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

NUMBERS = [
    *(0, 1, -1, 2, 3, 63, 64, 65, 255, 256, 65_535, 65_536, 1 << 20, (1 << 20) + 1, 2**31 - 1),
    *(2**31, 2**32, 2**53 + 1, 2**60, 2**63 - 1, 2**63, -(2**31) - 1, -(2**63), -(2**63) - 1),
    *(10**18, 10**30, -(10**30), 10**400),
]
FLOATS = [0.0, -0.0, 0.5, -1.5, 1e-320, 1e308, -1e308, float("nan"), float("inf"), -float("inf")]
TEXTS = [
    *(
        "",
        " ",
        "\0",
        "\n",
        "\x1b[31m",
        "\x1b]8;;http://x\x1b\\",
        "\x9b2J",
        "\u202e",
        "\u2028",
        "\r",
    ),
    *("\ud800", "\udcff", "\U0010ffff", "\ufffe", "e\u0301", "é", "..", "/", "../../x", "C:\\x"),
    *("~", "a b", "; touch x #", "$(touch x)", "%s%n{0}", "[red]x[/red]", "-", "--all", "None"),
    *("true", "0", "1e999", "NaN", "x" * 300, "a/" * 600, "<|bos|>", "{question}"),
]
BYTES = [
    *(b"", b"\0", b"\xff", b"\n", b"\x1b[31m", b"\xed\xa0\x80", b"\xc0\x80", b"\xef\xbb\xbf"),
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b'"\\ud800"', b"null", b"-", b"1e999"),
    *(b"NaN", b"Infinity", b"-1", b"9" * 40, b"9" * 5000, b"[" * 3000, b'{"a":' * 1500, b"0.5"),
    *(
        b'"x":1,',
        b"\0" * 8,
        b"\xff" * 8,
        b" " * 64,
        b"/",
        b"..",
        b"# ",
        b"'",
        b"'''",
        b"- ",
        b"&a ",
    ),
    *(b"*a ", b"!!python/object:x ", b"? ", b"<<: ", b"%YAML 9\n", b"---\n", b"...\n", b"\t"),
]


class Drawn(random.Random):
    """Draws that are bits of given bytes; behind their end they are zero.

    Args:
        data: the bytes.
    """

    def __init__(self, data: bytes):
        super().__init__(0)
        self._data, self._at = data, 0

    def getrandbits(self, k: int) -> int:
        """The next k bits, rounded up to bytes."""
        count = -(-k // 8)
        piece = self._data[self._at : self._at + count].ljust(count, b"\0")
        self._at += count
        return int.from_bytes(piece, "little") >> (8 * count - k) if k else 0

    def random(self) -> float:
        """Of 16 bits: more would be wasted."""
        return self.getrandbits(16) / 65536


def seldom(rng: random.Random, one_in: int) -> bool:
    """Whether it is time for what is done once in so many cases."""
    return rng.randrange(one_in) == one_in - 1


def text(rng: random.Random) -> str:
    """Some text, hostile or plain."""
    kind = rng.randrange(6)
    if kind < 3:
        return rng.choice(TEXTS)
    if kind == 3:
        return "".join(map(chr, (rng.randrange(1, 0x2FF) for _ in range(rng.randrange(8)))))
    if kind == 4:
        return rng.choice(TEXTS) + rng.choice(TEXTS)
    return "ab" * rng.choice([1, 20, 100, 101, 5000]) if seldom(rng, 8) else rng.choice("abxyz")


def value(rng: random.Random, depth: int = 0) -> Any:
    """Some value that JSON can hold, NaN and halves of characters included."""
    kind = rng.randrange(12)
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind < 7:
        return text(rng)
    if kind == 7:
        return rng.choice([None, True, False, [], {}, [[]], [None], ""])
    if kind == 8:
        return rng.choice(FLOATS)
    if kind == 9 and depth < 3:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 10 and depth < 3:
        return {text(rng): value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return nested(rng) if seldom(rng, 8) else rng.randrange(-8, 300)


def nested(rng: random.Random) -> Any:
    """Lists or mappings in one another."""
    found: Any = 0
    for _ in range(rng.choice([5, 33, 100, 400])):
        found = [found] if rng.random() < 0.5 else {"a": found}
    return found


def near(rng: random.Random, old: Any) -> Any:
    """A value that is nearly the old one."""
    if isinstance(old, bool) or old is None:
        return rng.choice([True, False, None, 0, 1])
    if isinstance(old, int):
        some = float(old) if abs(old) < 2**63 else 1e18
        return rng.choice([old + 1, old - 1, -old, 2 * old, old << 32, some, str(old)])
    if isinstance(old, float):
        return rng.choice([-old, old * 1e300, int(old) if abs(old) < 1e300 else 0, str(old)])
    if isinstance(old, str):
        at, new = rng.randrange(len(old) + 1), rng.choice(TEXTS)
        return rng.choice([old[:at] + new + old[at:], old[:at], new + old[at:], old * 2])
    if isinstance(old, list):
        extra = [rng.choice(old)] if old else [None]
        return rng.choice([old[1:], old[:-1], old + extra, old[::-1], old * 2, dict.fromkeys("ab")])
    if isinstance(old, dict):
        items = list(old.items())
        rng.shuffle(items)
        return rng.choice([dict(items[1:]), {**old, text(rng): value(rng)}, items, list(old)])
    return value(rng)


def mutated(rng: random.Random, whole: Any) -> Any:
    """The same with one place changed, taken away or put elsewhere; nothing is changed in place."""
    if isinstance(whole, dict | list) and whole and not seldom(rng, 6):
        copy = dict(whole) if isinstance(whole, dict) else list(whole)
        at = rng.choice(list(copy)) if isinstance(copy, dict) else rng.randrange(len(copy))
        if seldom(rng, 12):
            del copy[at]
        elif seldom(rng, 12):
            other = rng.choice(list(copy)) if isinstance(copy, dict) else rng.randrange(len(copy))
            copy[at], copy[other] = copy[other], copy[at]
        else:
            copy[at] = mutated(rng, copy[at])
        return copy
    return near(rng, whole) if rng.random() < 0.5 else value(rng)


def edited(
    rng: random.Random, data: bytes, tokens: Sequence[bytes] = BYTES, most: int = 4
) -> bytes:
    """Bytes with a few places changed."""
    for _ in range(rng.randint(1, most)):
        data = rng.choice(_EDITS)(rng, data, tokens)
    return data


def _flip(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _insert(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(tokens) + data[at:]


def _put(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    at, new = rng.randrange(len(data) + 1), rng.choice(tokens)
    return data[:at] + new + data[at + len(new) :]


def _cut(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.choice([1, 2, 8, 64, 512]) :]


def _repeat(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[max(0, at - 40) : at] * rng.choice([1, 3, 30]) + data[at:]


def _end(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _number(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    size = rng.choice([1, 2, 4, 8])
    at, new = rng.randrange(len(data) + 1), rng.choice(NUMBERS) & ((1 << 8 * size) - 1)
    return data[:at] + new.to_bytes(size, rng.choice(["little", "big"])) + data[at + size :]


def _move(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    first, at = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
    return data[:at] + data[first : first + rng.choice([4, 30, 200])] + data[at:]


_EDITS: list[Callable[[random.Random, bytes, Sequence[bytes]], bytes]] = [
    *(_flip, _insert, _put, _cut, _repeat, _end, _number, _move),
    *(_flip, _insert, _put, _number),
]


def json_text(whole: Any) -> str:
    """JSON as a manifest is written, but also of what JSON should not have."""
    return json.dumps(whole, sort_keys=False, indent=1) + "\n"
