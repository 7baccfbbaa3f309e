"""Count files of packets on Dask: one task for each file, then a tree of sums."""

from collections.abc import Iterable

from fedldp.counting.counts import Counted, Manifest
from fedldp.counting.engines._work import MOST_LISTED, RESULTS_PER_TASK, Files, Work
from fedldp.counting.shards import ShardPath
from fedldp.errors import MissingExtra
from fedldp.plan.plan import Plan

__all__ = ["count_files"]


def count_files(
    plan: Plan,
    files: ShardPath | Iterable[ShardPath],
    *,
    column: str | None = None,
    most_listed: int = MOST_LISTED,
    known: Manifest | None = None,
) -> Counted:
    """Count files of packets on the workers of Dask.

    Dask's current client does the work, if there is one. Start it with one thread for each worker:
    counting holds Python's lock, so that threads of one process hardly help each other.

    Parameters
    ----------
    plan
        The plan that the vehicles answered.
    files
        A path or an address, or several: of a file, a folder or a pattern. All workers must be
        able to read them.
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
        If a file cannot be read, or the manifests of two results overlap.
    MissingExtra
        If Dask is not installed.

    Warns
    -----
    DataWarning
        If a file is named twice, which counts once, or has the contents of another one.

    Examples
    --------
    >>> import fedldp, pathlib, tempfile
    >>> from fedldp.counting.engines import dask
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for day in range(3):
    ...     report = plan.report([{"speed": 30}] * 100, fedldp.source(day))
    ...     _ = (folder / f"{day}.bin").write_bytes(report.to_bytes())
    >>> dask.count_files(plan, folder)
    <Counted: 300 vehicles in 3 packets>
    """
    try:
        import dask
    except ImportError:
        raise MissingExtra("dask", "dask") from None
    selected = Files.of(files, known)
    work = Work.of(plan, column, most_listed)
    shared = dask.delayed(work)  # sent to each worker once
    count, merge = dask.delayed(Work.counted_file), dask.delayed(Work.merge)
    level = [count(shared, address) for address in selected.addresses.values()]
    while len(level) > RESULTS_PER_TASK:
        level = [
            merge(shared, level[i : i + RESULTS_PER_TASK])
            for i in range(0, len(level), RESULTS_PER_TASK)
        ]
    return selected.check(work.merged(dask.compute(*level)))
