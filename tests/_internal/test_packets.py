"""Many packets in one buffer: their fields, bytes and checksums are those of each of them."""

import random
import zlib

import numpy as np
import pytest

from fedldp._internal import packets
from fedldp._internal.packets import Packets


def some(count, size, seed=1):
    rng = random.Random(seed)
    return [rng.randbytes(size) for _ in range(count)]


def scattered(pieces):
    """Return the same packets out of order, with other bytes around and between them."""
    order = random.Random(2).sample(range(len(pieces)), len(pieces))
    whole, starts = b"?", [0] * len(pieces)
    for number in order:
        starts[number] = len(whole)
        whole += pieces[number] + b"?" * (number % 3)
    lengths = np.array([len(piece) for piece in pieces])
    return Packets(np.frombuffer(whole, np.uint8), np.array(starts), lengths)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 8, 9, 31, 127, 128, 129, 300])
@pytest.mark.parametrize("made", [Packets.of, scattered])
def test_checksums_are_those_of_zlib(size, made):
    pieces = some(20, 5 + size)
    for before in (0, zlib.crc32(b"head"), 0xFFFFFFFF):
        expected = [zlib.crc32(piece[5:], before) for piece in pieces]
        assert made(pieces).checksums(5, size, before).tolist() == expected


@pytest.mark.parametrize("size", [1, 8, 9, 40])
@pytest.mark.parametrize("made", [Packets.of, scattered])
@pytest.mark.parametrize("count", [1, 2, 20])
def test_fields_and_bytes(size, made, count):
    pieces = some(count, 8 + size)
    found = made(pieces)
    assert [bytes(row) for row in found.octets(8, size)] == [piece[8:] for piece in pieces]
    numbers = [int.from_bytes(piece[4:8], "big") for piece in pieces]
    assert found.field(4, ">u4").tolist() == numbers
    rows = np.arange(0, count, 3)
    assert found.take(rows).field(4, ">u4").tolist() == numbers[::3]


def test_no_packets():
    nothing = Packets.of([])
    assert (len(nothing), list(nothing.chunks())) == (0, [])
    assert nothing.field(0, "<u8").size == nothing.field(8, ">u4").size == 0
    assert nothing.octets(16, 3).shape == (0, 3)
    assert nothing.octets(16, 30).shape == (0, 30)
    assert nothing.checksums(16, 3, 0).size == 0


def test_chunks_are_small_and_hold_all_packets_in_order(monkeypatch):
    monkeypatch.setattr(packets, "_CHUNK_PACKETS", 7)
    monkeypatch.setattr(packets, "_CHUNK_BYTES", 100)
    rng = random.Random(1)
    pieces = [rng.randbytes(rng.choice([0, 1, 9, 30, 250])) for _ in range(200)]
    chunks = [chunk for _, chunk in Packets.of(pieces).chunks()]
    starts = [start for start, _ in Packets.of(pieces).chunks()]
    assert starts == np.cumsum([0, *map(len, chunks)])[:-1].tolist()
    assert all(
        len(chunk) == 1 or (len(chunk) <= 7 and chunk.lengths.sum() <= 100) for chunk in chunks
    )
    found = [
        chunk.data[start : start + length].tobytes()
        for chunk in chunks
        for start, length in zip(chunk.starts, chunk.lengths, strict=True)
    ]
    assert found == pieces
