"""The logs of a fleet: one event is one line, as text for people or as JSON for programs.

All parts log through `logging.getLogger("fedldp.fleet...")`. `to_stderr` sends these lines to
standard error, and `to_file` to a file as well. Two environment variables hold the format and the
level, so that the processes that a part starts log in the same way. Nothing else is logged here:
Flower's own output is in files of its own.

What else is known about an event, such as its job, round or gateway, is given as `extra`. It
becomes an entry of the line in JSON; a text contains it in words.
"""

import contextlib
import json
import logging
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import NamedTuple, final

from fedldp._internal import owner
from fedldp.errors import DomainError
from fedldp.storage import files

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
FORMAT, LEVEL = "FEDLDP_LOG_FORMAT", "FEDLDP_LOG_LEVEL"  # environment variables
LARGEST = 1 << 23  # bytes; a larger file is set aside, and replaces the one set aside before

_LOGGER = "fedldp.fleet"
_END = 1 << 18  # bytes at the end of a file in which `last` looks for lines
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_TEXT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:,\d+)? ([A-Z]+) +(.*)")


@final
class Text(logging.Formatter):
    """A line for people: `2026-11-16 11:20:03 INFO    Round 3 of 10 is done`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return an event as one line."""
        time = datetime.fromtimestamp(record.created)  # local, for people
        return f"{time:%Y-%m-%d %H:%M:%S} {record.levelname:7} {one_line(_message(record))}"


@final
class Json(logging.Formatter):
    """A line for programs: a JSON object with `time` (UTC), `level`, `event` and the extras.

    >>> record = logging.makeLogRecord({"levelname": "INFO", "msg": "asked", "job": "spring"})
    >>> json.loads(Json().format(record)) | {"time": ""}
    {'time': '', 'level': 'INFO', 'event': 'asked', 'job': 'spring'}
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return an event as one line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entries = {"time": time, "level": record.levelname, "event": _message(record)}
        known = {name: value for name, value in vars(record).items() if name not in _OWN}
        return json.dumps(entries | known, default=str)


_FORMATTERS = {"text": Text, "json": Json}


@final
class _File(logging.Handler):
    """Writes to a file that is set aside when it is too large, so that nobody can fill the disk.

    A vault logs what depends on its data: a line that cannot be written, as on a full disk, is left
    out. There is no buffer, which would be written later.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file: FileIO | None = self._opened()

    def _opened(self) -> FileIO:
        return FileIO(self._path, "a")

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):
            self._file = self._file or self._opened()
            self._file.write(f"{self.format(record)}\n".encode(errors="replace"))
            if self._file.tell() > LARGEST:
                self._file.close()
                self._file = None  # the next event opens it again
                set_aside(self._path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


@contextlib.contextmanager
def to_stderr(
    format: str | None = None,  # noqa: A002 (as the option is called)
    level: str | None = None,
) -> Iterator[None]:
    """Log to standard error, in this process and in those that it starts meanwhile.

    Without arguments the environment decides: text of the level INFO, unless it names others.
    """
    given = {name: value for name, value in ((FORMAT, format), (LEVEL, level)) if value}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        with _added(owner.Lines()):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def to_file(path: Path) -> Iterator[None]:
    """Log to a file too, whose folder is created if necessary. One process writes to it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    set_aside(path)
    with _added(_File(path)):
        yield


def set_aside(path: Path) -> None:
    """Rename a log that has become too large; an older one of that name is replaced."""
    if path.exists() and path.stat().st_size > LARGEST:
        path.replace(path.with_suffix(".old"))


@contextlib.contextmanager
def _added(handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger(_LOGGER)
    before = logger.level
    with contextlib.closing(handler):
        handler.setFormatter(_FORMATTERS[_chosen(FORMAT, FORMATS, "text")]())
        logger.setLevel(_chosen(LEVEL, LEVELS, "info").upper())
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)


def _chosen(variable: str, values: tuple[str, ...], default: str) -> str:
    found = os.environ.get(variable) or default
    if found not in values:
        raise DomainError(
            f"the environment variable {variable} must be one of {', '.join(values)}; "
            f"got {found!r:.80}."
        )
    return found


def _message(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[1] is None:
        return record.getMessage()
    error = record.exc_info[1]
    return f"{record.getMessage()}: {type(error).__name__}: {error}"


def one_line(text: str) -> str:
    """Return a text in one line, whatever a stranger has put into it.

    >>> one_line("a question" + chr(10) + "of two lines" + chr(27))
    'a question of two lines?'
    """
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.splitlines()))


class Line(NamedTuple):
    """A line of a log."""

    time: str  # ISO 8601, UTC
    level: str
    text: str


def last(path: Path, count: int = 5, level: int = logging.WARNING) -> list[Line]:
    """Return the last lines of a log, of this level or above; none if there is no such file.

    Lines in another format, such as output of other programs, are skipped.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "server.log")
    ...     _ = path.write_text('{"time": "2026-11-16T11:20:03+00:00", "level": "ERROR", '
    ...                         '"event": "The disk is full"}')
    ...     [line.text for line in last(path)]
    ['The disk is full']
    """
    try:
        data = files.read_end(path, _END)
    except FileNotFoundError:
        return []
    names = logging.getLevelNamesMapping()
    found: list[Line] = []
    for text in reversed(data.decode("utf-8", errors="replace").splitlines()):
        line = _parsed(text)
        if line is not None and names.get(line.level, logging.NOTSET) >= level:
            found.append(line)
            if len(found) == count:
                break
    return found[::-1]


def _parsed(text: str) -> Line | None:
    try:
        if text.startswith("{"):
            document = json.loads(text)
            time, level, event = (one_line(str(document[n])) for n in ("time", "level", "event"))
        elif found := _TEXT.fullmatch(text):
            time, level, event = found[1], found[2], one_line(found[3])
        else:
            return None
        return Line(datetime.fromisoformat(time).astimezone(UTC).isoformat(), level, event)
    except (ValueError, KeyError, OverflowError, RecursionError):
        return None
