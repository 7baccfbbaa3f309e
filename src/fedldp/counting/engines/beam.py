"""Count packets on Apache Beam: a `CombineFn` whose accumulators are results."""

import logging
from collections.abc import Iterable, Iterator
from typing import Any, final

from fedldp._internal.text import counted
from fedldp.counting.counts import Counted
from fedldp.counting.engines._work import (
    MOST_LISTED,
    RESULTS_PER_TASK,
    Work,
    check_copies,
    repeated_files,
)
from fedldp.counting.shards import find
from fedldp.errors import DomainError, MissingExtra
from fedldp.plan.plan import Plan

try:
    import apache_beam as beam
except ImportError as error:
    raise MissingExtra("apache-beam", "beam") from error

__all__ = ["CountFiles", "CountPackets"]

_FEWEST, _MOST = 1_000, 65_536  # packets that are counted at a time

log = logging.getLogger(__name__)


@final
class CountFiles(beam.PTransform):  # type: ignore[misc]
    """Count files of packets, each of them as a whole and once.

    It takes a collection of paths and addresses: of files, folders or patterns. A file that occurs
    in it more than once counts once, and a warning is logged. The result is a collection with one
    element: the same `Counted` as that of `Plan.count`, with a manifest of all files.

    Parameters
    ----------
    plan
        The plan that the vehicles answered.
    column
        The name of the column of packets in Parquet files. By default it is the only binary one.
    most_listed
        How many refused packets are listed.

    Examples
    --------
    >>> import apache_beam as beam, fedldp, pathlib, tempfile
    >>> from fedldp.counting.engines.beam import CountFiles
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> report = plan.report([{"speed": 30}] * 100, fedldp.source(1))
    >>> _ = (folder / "monday.bin").write_bytes(report.to_bytes())
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     found = pipeline | beam.Create([str(folder)]) | CountFiles(plan)
    ...     _ = found | beam.Map(print)
    <Counted: 100 vehicles in 1 packet>
    """

    def __init__(
        self, plan: Plan, *, column: str | None = None, most_listed: int = MOST_LISTED
    ) -> None:
        super().__init__()
        self._work = Work.of(plan, column, most_listed)

    def expand(self, input_or_inputs: Any) -> Any:
        """Build the pipeline.

        Parameters
        ----------
        input_or_inputs
            The collection of paths and addresses.

        Returns
        -------
        PCollection
            The result.
        """
        files = (
            input_or_inputs
            | "Find" >> beam.FlatMap(_find)
            | "Once" >> beam.GroupByKey()
            | "Choose" >> beam.MapTuple(_first)
        )
        number = files | "Number" >> beam.combiners.Count.Globally()
        return (
            files
            | "Count" >> beam.CombineGlobally(_Combine(self._work, Work.counted_file))
            | "Check" >> beam.Map(_check, beam.pvalue.AsSingleton(number))
        )


@final
class CountPackets(beam.PTransform):  # type: ignore[misc]
    """Count a collection of packets, wherever they come from.

    Packets come without the files that they are from, so the result has no manifest, and does not
    list refused packets. A packet counts as often as it is in the collection. The result is a
    collection with one element, a `Counted`.

    Parameters
    ----------
    plan
        The plan that the vehicles answered.

    Examples
    --------
    >>> import apache_beam as beam, fedldp
    >>> from fedldp.counting.engines.beam import CountPackets
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> packet = plan.report([{"speed": 30}], fedldp.source(1)).to_bytes()
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     packets = pipeline | beam.Create([packet, packet, b"damaged"])
    ...     _ = packets | CountPackets(plan) | beam.Map(print)
    <Counted: 2 vehicles in 2 packets; 1 packet refused (length 1)>
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self._work = Work.of(plan)

    def expand(self, input_or_inputs: Any) -> Any:
        """Build the pipeline.

        Parameters
        ----------
        input_or_inputs
            The collection of packets.

        Returns
        -------
        PCollection
            The result.
        """
        return (
            input_or_inputs
            | "Batch" >> beam.BatchElements(_FEWEST, _MOST)
            | "Count" >> beam.CombineGlobally(_Combine(self._work, Work.counted))
        )


@final
class _Combine(beam.CombineFn):  # type: ignore[misc]
    """The sum of what a function counts; an accumulator is a list of a few results, as bytes."""

    def __init__(self, work: Work, count: Any) -> None:
        super().__init__()
        self._work, self._count = work, count

    def create_accumulator(self) -> list[bytes]:
        return []

    def add_input(self, mutable_accumulator: list[bytes], element: Any) -> list[bytes]:
        return self._few([*mutable_accumulator, self._count(self._work, element)])

    def merge_accumulators(self, accumulators: Iterable[list[bytes]]) -> list[bytes]:
        found: list[bytes] = []
        for each in accumulators:
            found = self._few([*found, *each])
        return found

    def compact(self, accumulator: list[bytes]) -> list[bytes]:
        return [self._work.merge(accumulator)]

    def extract_output(self, accumulator: list[bytes]) -> Counted:
        return self._work.merged(accumulator)

    def _few(self, results: list[bytes]) -> list[bytes]:
        return [self._work.merge(results)] if len(results) > RESULTS_PER_TASK else results


def _find(source: str) -> Iterator[tuple[str, str]]:
    for shard in find(source):
        yield shard.name, shard.address


def _first(name: str, addresses: Iterable[str]) -> str:
    first, *others = addresses
    if others:
        log.warning("%s: %s", name, repeated_files(len(others)))
    return first


def _check(found: Counted, number: int) -> Counted:
    if len(found.manifest) != number:
        raise DomainError(
            f"the runner must count each of {counted(number, 'file')} once; it counted "
            f"{len(found.manifest):,}. Nothing of this result is right: count again."
        )
    check_copies(found.manifest)
    return found
