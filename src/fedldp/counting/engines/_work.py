"""What all engines share: count one file, merge results, and check that nothing is missing.

Engines send bytes to each other: the plan as JSON, a result as `Counted.to_bytes` writes it. A task
that is repeated gives the same bytes, and results that share a file do not merge. So whatever an
engine retries, loses or repeats, the outcome is the exact result or an error.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

from fedldp._internal.text import counted
from fedldp.counting import counts
from fedldp.counting.counts import MOST_LISTED, Counted, Manifest
from fedldp.counting.shards import ShardPath, find, find_all
from fedldp.errors import DataWarning, DomainError
from fedldp.plan.plan import Plan

RESULTS_PER_TASK = 16  # that are merged


@final
@dataclass(frozen=True)
class Work:
    """How to count and merge on a worker; small, and the same for all of them.

    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> work = Work.of(plan)
    >>> work.merged([work.counted([b"damaged"]), work.counted([None])])
    <Counted: 0 vehicles in 0 packets; 2 packets refused (missing 1, length 1)>
    """

    plan: str  # as JSON
    column: str | None
    most_listed: int

    @classmethod
    def of(cls, plan: Plan, column: str | None = None, most_listed: int = 0) -> "Work":
        """Return the work for a plan; a plan for study and an invalid number are refused here."""
        plan.count([], most_listed=most_listed)
        return cls(plan.to_json(), column, most_listed)

    def counted_file(self, address: str) -> bytes:
        """Count the file with an address."""
        (shard,) = find(address)
        found = counts.count_shard(shard, _plan(self.plan), self.column, self.most_listed)
        return found.to_bytes()

    def counted(self, packets: Any) -> bytes:
        """Count packets that have no file of their own: a list, a column or a reader of batches."""
        found = _plan(self.plan).count(packets, column=self.column, most_listed=self.most_listed)
        return found.to_bytes()

    def merged(self, results: Iterable[bytes]) -> Counted:
        """Add results; those that share a file raise `DomainError`."""
        plan = _plan(self.plan)
        each = (Counted.from_bytes(data, plan) for data in results)
        return counts.merge(plan.count([]), each, self.most_listed)

    def merge(self, results: Iterable[bytes]) -> bytes:
        """Add results, and return bytes again."""
        return self.merged(results).to_bytes()


@final
@dataclass(frozen=True)
class Files:
    """The files to count, each of them once."""

    addresses: dict[str, str]  # by name

    @classmethod
    def of(cls, files: ShardPath | Iterable[ShardPath], known: Manifest | None = None) -> "Files":
        """Find files, without those that are counted already; warn about those named twice."""
        found = find_all(files)
        addresses = {shard.name: shard.address for shard in found}
        if len(addresses) < len(found):
            warnings.warn(repeated_files(len(found) - len(addresses)), DataWarning, stacklevel=3)
        done = known.shards if known is not None else {}
        return cls({name: each for name, each in addresses.items() if name not in done})

    def check(self, found: Counted) -> Counted:
        """Return the result of these files, and refuse it if some are missing or others counted."""
        wanted, given = self.addresses.keys(), found.manifest.shards.keys()
        if wanted != given:
            raise DomainError(
                f"the engine must count each of {counted(len(wanted), 'file')} once; it left out "
                f"{len(wanted - given):,} and counted {len(given - wanted):,} others. Nothing of "
                "this result is right: count again."
            )
        check_copies(found.manifest)
        return found


def repeated_files(number: int) -> str:
    """Return what to say about files that were named more than once."""
    return f"{counted(number, 'file')} named more than once: each file counts once."


def check_copies(manifest: Manifest) -> None:
    """Warn about files with equal contents: copies, unless they are small and equal by chance."""
    first: dict[str, str] = {}
    twins = [
        f"{name} = {first[contents]}"
        for name, contents in sorted(manifest.shards.items())
        if first.setdefault(contents, name) != name
    ]
    if twins:
        warnings.warn(
            f"{counted(len(twins), 'file')} with the contents of another one, and both count "
            f"({twins[0]}{', ...' if len(twins) > 1 else ''}). Small files may be equal by chance; "
            "remove copies, whose vehicles would count twice.",
            DataWarning,
            stacklevel=4,
        )


@lru_cache(maxsize=8)
def _plan(text: str) -> Plan:
    """Return a plan, which is validated once in a process and not in each task."""
    return Plan.from_json(text)


__all__ = ["MOST_LISTED", "RESULTS_PER_TASK", "Files", "Work", "check_copies", "repeated_files"]
