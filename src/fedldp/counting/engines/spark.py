"""Count packets on Apache Spark: `mapInArrow` on each partition, then a tree of sums."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from fedldp.counting.counts import Counted, Manifest
from fedldp.counting.engines._work import MOST_LISTED, RESULTS_PER_TASK, Files, Work
from fedldp.counting.packets import import_pyarrow, packet_column
from fedldp.counting.shards import ShardPath
from fedldp.errors import MissingExtra
from fedldp.plan.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["count_files", "count_packets"]

_MOST_PARTITIONS = 10_000

Batches = Iterator[Any]  # record batches of pyarrow


def count_files(
    plan: Plan,
    files: ShardPath | Iterable[ShardPath],
    *,
    session: "SparkSession | None" = None,
    column: str | None = None,
    most_listed: int = MOST_LISTED,
    known: Manifest | None = None,
) -> Counted:
    """Count files of packets on the executors of Spark, each file as a whole.

    The executors open the files themselves, without Hadoop: in an object store with the
    credentials of their environment.

    Parameters
    ----------
    plan
        The plan that the vehicles answered.
    files
        A path or an address, or several: of a file, a folder or a pattern. The driver and all
        executors must be able to read them.
    session
        The session of Spark. By default it is the active one.
    column
        The name of the column of packets in Parquet files. By default it is the only binary one.
    most_listed
        How many refused packets are listed.
    known
        The manifest of an earlier result, whose files are left out and not read again.

    Returns
    -------
    Counted
        The same result as that of `Plan.count`, with a manifest of all files.

    Raises
    ------
    DomainError
        If the manifests of two results overlap, or a file is missing in the result. An error in a
        task, such as a file that cannot be read, is raised by Spark.
    MissingExtra
        If Spark is not installed.

    Warns
    -----
    DataWarning
        If a file is named twice, which counts once, or has the contents of another one.

    Examples
    --------
    >>> import fedldp, pathlib, tempfile
    >>> from fedldp.counting.engines import spark
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> report = plan.report([{"speed": 30}] * 100, fedldp.source(1))
    >>> _ = (folder / "monday.bin").write_bytes(report.to_bytes())
    >>> spark.count_files(plan, folder)
    <Counted: 100 vehicles in 1 packet>
    """
    active = session or _active()
    selected, work = Files.of(files, known), Work.of(plan, column, most_listed)
    partitions = min(len(selected.addresses), _MOST_PARTITIONS)
    if not partitions:
        return work.merged([])
    addresses = [(address,) for address in selected.addresses.values()]
    frame = active.createDataFrame(addresses, "address string").repartition(partitions)
    counted = _map(frame, lambda batches: work.merge(map(work.counted_file, _cells(batches))))
    return selected.check(_merge(counted, partitions, work))


def count_packets(plan: Plan, frame: "DataFrame", *, column: str | None = None) -> Counted:
    """Count the packets in a column of a Spark data frame, wherever it comes from.

    Spark gives rows without the files they come from, so the result has no manifest, and does not
    list refused packets. A row counts as often as it is in the frame: whether the frame holds each
    packet once is for the table and the query to ensure.

    Parameters
    ----------
    plan
        The plan that the vehicles answered.
    frame
        A data frame with a binary column of packets.
    column
        The name of the column. By default it is the only binary one.

    Returns
    -------
    Counted
        The tally, and the numbers of refused packets by reason.

    Raises
    ------
    DomainError
        If there is not one such column.
    MissingExtra
        If Spark is not installed.

    Examples
    --------
    >>> import fedldp
    >>> from fedldp.counting.engines import spark
    >>> from pyspark.sql import SparkSession
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> packet = plan.report([{"speed": 30}], fedldp.source(1)).to_bytes()
    >>> session = SparkSession.getActiveSession()
    >>> frame = session.createDataFrame([(packet,), (b"damaged",)], "packet binary")
    >>> spark.count_packets(plan, frame)
    <Counted: 1 vehicle in 1 packet; 1 packet refused (length 1)>
    """
    name = packet_column([name for name, kind in frame.dtypes if kind == "binary"], column)
    escaped = name.replace("`", "``")
    # With a plain name: `mapInArrow` does not find a column whose name has points.
    packets = frame.select(f"`{escaped}`").toDF("packet")
    work = Work.of(plan)
    counted = _map(packets, lambda batches: work.counted(_reader(batches)))
    return _merge(counted, RESULTS_PER_TASK + 1, work)


def _active() -> "SparkSession":
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("pyspark", "spark") from None
    return SparkSession.active()


def _map(frame: "DataFrame", function: Callable[[Batches], bytes]) -> "DataFrame":
    """Return a frame with one result for each partition, which Spark computes when it is needed."""

    def run(batches: Batches) -> Batches:
        pa = import_pyarrow()
        yield pa.record_batch({"result": pa.array([function(batches)], pa.binary())})

    return frame.mapInArrow(run, "result binary")


def _merge(results: "DataFrame", partitions: int, work: Work) -> Counted:
    """Return the sum of all results; the driver adds only a few of them."""
    while partitions > RESULTS_PER_TASK:
        partitions = -(-partitions // RESULTS_PER_TASK)
        # Spark sorts rows before it deals them out, so that a retry deals them out alike.
        results = _map(results.repartition(partitions), lambda batches: work.merge(_cells(batches)))
    return work.merged(bytes(row[0]) for row in results.collect())


def _cells(batches: Batches) -> Iterator[Any]:
    """Yield the values of the only column."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _reader(batches: Batches) -> Any:
    """Return the batches as one stream, of which a few are held at a time."""
    for first in batches:
        pa = import_pyarrow()
        return pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
    return []
