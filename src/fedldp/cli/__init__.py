"""The command line. Needs the extra `cli`: click and rich."""

import sys

from fedldp._internal.owner import open_standard_error
from fedldp.errors import FedLDPError, MissingExtra
from fedldp.vehicle import warn_owner


def main() -> None:
    """Run `fedldp`; print known errors as one line on standard error, without a traceback."""
    open_standard_error()
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
