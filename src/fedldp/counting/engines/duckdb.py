"""Count packets that a query of DuckDB returns, on all cores of one machine."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any

from fedldp._internal.validation import whole
from fedldp.counting.counts import Counted
from fedldp.counting.engines._work import Work
from fedldp.counting.packets import import_pyarrow, packet_column
from fedldp.errors import DomainError
from fedldp.plan.plan import Plan

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

__all__ = ["count_packets"]

_ROWS_PER_BATCH = 1 << 16


def count_packets(
    plan: Plan,
    relation: "DuckDBPyRelation",
    *,
    column: str | None = None,
    threads: int | None = None,
) -> Counted:
    """Count the packets in a column of a DuckDB relation: a query, a table or files.

    DuckDB reads with all its threads while packets are counted. Memory use is bounded, whatever
    the number of packets.

    DuckDB gives rows without the files they come from, so the result has no manifest, and does not
    list refused packets. A row counts as often as the query returns it.

    Parameters
    ----------
    plan
        The plan that the vehicles answered.
    relation
        What `duckdb.sql` or a connection's `sql` returns, with a column of type BLOB.
    column
        The name of the column. By default it is the only one of that type.
    threads
        How many threads count. By default it is the number of cores, and at most four: they share
        Python's lock, so that more of them hardly help.

    Returns
    -------
    Counted
        The tally, and the numbers of refused packets by reason.

    Raises
    ------
    DomainError
        If there is not one such column, or the number of threads is not positive.

    Examples
    --------
    >>> import duckdb, fedldp
    >>> from fedldp.counting.engines.duckdb import count_packets
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> packet = plan.report([{"speed": 30}], fedldp.source(1)).to_bytes()
    >>> query = "SELECT $packet AS packet FROM range(1000)"
    >>> count_packets(plan, duckdb.sql(query, params={"packet": packet}))
    <Counted: 1,000 vehicles in 1,000 packets>
    """
    number = min(os.cpu_count() or 1, 4) if threads is None else whole(threads, "threads")
    if number < 1:
        raise DomainError(f"threads must be at least 1; got {number}.")
    kinds = zip(relation.columns, relation.types, strict=True)
    name = packet_column([name for name, kind in kinds if str(kind) == "BLOB"], column)
    work, pa, lock = Work.of(plan), import_pyarrow(), Lock()
    quoted = name.replace('"', '""')
    reader = relation.project(f'"{quoted}"').to_arrow_reader(_ROWS_PER_BATCH)

    def shared() -> Iterator[Any]:
        while True:
            with lock:
                batch = next(reader, None)
            if batch is None:
                return
            yield batch

    def count(_: int) -> bytes:
        return work.counted(pa.RecordBatchReader.from_batches(reader.schema, shared()))

    with ThreadPoolExecutor(number) as pool:
        return work.merged(pool.map(count, range(number)))
