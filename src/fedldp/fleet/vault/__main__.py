"""`python -m fedldp.fleet.vault FOLDER [--strict]` runs a vault without click and rich."""

import sys

from fedldp import vehicle
from fedldp._internal import owner
from fedldp.errors import FedLDPError


def main(words: list[str]) -> None:
    """Answer questions until SIGTERM or Ctrl-C. Print a known error as one line, and exit."""
    owner.protect_process()
    from fedldp.fleet import logs  # after the standard files are open
    from fedldp.fleet.vault.process import VaultConfig

    folders = [word for word in words if word != "--strict"]
    if len(folders) != 1 or len(words) > 2:
        vehicle.warn_owner("usage: python -m fedldp.fleet.vault FOLDER [--strict]")
        sys.exit(1)
    try:
        with logs.to_stderr():
            VaultConfig.load(folders[0]).run(strict="--strict" in words)
    except (FedLDPError, OSError) as error:
        vehicle.warn_owner(f"fedldp: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
