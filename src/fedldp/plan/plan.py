"""Plans: one file that both sides hold, from which everything else follows.

A plan is a schema and parts. A strategy (`strategies`) forms the parts: which attributes belong
together, how many of them a vehicle answers, and which coders its attributes choose from. A part
(`parts`) knows where the answers of each attribute lie, in a record and in a tally; a coder
(`coders`) knows what an answer means. From rows, `Plan.report` makes a `Report`: the records of
some vehicles. From its bytes, `Plan.parse` makes a `Tally`, whose `estimate` has a result for each
attribute.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any, final

import numpy as np

from fedldp import vehicle
from fedldp._internal import documents, notebook, packing, validation
from fedldp._internal.text import counted
from fedldp._internal.validation import whole
from fedldp.coders.base import epsilon_of
from fedldp.counting import counts
from fedldp.counting.counts import Counted
from fedldp.errors import DomainError, PrivacyError
from fedldp.mechanisms import AnyMechanism
from fedldp.plan import expectation, report, strategies
from fedldp.plan.expectation import Expectation
from fedldp.plan.parts import Matrix, Part, VehicleValues, from_documents, to_documents
from fedldp.plan.report import Report
from fedldp.plan.strategies import AUTO, Paper, Strategy
from fedldp.randomness import (
    Source,
    StudySource,
    check_source,
    checked_source,
    study_source,
)
from fedldp.results import estimate, tally
from fedldp.results.estimate import HORVITZ_THOMPSON, RATIO, check_choices
from fedldp.results.plausibility import Influence, influence
from fedldp.results.tally import Tally
from fedldp.schema.quality import DataQuality, total
from fedldp.schema.schema import Schema

_ENTRIES = {"epsilon", "schema", "tables", "parts"}


@final
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Plan:
    """What every vehicle of a fleet is asked, and how its answer is made private.

    Both sides hold the plan: vehicles make reports with it, and a server reads them with it. The
    methods that make reports take a random source; `fedldp.source()` is the one to use on a
    vehicle.

    Parameters
    ----------
    schema
        The attributes that a vehicle is asked for.
    epsilon
        The privacy budget of one report, from 0.001 to 16.
    strategy
        How the budget is divided: `Sample`, `Split`, `Paper`, `Cube` or `Directions` with their own
        options, or the name of one. `"sample"`: each vehicle chooses k coordinates with its own
        randomness. `"split"`: it answers all d coordinates with epsilon/d each. `"paper"`: the
        budget is divided between numbers and categories. `"cube"`: all numbers are answered at
        once, with one sign each. `"directions"`: a vector with a bound on its length is answered
        with one of some random directions. `"auto"` is directions for such a vector, the cube for
        many numbers where it has clearly less error (from an epsilon of about 6 on), and sample
        otherwise. `expected_error` tells which one to choose if you know more about the data.
    compact
        Send categories in few bits: of the coders whose error is at most a tenth above the least
        one, that with the fewest bits. It is mostly `fedldp.coders.Lines`, which older vehicles do
        not know: the plan then has format 2. By default only categories that format 1 cannot
        express use it, such as those with more than 65,536 labels.
    estimator
        What `Tally.estimate` does by default. It is written to the file only if it is not
        `"ratio"`; vehicles do not need it.

    Raises
    ------
    DomainError
        If a parameter is invalid, or a record or a tally would be too large.

    Examples
    --------
    >>> import fedldp
    >>> schema = Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima"])
    >>> plan = Plan(schema, epsilon=2.0)
    >>> rows = [{"age": 31, "city": "Rome"}] * 28_000 + [{"age": 71, "city": "Oslo"}] * 12_000
    >>> plan
    <Plan: epsilon 2, 2 attributes, each vehicle answers 1 of 2 coordinates, 6 bits>
    >>> packet = plan.report(rows, fedldp.source(1)).to_bytes()
    >>> plan.bits, len(packet)
    (6, 30016)
    >>> estimate = plan.parse(packet).estimate()
    >>> round(estimate["age"].mean, -1), estimate["city"].frequencies.round(1) + 0.0
    (40.0, array([0.3, 0.7, 0. ]))
    """

    schema: Schema
    epsilon: float
    parts: tuple[Part, ...]
    estimator: str

    def __init__(
        self,
        schema: Schema,
        epsilon: float,
        strategy: str | Strategy = AUTO,
        *,
        compact: bool = False,
        estimator: str = RATIO,
    ) -> None:
        if not isinstance(schema, Schema):
            raise DomainError(
                f"schema must be a Schema, such as Schema.of returns; got {schema!r}."
            )
        parts = strategies.parts_of(schema, epsilon, strategy, compact=compact)
        self._set(parts[0].schema, float(epsilon), parts, estimator)

    @classmethod
    def paper(
        cls,
        schema: Schema,
        epsilon: float,
        *,
        mechanism: AnyMechanism = strategies.PAPER_MECHANISM,
        outputs: int | None = None,
        study: bool = False,
    ) -> "Plan":
        """Return the plan of the paper's experiments, with all its choices.

        Of d attributes, the d_n numbers have d_n/d of epsilon and the d_c categories the rest. Of
        its share b, each vehicle answers k = max(1, min(d_n, floor(b / 2.5))) numbers with b/k each
        (Algorithm 6), and categories likewise, through OUE. The estimate multiplies the answers by
        d_n/k and divides their sum by the number of all vehicles (Horvitz-Thompson). As in the
        paper's comparison, Laplace answers every number (`study` only), and Duchi et al. all
        numbers at once.

        Parameters
        ----------
        schema
            The attributes that a vehicle is asked for.
        epsilon
            The privacy budget of one report.
        mechanism
            How numbers are made private: see `Plan`.
        outputs
            The number of outputs of the mechanism's channel: see `Mechanism.channel`. By default it
            is 2001, as in the paper's experiments, for mechanisms with continuous outputs.
        study
            Use the mechanism's own floating-point `perturb`: see `Plan`.

        Returns
        -------
        Plan
            The plan.

        Raises
        ------
        DomainError
            If a parameter is invalid.

        Examples
        --------
        >>> schema = Schema.of(speed=(0, 130), battery=(0, 1), model=["Alpha", "Beta", "Gamma"])
        >>> plan = Plan.paper(schema, epsilon=9.0, mechanism="three-outputs")
        >>> [(part.k, float(part.epsilon)) for part in plan.parts], plan.estimator
        ([(2, 6.0), (1, 3.0)], 'horvitz-thompson')
        """
        strategy: strategies.Strategy = strategies.as_printed(mechanism, outputs, study)
        if isinstance(strategy, strategies.Split) and isinstance(schema, Schema):
            numbers = sum(
                attribute.size for attribute in schema.attributes if attribute.inputs.numeric
            )
            strategy = Paper(max(1, numbers), mechanism, strategy.outputs, study)
        elif isinstance(strategy, strategies.Sample):
            strategy = Paper("paper", mechanism, strategy.outputs, study)
        return cls(schema, epsilon, strategy, estimator=HORVITZ_THOMPSON)

    @classmethod
    def from_parts(
        cls, schema: Schema, epsilon: float, parts: Sequence[Part], *, estimator: str = RATIO
    ) -> "Plan":
        """Return a plan made of parts and coders of your own choice.

        Parameters
        ----------
        schema
            The attributes that a vehicle is asked for.
        epsilon
            The privacy budget of one report, which the parts together must not exceed.
        parts
            The parts; every attribute must be in exactly one of them.
        estimator
            What `Tally.estimate` does by default.

        Returns
        -------
        Plan
            The plan.

        Raises
        ------
        PrivacyError
            If a whole report would cost more than epsilon.
        DomainError
            If an attribute is in no part or in two, or a record or a tally would be too large.

        Examples
        --------
        >>> from fedldp.coders import CubeCoder
        >>> from fedldp.plan.parts import Part
        >>> schema = Schema.vector(3, bound=1.0)
        >>> part = Part(schema, attributes=(0,), coders=(CubeCoder.of(1.0, 3),), k=1)
        >>> Plan.from_parts(schema, 1.0, [part]) == Plan(schema, 1.0, strategy="cube")
        True
        """
        plan = object.__new__(cls)
        plan._set(schema, epsilon, tuple(parts), estimator)
        return plan

    def _set(self, schema: Schema, epsilon: float, parts: tuple[Part, ...], estimator: str) -> None:
        check_choices(estimator, "population")
        numbers = sorted(number for part in parts for number in part.attributes)
        if numbers != list(range(len(schema.attributes))):
            raise DomainError("every attribute must be in exactly one part of a plan.")
        unsettled = [attribute.name for attribute in schema.attributes if attribute.unresolved]
        if unsettled:
            raise DomainError(f"{unsettled[0]!r} needs a grid: pass grid=, or let Plan choose it.")
        object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "epsilon", validation.epsilon(epsilon))
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "estimator", estimator)
        if self.total_epsilon > vehicle.exact(self.epsilon):
            raise PrivacyError(
                f"a whole report would cost {float(self.total_epsilon):.17g}, "
                f"more than the plan's epsilon of {epsilon!r}."
            )
        # These limits keep a file of a few bytes from exhausting the memory.
        if sum(part.joint for part in parts) > 1:
            raise DomainError("a plan has at most one part with a joint coder.")
        cells = sum(int(part.starts[-1]) for part in parts)
        bits = 0 if self.study else self.bits
        if cells > vehicle.MOST_COUNTERS or bits > vehicle.MOST_BITS:
            raise DomainError(
                f"a record would have {bits} bits and a tally {cells} counters; at most "
                f"{vehicle.MOST_BITS} and {vehicle.MOST_COUNTERS} are allowed. Ask for less, or "
                "use fewer outputs."
            )

    def __repr__(self) -> str:
        attributes = counted(len(self.schema), "attribute")
        answers = sum(part.d if part.joint else part.k for part in self.parts)
        kind, size = (" for study", "") if self.study else ("", f", {self.bits:,} bits")
        joint = [f" by {part.coders[0].kind}" for part in self.parts if part.joint]
        return (
            f"<Plan{kind}: epsilon {self.epsilon:g}, {attributes}, each vehicle answers "
            f"{answers:,} of {counted(self.schema.dimensions, 'coordinate')}{''.join(joint)}{size}>"
        )

    def _repr_html_(self) -> str:
        answered = {
            attribute.name: [
                attribute.name,
                attribute.domain,
                type(coder).__name__,
                coder.epsilon,
                f"{100 * part.share:.3g}%",
            ]
            for part in self.parts
            for coder, attribute in part.asked
        }
        columns = ["attribute", "values", "coder", "epsilon of an answer", "vehicles that answer"]
        return notebook.table(repr(self)[1:-1], columns, [answered[name] for name in self.schema])

    @property
    def total_epsilon(self) -> Fraction:
        """What a whole report costs, exactly."""
        return sum((part.epsilon for part in self.parts), Fraction(0))

    @property
    def constant(self) -> bool:
        """Whether it asks only for what never changes, so that a vehicle repeats its answer.

        All attributes must be declared constant: a report is one answer to the whole plan, which a
        vehicle pays for once and then repeats, or draws anew and pays for again.
        """
        return all(attribute.constant for attribute in self.schema.attributes)

    @property
    def study(self) -> bool:
        """Whether this plan is for study only."""
        return any(part.study for part in self.parts)

    @property
    def bits(self) -> int:
        """How many bits a vehicle sends."""
        self._for_release("has no bits")
        return sum(part.width for part in self.parts)

    def _for_release(self, what: str) -> None:
        if self.study:
            raise DomainError(
                f"a plan for study {what}: make it without study=True, with a mechanism that "
                "has a channel."
            )

    def report(
        self,
        data: Any,
        source: Source | None = None,
        *,
        strict: bool = False,
        vehicle_ids: Any = None,
    ) -> Report:
        """Return what some vehicles send, one for each row of the data.

        Every row gives a report, whatever its values are: a value outside the bounds is clipped,
        and one that is missing, unreadable or unknown becomes the attribute's public `missing`
        value. A `DataWarning` then says so to the caller alone: nothing of it is sent.

        Parameters
        ----------
        data
            Rows: a list of dicts, a dict of columns, a NumPy array or a data frame.
        source
            The random source, from `fedldp.source`.
        strict
            Raise `DomainError` if a value would be clipped or replaced, before anything is drawn.
        vehicle_ids
            The id of each row's vehicle, or the name of their column, if vehicles have several
            rows. They become one by the rule of each attribute, and the vehicle sends one report.
            Vehicles are in the order of their sorted ids.

        Returns
        -------
        Report
            The records of all vehicles.

        Raises
        ------
        DomainError
            If the data cannot be read, or `strict` is set and a value would be changed.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp import Sample
        >>> plan = Plan(Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="duchi"))
        >>> plan.report([{"speed": 30}, {"speed": 48}], fedldp.source(1))
        <Report of 2 vehicles, 1 bit each, for plan 6e5cc23400e34c>
        """
        seen: list[DataQuality] = []
        source = checked_source(source)
        batches = self._batches(data, strict, seen, source, vehicle_ids)
        report = self.report_batches(batches, source)
        if seen:
            total(seen).warn(stacklevel=2)
        return report

    def _batches(
        self, data: Any, strict: bool, seen: list[DataQuality], source: Source, vehicle_ids: Any
    ) -> Iterator[Matrix]:
        """Yield the rows in batches, and collect what is clipped or replaced in each batch."""
        rows = self.schema.rows(data, several=vehicle_ids is not None)
        column = vehicle_ids if isinstance(vehicle_ids, str) else None
        if vehicle_ids is not None:
            matrix, quality = rows.one_each(vehicle_ids, source.uniform)
            seen.append(quality.using(column))
            if strict:
                seen[-1].refuse()
            yield from (Matrix(matrix[slice(*chunk)]) for chunk in self.chunks(len(matrix)))
            return
        if strict:
            rows.quality().refuse()
        for chunk in self.chunks(len(rows)):
            matrix, quality = rows.read(*chunk)
            seen.append(quality)
            yield Matrix(matrix)

    def report_batches(self, batches: Iterable[VehicleValues], source: Source) -> Report:
        """Return what some vehicles send, given in batches.

        Parameters
        ----------
        batches
            Values of some vehicles at a time, such as a `fedldp.plan.parts.Matrix`. The size of
            every batch but the last must be a multiple of 8.
        source
            The random source, from `fedldp.source`.

        Returns
        -------
        Report
            The records of all vehicles.

        Raises
        ------
        DomainError
            If a batch other than the last has another size, or source is not a `Source`.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.plan.parts import Matrix
        >>> from fedldp import Sample
        >>> plan = Plan(Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="duchi"))
        >>> batches = (Matrix(np.full((8, 1), 30.0)) for _ in range(3))
        >>> plan.report_batches(batches, fedldp.source(1)).vehicles
        24
        """
        check_source(source)
        width, vehicles, packed = self.bits, 0, []
        for batch in batches:
            if vehicles % 8:
                raise DomainError("every batch but the last must have a multiple of 8 vehicles.")
            packed.append(self.records(batch, source).to_bytes())
            vehicles += len(batch)
        if vehicles > report.MOST_REPORTS:
            raise DomainError(
                f"a report can have at most {report.MOST_REPORTS} vehicles; got {vehicles}."
            )
        return Report(self.fingerprint, width, vehicles, b"".join(packed))

    def records(self, values: VehicleValues, source: Source) -> packing.Records:
        """Return the records of some vehicles before they are packed.

        Parameters
        ----------
        values
            The values of the vehicles, such as a `fedldp.plan.parts.Matrix`.
        source
            The random source, from `fedldp.source`.

        Returns
        -------
        Records
            A record for each vehicle.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.plan.parts import Matrix
        >>> from fedldp import Sample
        >>> plan = Plan(Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="duchi"))
        >>> len(plan.records(Matrix(np.array([[30.0], [48.0]])), fedldp.source(1)))
        2
        """
        filled, first = packing.empty(len(values), self.bits), 0
        for part in self.parts:
            part.encode(values, source, filled, first)
            first += part.width
        return filled

    def chunks(self, vehicles: int) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) ranges of vehicles that bound memory use.

        Parameters
        ----------
        vehicles
            The number of vehicles.

        Yields
        ------
        tuple of int
            The first vehicle of a range, and the one after the last.

        Examples
        --------
        >>> from fedldp import Sample
        >>> plan = Plan(Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="duchi"))
        >>> list(plan.chunks(100_000))
        [(0, 65536), (65536, 100000)]
        """
        # A joint coder reads all numbers of a vehicle, even if its code has few bits.
        read = [part.d for part in self.parts if part.joint]
        wide = self.schema.dimensions * 64 if self.study else max(self.bits, *read, 0)
        return packing.ranges(vehicles, wide)

    def parse(self, data: Report | bytes) -> Tally:
        """Return the tally of a report, or of the bytes of one that was received.

        Parameters
        ----------
        data
            A report or its bytes.

        Returns
        -------
        Tally
            The counted codes.

        Raises
        ------
        WireError
            If the bytes are invalid. Nothing of them is counted.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp import Sample
        >>> plan = Plan(Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="duchi"))
        >>> plan.parse(plan.report([{"speed": 30}, {"speed": 48}], fedldp.source(1)))
        <Tally of 2 reports for plan 6e5cc23400e34c>
        """
        return tally.count(data, self.fingerprint, self.parts, self.estimator)

    def count(
        self, packets: Any, *, column: str | None = None, most_listed: int = counts.MOST_LISTED
    ) -> Counted:
        """Count many packets at once: the bytes of reports as they were received.

        Every packet is validated as `parse` does. A packet that is not valid is counted by the
        reason and listed; nothing of it enters the tally, and it does not stop the others. Equal
        packets all count: small reports repeat legitimately. Memory use is bounded, whatever the
        number of packets.

        Parameters
        ----------
        packets
            A list of bytes, or another iterable; a binary column, or a table with one, of pandas,
            polars or Arrow; or a path. A path names a Parquet file, a file in which reports follow
            one another, a folder of such files, or a pattern such as `"reports/*.parquet"`. It may
            be an address in an object store, such as `"s3://fleet/reports/*.parquet"`.
        column
            The name of the column of packets in a table or a Parquet file. By default it is the
            only binary column.
        most_listed
            How many refused packets are listed.

        Returns
        -------
        Counted
            The tally, the numbers of refused packets, and the manifest of the files.

        Raises
        ------
        DomainError
            If the packets cannot be read: not those of a column, or a file that is not there.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp import Sample
        >>> plan = Plan(Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="duchi"))
        >>> source = fedldp.source(1)
        >>> packets = [plan.report([{"speed": 30}], source).to_bytes() for _ in range(100)]
        >>> plan.count([*packets, b"damaged", None])
        <Counted: 100 vehicles in 100 packets; 2 packets refused (missing 1, length 1)>
        """
        return counts.count(packets, self, column=column, most_listed=most_listed)

    def tally(self) -> Tally:
        """Return a tally of no reports, to add to.

        Returns
        -------
        Tally
            A tally whose counters are 0.

        Examples
        --------
        >>> from fedldp import Sample
        >>> plan = Plan(Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="duchi"))
        >>> plan.tally()
        <Tally of 0 reports for plan 6e5cc23400e34c>
        """
        kind = np.float64 if self.study else np.int64
        counts = tuple(np.zeros(part.starts[-1], kind) for part in self.parts)
        return Tally(self.fingerprint, self.parts, 0, counts, self.estimator)

    def load_tally(self, path: str | os.PathLike[str]) -> Tally:
        """Read a tally of this plan from a file.

        Parameters
        ----------
        path
            A file that `Tally.save` wrote, or one with the bytes of `Tally.to_bytes`.

        Returns
        -------
        Tally
            The tally.

        Raises
        ------
        WireError
            If the file is not a valid tally of this plan.

        Examples
        --------
        >>> import tempfile
        >>> from fedldp import Sample
        >>> plan = Plan(Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="duchi"))
        >>> path = Path(tempfile.mkdtemp(), "tally.json")
        >>> plan.tally().save(path)
        >>> plan.load_tally(path).reports
        0
        """
        self._for_release("has no saved tallies")
        return tally.read(Path(path).read_bytes(), self)

    def simulate(
        self,
        data: Any,
        source: StudySource | None = None,
        *,
        strict: bool = False,
        vehicle_ids: Any = None,
    ) -> Tally:
        """Return the tally of a simulated fleet, with a vehicle for each row: report, then parse.

        A plan for study uses `perturb` instead, as in the paper.

        Parameters
        ----------
        data
            Rows, as for `report`. Values that are clipped or replaced cause a `DataWarning`.
        source
            The random source, from `fedldp.source`, or a generator of NumPy.
        strict
            Raise `DomainError` if a value would be clipped or replaced.
        vehicle_ids
            The id of each row's vehicle, as for `report`.

        Returns
        -------
        Tally
            The tally of all vehicles.

        Raises
        ------
        DomainError
            If the data cannot be read, or `strict` is set and a value would be changed.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp import Sample
        >>> plan = Plan(Schema.of(speed=(0, 50)), 4.0, Sample(mechanism="hm-tp"))
        >>> plan.simulate([{"speed": 30}] * 10_000, fedldp.source(1)).estimate()
        <Estimate from 10,000 reports: speed 29.81 ± 0.16>
        """
        seen: list[DataQuality] = []
        drawn = study_source(source)
        batches = self._batches(data, strict, seen, drawn, vehicle_ids)
        tally = self.simulate_batches(batches, drawn)
        if seen:
            total(seen).refuse_unusable()
            total(seen).warn(stacklevel=2)
        return tally

    def simulate_batches(self, batches: Iterable[VehicleValues], source: StudySource) -> Tally:
        """Return the tally of a simulated fleet, given in batches, of which one is held at a time.

        Parameters
        ----------
        batches
            Values of some vehicles at a time, such as a `fedldp.plan.parts.Matrix`.
        source
            The random source, from `fedldp.source`, or a generator of NumPy.

        Returns
        -------
        Tally
            The tally of all vehicles.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.plan.parts import Matrix
        >>> from fedldp import Sample
        >>> plan = Plan(Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="duchi"))
        >>> batches = (Matrix(np.full((8, 1), 30.0)) for _ in range(3))
        >>> plan.simulate_batches(batches, fedldp.source(1)).reports
        24
        """
        total, drawn = self.tally(), study_source(source)
        for batch in batches:
            total += self._parse_study(batch, drawn) if self.study else self._parse(batch, drawn)
        return total

    def _parse(self, batch: VehicleValues, source: Source) -> Tally:
        return self.parse(self.report_batches([batch], source))

    def _parse_study(self, batch: VehicleValues, source: Source) -> Tally:
        counts = tuple(np.zeros(part.starts[-1]) for part in self.parts)
        for part, cells in zip(self.parts, counts, strict=True):
            part.simulate(batch, source, cells[None])
        return Tally(self.fingerprint, self.parts, len(batch), counts, self.estimator)

    def expected_error(
        self,
        n: int,
        data: Any = "uniform",
        *,
        estimator: str | None = None,
        of: str = "population",
    ) -> float:
        """Return the squared error to expect from n vehicles, summed over all estimates.

        Numbers count on the scale of [-1, 1], and every category by its frequency.

        Parameters
        ----------
        n
            The number of vehicles.
        data
            What to assume about the data: `"uniform"`, `"worst"` (half of all vehicles at one end,
            half at the other), or public rows that resemble the fleet's. Values that are clipped or
            replaced cause a `DataWarning`.
        estimator
            As for `Tally.estimate`; by default the plan's estimator.
        of
            As for `Tally.estimate`.

        Returns
        -------
        float
            The expected squared error.

        Raises
        ------
        DomainError
            If n is below 1, or the data are empty or of another kind.

        Examples
        --------
        >>> schema = Schema.vector(20, bound=1.0)
        >>> few, all_signs = Plan(schema, epsilon=1.0), Plan(schema, epsilon=1.0, strategy="cube")
        >>> round(few.expected_error(10_000), 3), round(all_signs.expected_error(10_000), 3)
        (0.169, 0.255)
        """
        n = whole(n, "n")
        if n < 1:
            raise DomainError(f"n must be at least 1; got {n!r}.")
        if not isinstance(data, str):
            data, quality = self.schema.rows(data).read()
            if not len(data):
                raise DomainError("data must have at least one row; got none.")
            quality.warn(stacklevel=2, strict=False)
        estimator = self.estimator if estimator is None else estimator
        return estimate.expected_error(self.parts, n, data, estimator, of)

    def expect(
        self,
        n: int,
        data: Any = None,
        *,
        spread: Mapping[str, float] | None = None,
        confidence: float = 0.95,
    ) -> Expectation:
        """Return how exact the results of n vehicles will be, in the unit of each attribute.

        Parameters
        ----------
        n
            The number of vehicles.
        data
            Public rows that resemble the fleet's. By default numbers are assumed to be spread
            evenly between their bounds, and labels to be equally frequent.
        spread
            For some numbers, a public guess of their standard deviation.
        confidence
            The confidence of the intervals.

        Returns
        -------
        Expectation
            Half of the interval of each result, for such data and for the worst.

        Raises
        ------
        DomainError
            If n, the data or the confidence is out of range, or a name is unknown.

        Examples
        --------
        >>> plan = Plan(Schema.of(speed=(0, 130), model=["A", "B", "C"]), epsilon=2.0)
        >>> plan.expect(20_000)
        <Expectation of 20,000 vehicles: speed ± 1.4, model ± 0.014>
        >>> round(plan.expect(20_000, spread={"speed": 12})["speed"].typical, 1)
        1.0
        """
        spreads = dict(spread or {})
        return expectation.expect(
            self.parts, n, self.estimator,
            data=None if data is None else self._inputs(data),
            spread=spreads, confidence=confidence,
        )  # fmt: skip

    def _inputs(self, data: Any) -> dict[str, Any]:
        """Return what coders take of public rows, or the share of each label."""
        matrix, quality = self.schema.rows(data).read()
        if not len(matrix):
            raise DomainError("data must have at least one row; got none.")
        quality.warn(stacklevel=3, strict=False)
        read, start = {}, 0
        for attribute in self.schema.attributes:
            inputs = attribute.inputs.of(matrix[:, start : start + attribute.size])
            start += attribute.size
            if not attribute.inputs.numeric:
                inputs = expectation.label_shares(inputs, attribute.inputs.estimates)
            read[attribute.name] = inputs
        return read

    def vehicles_for(
        self,
        targets: Mapping[str, float] | None = None,
        *,
        data: Any = None,
        spread: Mapping[str, float] | None = None,
        confidence: float = 0.95,
        **more: float,
    ) -> int:
        """Return how many vehicles are needed, so that results are as exact as you want.

        Parameters
        ----------
        targets
            The largest half of an interval that you accept, by the name of an attribute or, for
            what else is estimated about it, a name that `expect` lists, such as `"speed: median"`.
        data, spread, confidence
            As for `expect`.
        **more
            More targets, for names that are words.

        Returns
        -------
        int
            The number of vehicles, to three digits.

        Raises
        ------
        DomainError
            If a target is not a positive number, or no fleet can meet it.
        UnknownName
            If nothing with this name is estimated.

        Examples
        --------
        >>> plan = Plan(Schema.of(speed=(0, 130), model=["A", "B", "C"]), epsilon=2.0)
        >>> n = plan.vehicles_for(speed=1.0, model=0.02)
        >>> 30_000 < n < 40_000, plan.expect(n)["speed"].typical <= 1.0
        (True, True)
        """
        inputs = None if data is None else self._inputs(data)

        def expected(n: int) -> Expectation:
            return expectation.expect(
                self.parts, n, self.estimator,
                data=inputs, spread=dict(spread or {}), confidence=confidence, worst=False,
            )  # fmt: skip

        return expectation.vehicles_for(expected, {**(targets or {}), **more})

    def influence(self, share: float, *, group: float = 0.0) -> dict[str, Influence]:
        """Return how far a share of liars can move each estimate (`ratio`), in its own units.

        The results hold for the worst honest data that are possible. A few liars decide the mean of
        a small group, and a quantile beyond which there are few values: say with `group` how small
        the groups are that you would look at.

        Parameters
        ----------
        share
            The share of vehicles that lie, from 0 to 1.
        group
            The least share of honest vehicles in a group, or with a value if it is optional, from 0
            to 1. With 0 a group may be empty, and liars then choose all of its mean.

        Returns
        -------
        dict of Influence
            For each attribute: `together`, if all liars answer about this attribute, and about one
            number of a vector; and `spread`, if they choose as honest vehicles do, so that their
            number of answers reveals nothing.

        Raises
        ------
        DomainError
            If a share is out of range, or the plan is for study.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp import Sample
        >>> plan = Plan(Schema.vector(100, bound=1.0), 1.0, Sample(mechanism="hm-tp"))
        >>> found = plan.influence(0.01)["x"]
        >>> round(found.together, 2), round(found.spread, 2)
        (2.57, 0.05)
        >>> speed, model = fedldp.Number("speed", 0, 130), fedldp.Category("model", ["A", "B"])
        >>> plan = Plan(Schema((fedldp.Within("by model", speed, model),)), epsilon=4.0)
        >>> round(plan.influence(0.01, group=0.03)["by model"].spread)
        34
        """
        self._for_release("has no largest answer")
        if not isinstance(share, Real) or not 0 <= share <= 1:
            raise DomainError(f"share must be a number from 0 to 1; got {share!r}.")
        if not isinstance(group, Real) or not 0 <= group <= 1:
            raise DomainError(f"group must be a number from 0 to 1; got {group!r}.")
        return influence(self.parts, float(share), float(group))

    def to_json(self) -> str:
        """Return the plan as canonical JSON: equal plans give equal text.

        Returns
        -------
        str
            The text of the file that vehicles and server hold.

        Raises
        ------
        DomainError
            If the plan is for study, or needs more tables than a vehicle accepts.

        Examples
        --------
        >>> from fedldp import Sample
        >>> plan = Plan(Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="duchi"))
        >>> Plan.from_json(plan.to_json()) == plan
        True
        """
        self._for_release("cannot be written")
        return self._json

    @cached_property
    def _json(self) -> str:
        tables, parts = to_documents(self.parts)
        if len(tables) > vehicle.MOST_TABLES:
            raise DomainError(
                f"the plan has {len(tables)} different tables, and a vehicle takes at most "
                f"{vehicle.MOST_TABLES}: ask for categories of fewer different sizes."
            )
        formats = {coder.plan_format for part in self.parts for coder in part.coders}
        formats |= {attribute.plan_format for attribute in self.schema.attributes}
        if self.estimator != RATIO or any(
            column.constant or column.rule != vehicle.RANDOM for column in self.schema.attributes
        ):
            formats.add(vehicle.PLAN_FORMAT_2)
        document = {
            "format": max(formats),
            "epsilon": str(self.epsilon),
            "schema": self.schema.to_document(),
            "tables": tables,
            "parts": parts,
        }
        if self.estimator != RATIO:
            document["estimator"] = self.estimator
        return vehicle.canonical(document)

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Read a plan and validate all of it again.

        Parameters
        ----------
        text
            The text that `to_json` returned.

        Returns
        -------
        Plan
            The plan.

        Raises
        ------
        WireError
            If the text is not a valid plan.
        PrivacyError
            If the plan leaks more than it claims.

        Examples
        --------
        >>> Plan.from_json("{}")
        Traceback (most recent call last):
        fedldp.errors.WireError: not a plan: the format differs; got None
        """
        with documents.reading("plan"):
            document = documents.parse(text, vehicle.PLAN_FORMATS, _ENTRIES, "estimator")
            estimator = document.get("estimator", RATIO)
            schema = Schema.from_document(document["schema"])
            parts = from_documents(schema, document["tables"], document["parts"])
            plan = cls.from_parts(schema, epsilon_of(document), parts, estimator=estimator)
            documents.check_written(plan.to_json(), text)
        return plan

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the canonical JSON, in hexadecimal; every report carries its beginning."""
        text = self._study_text if self.study else self.to_json()
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def _study_text(self) -> str:
        """The text that identifies a plan for study, which has no JSON."""
        parts = [(part.attributes, part.coders, part.k) for part in self.parts]
        return repr((self.epsilon, self.schema.to_document(), parts, self.estimator))

    def __reduce__(self) -> tuple[Any, ...]:
        if self.study:
            return _restore, (self.schema, self.epsilon, self.parts, self.estimator)
        return Plan.from_json, (self.to_json(),)  # checked again

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


def _restore(schema: Schema, epsilon: float, parts: tuple[Part, ...], estimator: str) -> Plan:
    return Plan.from_parts(schema, epsilon, parts, estimator=estimator)
