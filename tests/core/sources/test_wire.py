"""Frames: what goes in comes out, and nothing that is no frame, or a large one, is taken."""

import io
import json
import struct

import pytest

from longctx.core.sources import wire


def framed(head: bytes, data: bytes = b"") -> io.BytesIO:
    return io.BytesIO(struct.pack(">II", len(head), len(data)) + head + data)


def test_frames_come_out_as_they_went_in():
    pipe = io.BytesIO()
    frames = [({"a": ["\udc80", 1, None]}, b""), ({}, bytes(range(256)) * 9)]
    for frame in frames:
        wire.write(pipe, *frame)
    pipe.seek(0)
    assert [wire.read(pipe) for _ in frames] == frames
    with pytest.raises(EOFError):
        wire.read(pipe)


def test_the_largest_frames_are_taken_and_larger_ones_are_not_read():
    for head, data in [(wire.TOLD, 0), (2, wire.DATA)]:
        told = json.dumps("x" * (head - 9)).join(['{"a":', "}"]) if head > 2 else "{}"
        assert len(told) <= head
        assert len(wire.read(framed(told.encode(), bytes(data)))[1]) == data
    for sizes in [(wire.TOLD + 1, 0), (2, wire.DATA + 1)]:
        with pytest.raises(wire.Broken, match="too large"):
            wire.read(io.BytesIO(struct.pack(">II", *sizes)))


@pytest.mark.parametrize("head", [b"", b"[]", b"1", b"{", b"\xff", b"[" * 100_000, b"NaN"])
def test_what_is_no_object_is_refused(head):
    with pytest.raises(wire.Broken):
        wire.read(framed(head))
