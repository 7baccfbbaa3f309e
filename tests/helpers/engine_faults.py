"""Workers that die, or tasks that fail, once for each of some files: after the file was counted.

That is the worst moment: the work is done, and the engine does not know it.
"""

import os
import signal
from pathlib import Path

from fedldp.counting import counts

FOLDER, KIND = "FEDLDP_TEST_FAULTS", "FEDLDP_TEST_FAULT"  # a file for each fault; what happens
FAULTY = ("part-003", "part-017", "part-031")


def executor() -> int:
    """Return the process of Spark's executor, which is Java above this one."""
    found = os.getppid()
    while Path(f"/proc/{found}/comm").read_text().strip() != "java":
        found = int(Path(f"/proc/{found}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def fail() -> None:
    raise OSError("the connection was reset")


FAULTS = {
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "kill the executor": lambda: os.kill(executor(), signal.SIGKILL),
    "fail": fail,
}


def install(set_attribute=setattr) -> None:
    """Let the first try at each of the faulty files fail in this process and its copies."""
    real, folder = counts.count_shard, Path(os.environ[FOLDER])

    def count_shard(shard, *arguments, **options):
        found = real(shard, *arguments, **options)
        name = Path(shard.name).stem
        if name in FAULTY and not (folder / name).exists():
            (folder / name).touch()
            FAULTS[os.environ[KIND]]()
        return found

    set_attribute(counts, "count_shard", count_shard)
