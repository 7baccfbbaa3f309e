"""Run a command beside processes that keep all cores and the disk busy.

`make test-busy` runs the tests so: none of them may depend on how fast the machine is.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

BLOCK = bytes(1 << 20)
FILE_BLOCKS = 64


def compute() -> None:
    """Use one core until this process is ended."""
    while True:
        pass


def write(folder: str) -> None:
    """Write one file again and again, and wait for the disk after each block."""
    with Path(folder, str(os.getpid())).open("wb", buffering=0) as file:
        while True:
            file.seek(0)
            for _ in range(FILE_BLOCKS):
                file.write(BLOCK)
                os.fsync(file.fileno())


def main() -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--computing", type=int, default=8, help="processes that compute")
    parser.add_argument("--writing", type=int, default=2, help="processes that write to the disk")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        load = [multiprocessing.Process(target=compute) for _ in range(options.computing)]
        load += [
            multiprocessing.Process(target=write, args=(folder,)) for _ in range(options.writing)
        ]
        for process in load:
            process.daemon = True
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
        return subprocess.run(options.command, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
