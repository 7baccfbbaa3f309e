"""The command line. Needs the extra `cli`: click and rich."""

import os
import sys

from fedldp.errors import FedLDPError, MissingExtra
from fedldp.vehicle import protect_standard_files, warn_owner


def main() -> None:
    """Run `fedldp`; print known errors as one line on standard error, without a traceback."""
    protect_standard_files()
    if sys.stderr is None:  # click would print errors on standard output
        sys.stderr = os.fdopen(2, "w")  # the null device now
    try:
        _run()
    except (FedLDPError, OSError) as error:
        warn_owner(f"fedldp: {error}")
        sys.exit(1)


def _run() -> None:
    try:
        from fedldp.cli.app import fedldp

        fedldp(prog_name="fedldp")  # which imports the subcommand
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("click", "rich"):
            raise
        raise MissingExtra(package, "cli") from error
