"""`python -m fedldp.fleet.vault FOLDER [--strict]` runs a vault without click and rich."""

import sys

from fedldp.errors import FedLDPError
from fedldp.fleet import logs
from fedldp.fleet.vault.process import VaultConfig


def main(words: list[str]) -> None:
    """Answer questions until SIGTERM or Ctrl-C. Print a known error as one line, and exit."""
    folders = [word for word in words if word != "--strict"]
    if len(folders) != 1 or len(words) > 2:
        sys.exit("usage: python -m fedldp.fleet.vault FOLDER [--strict]")
    try:
        with logs.to_stderr():
            VaultConfig.load(folders[0]).run(strict="--strict" in words)
    except (FedLDPError, OSError) as error:
        sys.exit(f"fedldp: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
