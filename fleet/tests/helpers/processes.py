"""Programs of others that say in their log when they can be used."""

import contextlib
import queue
import subprocess
import threading

PATIENCE = 60.0


def started(command, log, ready, **options):
    """Start a program, and return when a line that it writes on standard error ends as `ready`."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options
    )
    told = queue.SimpleQueue()

    def copy():
        with process.stderr as lines, log.open("ab", buffering=0) as file:
            for line in lines:
                with contextlib.suppress(OSError):  # a full disk
                    file.write(line)
                if line.rstrip().endswith(ready):
                    told.put(True)
        told.put(False)  # it has ended

    threading.Thread(target=copy, daemon=True).start()
    try:
        assert told.get(timeout=PATIENCE), log.read_text()
    except queue.Empty:
        process.kill()
        raise TimeoutError(log.read_text()) from None
    return process
