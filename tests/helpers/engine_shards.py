"""Files of packets for the engines: Parquet and plain, with bad packets of every kind."""

import random
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import fedldp
from fedldp import Plan, Schema
from fedldp.plan.parts import Matrix
from fedldp.plan.strategies import Sample

PLAN = Plan(Schema.vector(94, bound=1.0), 8.0, Sample(k=4, mechanism="three-outputs"))
OTHER = Plan(Schema.vector(94, bound=1.0), 2.0, Sample(k=1, mechanism="three-outputs"))
SHARDS = 40  # more than are merged at once, twice over


def packets(plan: Plan, count: int, seed: int) -> list[bytes]:
    """Return packets of one vehicle each."""
    rows = Matrix(np.zeros((count, plan.schema.dimensions)))
    records = plan.records(rows, fedldp.source(seed)).split()
    return [fedldp.Report(plan.fingerprint, plan.bits, 1, each).to_bytes() for each in records]


def with_bad_ones(given: list[bytes], seed: int) -> list[bytes | None]:
    """Return packets of which some are damaged, missing, or of another plan."""
    rng, found = random.Random(seed), list[bytes | None](given)
    for place in rng.sample(range(len(given)), len(given) // 10):
        packet = bytearray(given[place])
        packet[rng.randrange(len(packet))] ^= 1 << rng.randrange(8)
        found[place] = rng.choice([None, b"", bytes(packet), bytes(packet[:-1])])
    head = given[0][:12]
    unknown = b"\xff" * (len(given[0]) - 16)  # codes that the plan does not have
    found[-1] = packets(OTHER, 1, seed)[0]
    found[0] = head + zlib.crc32(head + unknown).to_bytes(4, "big") + unknown
    return found


def write(folder: Path, shards: int = SHARDS, size: int = 200) -> list[bytes | None]:
    """Write files, and return all their packets."""
    every: list[bytes | None] = []
    for number in range(shards):
        given = with_bad_ones(packets(PLAN, size, number), number)
        day = folder / f"day={number % 3}"
        day.mkdir(parents=True, exist_ok=True)
        table = pa.table({"id": range(size), "packet": pa.array(given, pa.binary())})
        parquet.write_table(table, day / f"part-{number:03}.parquet")
        every += given
    good = packets(PLAN, 50, shards)
    (folder / "plain.bin").write_bytes(b"".join(good))
    (folder / "empty.bin").touch()
    return every + good
