"""What a process that holds data tells their owner: on standard error, by `vehicle.warn_owner`.

The texts depend on the data. So neither a report nor an exit status may depend on whether they can
be written, and nobody but the owner may read them.
"""

import io
import logging
import sys
import warnings
from contextlib import suppress
from typing import final

from fedldp import vehicle


@final
class OwnerHandler(logging.Handler):
    """A handler of logs that writes each event for the owner, and that nothing can stop."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):
            vehicle.warn_owner(self.format(record))


@final
class OwnerStream(io.TextIOBase):
    """Standard error for code that is not our own: it never raises, waits or keeps a text.

    Python, NumPy and readers of data frames print warnings there, which depend on the data.
    """

    encoding = "utf-8"

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, text: str) -> int:
        """Write what fits, and leave out the rest."""
        if not isinstance(text, str):
            raise TypeError(f"expected a text; got {type(text).__name__}.")
        with suppress(Exception):
            vehicle.write_now(self._descriptor, text.encode(self.encoding, "backslashreplace"))
        return len(text)

    def fileno(self) -> int:
        """Return the number of the file."""
        return self._descriptor

    def writable(self) -> bool:
        """Return True."""
        return True


def log(logger: logging.Logger, level: int, text: str, *values: object) -> None:
    """Log what depends on the data, whatever handlers a program around this one has added."""
    with suppress(Exception):
        logger.log(level, text, *values)


def open_standard_error() -> None:
    """Open the null device as standard error if it is closed: others would write to stdout."""
    vehicle.protect_standard_files()
    if sys.stderr is None:
        sys.stderr = OwnerStream(2)


def protect_process() -> None:
    """Let nothing depend on standard error in a process that holds data: call this first."""
    vehicle.protect_standard_files()
    if sys.stderr is sys.__stderr__:  # otherwise the process belongs to another program
        sys.stderr = OwnerStream(2)
    if any("error" in option for option in sys.warnoptions):
        warnings.simplefilter("default")  # data may cause warnings, but no errors
