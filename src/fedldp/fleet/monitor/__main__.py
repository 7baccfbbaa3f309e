"""`python -m fedldp.fleet.monitor FOLDER [LISTEN [TOKEN]]` runs a monitor without click."""

import sys
from pathlib import Path

from fedldp.errors import FedLDPError
from fedldp.fleet import logs
from fedldp.fleet.monitor.process import run


def main(words: list[str]) -> None:
    """Serve until SIGTERM or Ctrl-C. Print a known error as one line, and exit."""
    if not 1 <= len(words) <= 3:
        sys.exit("usage: python -m fedldp.fleet.monitor FOLDER [LISTEN [TOKEN]]")
    listen = words[1] if len(words) > 1 else None
    token = Path(words[2]) if len(words) > 2 else None
    try:
        with logs.to_stderr():
            run(Path(words[0]), listen, token)
    except (FedLDPError, OSError) as error:
        sys.exit(f"fedldp: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
