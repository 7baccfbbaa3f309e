"""What a server keeps of the reports: how often each code occurred, and nothing else."""

import hashlib
import os
import struct
import warnings
from dataclasses import dataclass, replace
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal import documents, notebook, packing
from fedldp._internal.text import counted
from fedldp.coders import tables
from fedldp.errors import DomainError, ImplausibleWarning
from fedldp.plan.parts import Part
from fedldp.plan.report import Report, records_of
from fedldp.results import estimate, plausibility
from fedldp.results.estimate import RATIO, Estimate
from fedldp.results.plausibility import Plausibility
from fedldp.storage import files

FORMAT = "fedldp tally 1"
VERSION = 1  # of the bytes
MOST_REPORTS = 1 << 46  # so that the sum over 2^16 codes stays far from where int64 ends

_MAGIC = b"fedldp tally"
_HEAD = struct.Struct(">12sB32sQ")  # the magic, the version, the plan's fingerprint, the reports
_CHECK = hashlib.sha256().digest_size

Cells = npt.NDArray[Any]  # integers; floats in a plan for study


class TalliedPlan(Protocol):
    """What a tally needs to know about its plan."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def bits(self) -> int: ...
    @property
    def parts(self) -> tuple[Part, ...]: ...
    @property
    def estimator(self) -> str: ...
    @property
    def study(self) -> bool: ...


@final
@dataclass(frozen=True, eq=False, repr=False)
class Tally:
    """Counters of codes, for each coordinate of each part of a plan.

    `Plan.tally`, `Plan.parse` and `Plan.simulate` make tallies. Add a report to a tally, the bytes
    of a report that was received, or another tally; `sum` adds many. Adding is exact: the order of
    reports, and how they are split among servers, change nothing.

    Parameters
    ----------
    plan
        The fingerprint of the plan.
    parts
        The parts of the plan.
    reports
        The number of reports that are counted.
    counts
        An array of counters for each part.
    estimator
        The plan's estimator, which `estimate` uses by default.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> report = plan.report([{"speed": 30}, {"speed": 48}], fedldp.source(1))
    >>> tally = plan.tally() + report + report.to_bytes()
    >>> tally
    <Tally of 4 reports for plan 6e5cc23400e34c>
    >>> [part.tolist() for part in tally.counts]
    [[0, 4]]
    >>> sum([tally, tally]).reports
    8
    """

    plan: str
    parts: tuple[Part, ...]
    reports: int
    counts: tuple[Cells, ...]
    estimator: str = RATIO

    def __post_init__(self) -> None:
        most = min(MOST_REPORTS, *(part.most_answers for part in self.parts))
        if not 0 <= self.reports <= most:
            raise DomainError(f"a tally holds at most {most} reports; got {self.reports}.")
        frozen = tuple(tables.read_only(part, part.dtype) for part in self.counts)
        object.__setattr__(self, "counts", frozen)

    def __repr__(self) -> str:
        return f"<Tally of {counted(self.reports, 'report')} for plan {self.plan[:14]}>"

    def _repr_html_(self) -> str:
        answers: dict[str, int] = {}
        for part, cells in zip(self.parts, self.counts, strict=True):
            answered = part.answered(cells)
            for attribute, place in part.units_of:
                answers[attribute.name] = int(answered[place].sum())
        rows = [[name, each.size, answers[name]] for name, each in self.parts[0].schema.items()]
        return notebook.table(repr(self)[1:-1], ["attribute", "coordinates", "answers"], rows)

    def __add__(self, other: "Tally | Report | bytes") -> "Tally":
        if isinstance(other, Report | bytes | bytearray | memoryview):
            other = count(other, self.plan, self.parts, self.estimator)
        if not isinstance(other, Tally):
            return NotImplemented
        if other.plan != self.plan:
            raise DomainError(
                "these tallies are of different plans: estimate each, and combine the estimates "
                "with fedldp.combine_estimates."
            )
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return replace(self, reports=self.reports + other.reports, counts=counts)

    def __radd__(self, other: int) -> "Tally":
        # `sum` begins with 0.
        return self if type(other) is int and other == 0 else NotImplemented

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Tally)
            and (self.plan, self.reports) == (other.plan, other.reports)
            and all(np.array_equal(a, b) for a, b in zip(self.counts, other.counts, strict=True))
        )

    def __hash__(self) -> int:
        return hash((self.plan, self.reports))

    def estimate(
        self,
        estimator: str | None = None,
        *,
        of: str = "population",
        confidence: float = 0.95,
    ) -> Estimate:
        """Return means and frequencies, with their errors.

        Reports that honest vehicles hardly ever send cause an `ImplausibleWarning`, and are
        described in the estimate's `plausibility`.

        Parameters
        ----------
        estimator
            `"ratio"` divides the sum of the answers about an attribute by the number of vehicles
            that answered. `"horvitz-thompson"`, as in the paper, multiplies the sum by d/k and
            divides it by the number of all vehicles. By default it is the plan's estimator.
        of
            What the errors are about: the mean of the `"population"` from which the vehicles come,
            or of the `"fleet"`, exactly these vehicles.
        confidence
            The confidence of the intervals, between 0 and 1.

        Returns
        -------
        Estimate
            A mean or frequencies for each attribute.

        Raises
        ------
        DomainError
            If a parameter is not one of the allowed values.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 4.0, fedldp.Sample(mechanism="hm-tp"))
        >>> tally = plan.simulate([{"speed": 30}] * 10_000, fedldp.source(1))
        >>> tally.estimate(of="fleet")["speed"]
        <Mean 29.81 ± 0.16, 10,000 answers>
        """
        estimated = estimate.estimate(
            self.parts,
            self.reports,
            self.counts,
            self.estimator if estimator is None else estimator,
            of=of,
            confidence=confidence,
        )
        for text in estimated.warnings:
            warnings.warn(text, ImplausibleWarning, stacklevel=2)
        return estimated

    def plausibility(self) -> Plausibility:
        """Return whether honest vehicles can have sent these reports.

        The result is false, with the numbers, if a coordinate has far more or fewer answers than a
        random choice gives it, or if the mean of its answers lies outside the possible range by
        more than noise explains. Honest vehicles cause that with a probability of at most one in a
        million.

        Returns
        -------
        Plausibility
            The findings; it is true if there are none.

        Examples
        --------
        >>> import fedldp
        >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50), range=(0, 400)), epsilon=1.0)
        >>> rows = [{"speed": 30, "range": 250}] * 1000
        >>> bool(plan.simulate(rows, fedldp.source(1)).plausibility())
        True
        """
        return plausibility.check(self.parts, self.reports, self.counts)

    def to_json(self) -> str:
        """Return the tally as canonical JSON: equal tallies give equal text.

        Returns
        -------
        str
            The JSON text.

        Raises
        ------
        DomainError
            If the tally belongs to a plan for study.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> print(plan.tally().to_json()[:60])
        {"counts":[[0,0]],"format":"fedldp tally 1","plan":"6e5cc234
        """
        self._check_exact()
        document = {
            "format": FORMAT,
            "plan": self.plan,
            "reports": self.reports,
            "counts": [part.tolist() for part in self.counts],
        }
        return vehicle.canonical(document)

    def _check_exact(self) -> None:
        if any(part.study for part in self.parts):
            raise DomainError("a tally for study cannot be saved: simulate it again.")

    def to_bytes(self) -> bytes:
        """Return the tally as bytes: smaller than JSON, with a version and a checksum.

        Equal tallies give equal bytes. The page on the wire format describes them.

        Returns
        -------
        bytes
            The bytes, which `from_bytes` reads.

        Raises
        ------
        DomainError
            If the tally belongs to a plan for study.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> tally = plan.simulate([{"speed": 30}] * 1000, fedldp.source(1))
        >>> len(tally.to_bytes()), len(tally.to_json())
        (90, 137)
        """
        self._check_exact()
        pieces = [_HEAD.pack(_MAGIC, VERSION, bytes.fromhex(self.plan), self.reports)]
        for cells in self.counts:
            size = _size(cells)
            octets = cells.astype(">i8").view(np.uint8).reshape(-1, 8)[:, 8 - size :]
            pieces += [bytes([size]), octets.tobytes()]
        data = b"".join(pieces)
        return data + hashlib.sha256(data).digest()

    @classmethod
    def from_bytes(cls, data: bytes, plan: TalliedPlan) -> "Tally":
        """Read and validate what `to_bytes` returned.

        Parameters
        ----------
        data
            The bytes of a tally.
        plan
            The plan of the tally.

        Returns
        -------
        Tally
            The tally.

        Raises
        ------
        WireError
            If the bytes are damaged, belong to another plan, or no reports have these counts.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> Tally.from_bytes(plan.tally().to_bytes(), plan) == plan.tally()
        True
        """
        with documents.reading("tally of this plan"):
            body, check = bytes(data[:-_CHECK]), bytes(data[-_CHECK:])
            if len(body) < _HEAD.size or not body.startswith(_MAGIC):
                raise ValueError(f"it must begin with {_MAGIC.decode()!r} and a header")
            _, version, fingerprint, reports = _HEAD.unpack(body[: _HEAD.size])
            if version != VERSION:
                raise ValueError(vehicle.difference(f"{_MAGIC.decode()} {version}", [FORMAT]))
            if hashlib.sha256(body).digest() != check:
                raise ValueError("the checksum differs: the bytes are damaged")
            _check_plan(plan, fingerprint.hex())
            counts, start = [], _HEAD.size
            for part in plan.parts:
                size, end = body[start], start + 1 + body[start] * int(part.starts[-1])
                counts.append(_unpack(body[start + 1 : end], size, int(part.starts[-1])))
                start = end
            tally = _checked(plan, reports, tuple(counts))
            if tally.to_bytes() != bytes(data):
                raise ValueError("there are other bytes than the counters need")
        return tally

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tally to a file, atomically: the file holds the old text or the new one.

        Parameters
        ----------
        path
            The file. `Plan.load_tally` reads it.

        Raises
        ------
        DomainError
            If the tally belongs to a plan for study.

        Examples
        --------
        >>> import fedldp, tempfile
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> path = f"{tempfile.mkdtemp()}/tally.json"
        >>> plan.tally().save(path)
        >>> plan.load_tally(path) == plan.tally()
        True
        """
        files.write(path, self.to_json())


def count(
    data: Report | bytes, plan: str, parts: tuple[Part, ...], estimator: str = RATIO
) -> Tally:
    """Return the tally of a report of a plan; invalid bytes raise `WireError` and count nothing."""
    if any(part.study for part in parts):
        raise DomainError("a plan for study has no reports: simulate it instead.")
    width = sum(part.width for part in parts)
    vehicles, packed = records_of(data, plan, width)
    counts = [np.zeros(part.starts[-1], np.int64) for part in parts]
    for records in packing.parse_ranges(packed, vehicles, width):
        first = 0
        for part, cells in zip(parts, counts, strict=True):
            part.count(records, first, cells)
            first += part.width
    return Tally(plan, parts, vehicles, tuple(counts), estimator)


def is_tally(start: bytes) -> bool:
    """Return whether a file is a tally rather than reports or Parquet, from its first bytes."""
    return start.startswith((_MAGIC, b"{"))


def read(data: bytes, plan: TalliedPlan) -> Tally:
    """Read a tally of a plan, from JSON or from the bytes of `Tally.to_bytes`."""
    if data.startswith(_MAGIC):
        return Tally.from_bytes(data, plan)
    return from_json(data.decode("utf-8", errors="replace"), plan)


def from_json(text: str, plan: TalliedPlan) -> Tally:
    """Read and validate a tally of a plan, or raise `WireError`."""
    with documents.reading(f"{FORMAT!r} of this plan"):
        document = documents.parse(text, [FORMAT], ("plan", "reports", "counts"))
        _check_plan(plan, document["plan"])
        rows = document["counts"]
        if len(rows) != len(plan.parts) or not all(type(n) is int for row in rows for n in row):
            raise ValueError("the counts are not whole numbers, a list for each part")
        counts = tuple(np.array(row, np.int64) for row in rows)
        return _checked(plan, document["reports"], counts)


def _check_plan(plan: TalliedPlan, fingerprint: Any) -> None:
    if fingerprint != plan.fingerprint:
        raise ValueError("it belongs to another plan")


def _checked(plan: TalliedPlan, reports: Any, counts: tuple[Cells, ...]) -> Tally:
    """Return the tally that was read, or raise `ValueError` if it is impossible."""
    if type(reports) is not int or not 0 <= reports <= MOST_REPORTS:
        raise ValueError("invalid number of reports")
    for part, cells in zip(plan.parts, counts, strict=True):
        reason = part.invalid(reports, cells)
        if reason is not None:
            raise ValueError(reason)
    return Tally(plan.fingerprint, plan.parts, reports, counts, plan.estimator)


def _size(cells: Cells) -> int:
    """Return how many bytes the largest of some counters takes, and 0 if all are 0."""
    largest = max(int(cells.max()), -1 - int(cells.min()))
    return 0 if not cells.any() else largest.bit_length() // 8 + 1


def _unpack(octets: bytes, size: int, count: int) -> Cells:
    """Return counters of `size` bytes each."""
    if size > 8 or len(octets) != size * count:
        raise ValueError("it ends before its counters do")
    rows = np.frombuffer(octets, np.uint8).reshape(count, size)
    wide = np.zeros((count, 8), np.uint8)
    if size:
        wide[:, : 8 - size] = np.where(rows[:, :1] >= 128, 255, 0)
        wide[:, 8 - size :] = rows
    return wide.view(">i8").reshape(-1).astype(np.int64)
