"""`make bench-scale`: what it costs to count many packets of one vehicle each.

Two plans: one with few different packets, which Parquet stores as a dictionary, and one whose
packets nearly all differ. Each way of counting runs in a process of its own, so that its peak of
memory is its own.
"""

import os
import resource
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fedldp.plan.strategies import Sample

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is imported, here and in each process

import harness
import numpy as np
import pages
import pyarrow as pa
from harness import shown
from pages import Table
from pyarrow import parquet
from rich.progress import track

import fedldp
from fedldp._internal import packing
from fedldp._internal.packets import Packets
from fedldp.plan.parts import Matrix
from fedldp.plan.report import HEADER

PACKETS = 10_000_000  # in files
IN_MEMORY = 1_000_000
BY_ITSELF = 2_000  # through `parse` and `+`
SHARD = 5_000_000
BATCH = 1 << 16
DIMENSIONS = 94
CORES = 2


class Ways(NamedTuple):
    alone: float  # seconds for a packet
    in_list: float
    in_column: float


class Counted(NamedTuple):
    seconds: float
    processor: float  # seconds of all cores
    memory: float  # MiB at the most
    disk: int  # bytes


def plan(k: int) -> fedldp.Plan:
    schema = fedldp.Schema.vector(DIMENSIONS, bound=1.0)
    return fedldp.Plan(schema, 2.0 * k, Sample(k=k, mechanism="three-outputs"))


def packets(asked: fedldp.Plan, count: int, seed: int) -> np.ndarray:
    """Return packets of one vehicle each, in rows of bytes."""
    head = fedldp.Report(asked.fingerprint, asked.bits, 1, b"").to_bytes()[:-4]
    rows = np.empty((count, HEADER + packing.length(1, asked.bits)), np.uint8)
    source = fedldp.source(seed)
    rows[:, : len(head)] = np.frombuffer(head, np.uint8)
    for start in range(0, count, BATCH):
        part = rows[start : start + BATCH]
        records = asked.records(Matrix(np.zeros((len(part), DIMENSIONS))), source).split()
        found = Packets.of(records)
        part[:, HEADER:] = found.data.reshape(len(part), -1)
        sums = found.checksums(0, len(records[0]), zlib.crc32(head))
        part[:, len(head) : HEADER] = sums.astype(">u4").view(np.uint8).reshape(-1, 4)
    return rows


def column(rows: np.ndarray) -> pa.Array:
    """Return packets as a binary column."""
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(rows.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers)


def write(folder: Path, k: int, count: int) -> None:
    for number, start in enumerate(range(0, count, SHARD)):
        rows = packets(plan(k), min(SHARD, count - start), seed=number)
        table = pa.table({"packet": column(rows)})
        parquet.write_table(table, folder / f"part-{number:04}.parquet")


def in_memory(k: int, count: int, alone: int) -> Ways:
    asked = plan(k)
    given = column(packets(asked, count, seed=1))
    listed = given.to_pylist()
    expected = asked.count(given).tally

    def one_by_one() -> None:
        total = asked.tally()
        for packet in listed[:alone]:
            total += asked.parse(packet)

    def at_once(data: Any) -> Callable[[], None]:
        def count_all() -> None:
            if asked.count(data).tally != expected:
                raise SystemExit("the tallies differ")

        return count_all

    ways = {"alone": one_by_one, "list": at_once(listed), "column": at_once(given)}
    times = harness.interleaved(ways, turns=5)
    each = {name: float(np.median(found)) for name, found in times.items()}
    return Ways(each["alone"] / alone, each["list"] / count, each["column"] / count)


def in_files(folder: str, k: int, count: int) -> Counted:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    pa.set_cpu_count(CORES)
    asked, start = plan(k), time.perf_counter()
    found = asked.count(folder)
    seconds = time.perf_counter() - start
    if found.packets != count or found.refused:
        raise SystemExit(f"expected {count} packets; got {found}")
    used = resource.getrusage(resource.RUSAGE_SELF)
    disk = sum(path.stat().st_size for path in Path(folder).iterdir())
    return Counted(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, disk)


def measure(count: int, parent: Path | None) -> list[Table]:
    ways, files = [], []
    for k in track((1, 4), "Measuring", transient=True):
        bits, size = plan(k).bits, packets(plan(k), 1, seed=1).shape[1]
        found = harness.in_new_process(in_memory, k, min(count, IN_MEMORY), BY_ITSELF)
        cells = (f"{shown(1e6 * each)} µs" for each in found)
        faster = f"{found.alone / found.in_column:,.0f}"
        ways.append((f"{bits} bits, {size} bytes", *cells, faster))
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            harness.in_new_process(write, Path(folder), k, count)
            counted = harness.in_new_process(in_files, folder, k, count)
        files.append(
            (
                f"{bits} bits, {size} bytes",
                f"{count:,}",
                f"{shown(counted.disk / count)} bytes",
                f"{counted.seconds:.1f} s",
                f"{shown(counted.processor / count * 1e9)} ns",
                f"{counted.memory:.0f} MiB",
            )
        )
    return [
        Table(
            "One core: a packet of one vehicle",
            ("packet", "`parse` and `+`", "`count`, list", "`count`, column", "times as fast"),
            ways,
        ),
        Table(
            f"Parquet files, on a machine with {CORES} cores",
            ("packet", "packets", "on disk, each", "time", "processor time, each", "peak memory"),
            files,
        ),
    ]


def main() -> None:
    parser = pages.options(__doc__ or "")
    parser.add_argument("--packets", type=int, default=PACKETS, help="how many in files")
    parser.add_argument("--folder", type=Path, help="where to write them for a while")
    chosen = parser.parse_args()
    where = f"{pages.machine('pyarrow')}; {pages.busy()}"
    pages.publish("scale", measure(chosen.packets, chosen.folder), where, chosen.write)


if __name__ == "__main__":
    main()
