"""Statistics of a fleet, from a CSV file with a row for each vehicle.

python examples/statistics_from_csv.py              # flights, each a vehicle
python examples/statistics_from_csv.py fleet.csv    # your own, once SCHEMA names its columns
"""

import csv
import sys
import tempfile
import warnings
from pathlib import Path

import fedldp
from fedldp import datasets

# What is asked, and within which bounds. All of it is public and comes from you: bounds that are
# taken from the data give some of the data away. A vehicle clips values outside them.
SCHEMA = fedldp.Schema.of(dep_delay=(-30, 120), distance=(0, 5000), origin=["EWR", "JFK", "LGA"])
EPSILON = 2.0


def main(path: Path, source: fedldp.Source) -> fedldp.Estimate:
    """Let every vehicle report, and print what the server learns."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    # A vehicle clips values outside the bounds, and replaces values that are missing or unreadable.
    # Only the owner of the data can see how many, so look: here a few delays are very long.
    print(SCHEMA.check(rows))

    # The plan is one file that the vehicles and the server hold. It contains the integers that
    # reports are drawn from, so that a vehicle can check what it is asked to spend.
    plan = fedldp.Plan(SCHEMA, EPSILON)

    # On the vehicles. Here all of them are in one process; in a fleet each reports its own row.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fedldp.errors.DataWarning)  # we have looked
        packet = plan.report(rows, source).to_bytes()

    # On the server, which sees these bytes and nothing else.
    estimate = plan.parse(packet).estimate()
    print(f"{len(rows)} vehicles, {plan.bits} bits each, {len(packet)} bytes in all")
    for name in ("dep_delay", "distance"):
        mean, (low, high) = estimate[name].mean, estimate[name].interval
        print(f"{name}: mean {mean:.1f} ± {(high - low) / 2:.1f}")  # half of the 95% interval
    for origin, share in zip(
        SCHEMA["origin"].categories, estimate["origin"].frequencies, strict=True
    ):
        print(f"origin {origin}: {share:.1%}")
    return estimate


def write_flights(path: Path, rows: int = 50_000) -> None:
    """Write some of the flights that come with fedldp to a file."""
    flights = datasets.load("flights", rows=rows)
    delays, distances, origins = flights.matrix(names=SCHEMA.names).T.astype(int)
    labels = SCHEMA["origin"].categories
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(SCHEMA.names)
        table.writerows(zip(delays, distances, (labels[code] for code in origins), strict=True))


if __name__ == "__main__":
    # source() takes its key from the operating system. source(7) would be the same in every run,
    # and is for tests only.
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]), fedldp.source())
    else:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "flights.csv"
            write_flights(made)
            main(made, fedldp.source())
