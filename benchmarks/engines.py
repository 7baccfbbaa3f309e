"""`make bench-engines`: what it costs to count packets on each engine, and how Dask grows.

Packets of one vehicle each, in Parquet files. An engine is started first and counts a few files, so
that the figures are about counting. One worker and two take turns, which a load that comes and goes
meets alike. "At best" is what two workers would give that divide their processor time evenly: it
does not depend on what else the machine does.
"""

import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is imported, here and in each process
os.environ["PYSPARK_PYTHON"] = sys.executable

import harness
import numpy as np
import pages
import scale
from harness import shown
from pages import Table
from rich.progress import track

import fedldp
from fedldp import Counted

PACKETS = 10_000_000
SHARD = 250_000
TURNS = 5
CORES = 2
DASK = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}

Count = Callable[[], Counted]


class Turn(NamedTuple):
    seconds: float
    processor: float  # seconds of all workers together


# Dask, from one worker to two


def dask_turn(clients: dict[int, Any], workers: int, folder: str, plan: fedldp.Plan) -> Turn:
    from fedldp.counting.engines import dask

    client = clients[workers]
    with client.as_current():
        before = client.run(time.process_time)
        start = time.perf_counter()
        found = dask.count_files(plan, folder)
        seconds = time.perf_counter() - start
        after = client.run(time.process_time)
    check(found, folder)
    return Turn(seconds, sum(after[worker] - before[worker] for worker in after))


def dask_growth(folder: str, k: int, turns: int) -> dict[int, list[Turn]]:
    from distributed import Client, LocalCluster

    plan, clients = scale.plan(k), {}
    for workers in (1, CORES):
        cluster = LocalCluster(n_workers=workers, **DASK)
        clients[workers] = Client(cluster, set_as_default=False)
    found: dict[int, list[Turn]] = {workers: [] for workers in clients}
    for turn in range(turns + 1):
        for workers in sorted(clients, reverse=bool(turn % 2)):
            measured = dask_turn(clients, workers, folder, plan)
            if turn:  # the first one imports and compiles
                found[workers].append(measured)
    for client in clients.values():
        client.cluster.close()
        client.close()
    return found


# All engines on two cores


@contextmanager
def library(plan: fedldp.Plan, folder: str) -> Iterator[Count]:
    yield lambda: plan.count(folder)


@contextmanager
def duckdb(plan: fedldp.Plan, folder: str) -> Iterator[Count]:
    import duckdb

    from fedldp.counting.engines.duckdb import count_packets

    with duckdb.connect() as database:
        database.execute(f"SET threads = {CORES}")
        query = f"SELECT packet FROM '{folder}/*.parquet'"
        yield lambda: count_packets(plan, database.sql(query), threads=CORES)


@contextmanager
def dask(plan: fedldp.Plan, folder: str) -> Iterator[Count]:
    from distributed import Client, LocalCluster

    from fedldp.counting.engines import dask

    with (
        LocalCluster(n_workers=CORES, **DASK) as cluster,
        Client(cluster),
    ):
        yield lambda: dask.count_files(plan, folder)


@contextmanager
def spark_session() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{CORES}]")
    settings = {"spark.ui.enabled": "false", "spark.log.level": "OFF"}
    session = builder.config(map=settings).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def spark_files(plan: fedldp.Plan, folder: str) -> Iterator[Count]:
    from fedldp.counting.engines import spark

    with spark_session() as session:
        yield lambda: spark.count_files(plan, folder, session=session)


@contextmanager
def spark_frame(plan: fedldp.Plan, folder: str) -> Iterator[Count]:
    from fedldp.counting.engines import spark

    with spark_session() as session:
        yield lambda: spark.count_packets(plan, session.read.parquet(folder))


@contextmanager
def beam(plan: fedldp.Plan, folder: str) -> Iterator[Count]:
    import apache_beam
    from apache_beam.options.pipeline_options import PipelineOptions

    from fedldp.counting.engines.beam import CountFiles

    logging.disable(logging.WARNING)
    options = [f"--direct_num_workers={CORES}", "--direct_running_mode=multi_processing"]

    def count() -> Counted:
        with tempfile.TemporaryDirectory() as place:
            path = Path(place, "found")

            def keep(found: Counted, path: Path = path) -> None:
                path.write_bytes(found.to_bytes())

            with apache_beam.Pipeline("FnApiRunner", PipelineOptions(options)) as pipeline:
                files = pipeline | apache_beam.Create([folder])
                _ = files | CountFiles(plan) | apache_beam.Map(keep)
            return Counted.from_bytes(path.read_bytes(), plan)

    yield count


ENGINES = {
    "the library, `plan.count`": library,
    "DuckDB, `count_packets`": duckdb,
    "Dask, `count_files`": dask,
    "Spark, `count_files`": spark_files,
    "Spark, `count_packets`": spark_frame,
    "Beam (two processes), `CountFiles`": beam,
}


def engine_turns(name: str, folder: str, few: str, k: int, turns: int) -> tuple[float, list[float]]:
    """Return how long the start and a first small job take, and then each turn."""
    plan, begun = scale.plan(k), time.perf_counter()
    with ENGINES[name](plan, few) as count:
        count()
        start = time.perf_counter() - begun
    found = []
    with ENGINES[name](plan, folder) as count:
        for turn in range(turns + 1):
            begun = time.perf_counter()
            check(count(), folder)
            if turn:
                found.append(time.perf_counter() - begun)
    return start, found


def check(found: Counted, folder: str) -> None:
    expected = int(Path(folder, "_packets").read_text())
    if found.packets != expected or found.refused:
        raise SystemExit(f"expected {expected} packets; got {found}")


def write(folder: str, k: int, count: int) -> None:
    scale.SHARD = SHARD
    scale.write(Path(folder), k, count)
    Path(folder, "_packets").write_text(str(count))


def measure(count: int, parent: Path | None, turns: int, names: list[str]) -> list[Table]:
    growth, engines = [], []
    with tempfile.TemporaryDirectory(dir=parent) as place:
        for k in track((1, 4), "Dask", transient=True):
            folder = f"{place}/{k}"
            Path(folder).mkdir()
            harness.in_new_process(write, folder, k, count)
            found = harness.in_new_process(dask_growth, folder, k, turns)
            one, two = (
                [
                    np.median([getattr(turn, name) for turn in found[workers]])
                    for name in Turn._fields
                ]
                for workers in (1, CORES)
            )
            growth.append(
                (
                    f"{scale.plan(k).bits} bits",
                    f"{count:,}",
                    *(f"{shown(1e3 * each[0])} ms" for each in (one, two)),
                    f"{one[0] / two[0]:.2f}",
                    f"{CORES * one[1] / two[1]:.2f}",
                )
            )
        few = f"{place}/few"
        Path(few).mkdir()
        harness.in_new_process(write, few, 4, 1000)
        for name in track(names, "Engines", transient=True):
            start, times = harness.in_new_process(engine_turns, name, folder, few, 4, turns)
            each = float(np.median(times))
            rate = f"{count / each / 1e6:.1f} million"
            engines.append((name, f"{start:.1f} s", f"{shown(each)} s", rate))
    headings = ("packet", "packets", "1 worker", "2 workers", "times as fast", "at best")
    tables = [Table(f"Dask, from one worker to {CORES}", headings, growth)]
    if engines:
        title = f"{count:,} packets of {scale.plan(4).bits} bits, on {CORES} cores"
        tables.append(Table(title, ("engine", "start", "counting", "packets a second"), engines))
    return tables


def main() -> None:
    warnings.simplefilter("ignore")
    parser = pages.options(__doc__ or "")
    parser.add_argument("--packets", type=int, default=PACKETS, help="how many in files")
    parser.add_argument("--folder", type=Path, help="where to write them for a while")
    parser.add_argument("--turns", type=int, default=TURNS, help="of which the median is shown")
    parser.add_argument("--only", choices=["dask", "all"], default="all", help="what to measure")
    chosen = parser.parse_args()
    packages = "pyarrow", "dask", "pyspark", "apache-beam", "duckdb"
    where = f"{pages.machine(*packages)}; {pages.busy()}"
    names = list(ENGINES) if chosen.only == "all" else []
    tables = measure(chosen.packets, chosen.folder, chosen.turns, names)
    pages.publish("engines", tables, where, chosen.write)


if __name__ == "__main__":
    main()
