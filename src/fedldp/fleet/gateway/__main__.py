"""`python -m fedldp.fleet.gateway FOLDER [--uplink PORT|PATH] [--require-isolation]`: a gateway.

It is what `fedldp fleet gateway` becomes, without the packages of the command line, which need
memory for as long as the gateway runs.
"""

import sys
from pathlib import Path

from fedldp.errors import FedLDPError
from fedldp.fleet import logs
from fedldp.fleet.gateway import process

_USAGE = "usage: python -m fedldp.fleet.gateway FOLDER [--uplink PORT|PATH] [--require-isolation]"


def main(words: list[str]) -> None:
    """Run a gateway until SIGTERM or Ctrl-C. Print a known error as one line, and exit."""
    words = list(words)
    if required := "--require-isolation" in words:
        words.remove("--require-isolation")
    where: int | Path | None = None
    if words[1:2] == ["--uplink"] and len(words) == 3:
        where = int(words[2]) if words[2].isdecimal() else Path(words[2])
        del words[1:]
    if len(words) != 1:
        sys.exit(_USAGE)
    try:
        with logs.to_stderr():
            process.run(Path(words[0]), uplink=where, require_isolation=required)
    except (FedLDPError, OSError) as error:
        sys.exit(f"fedldp: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
