"""What a gateway has passed on, and whether it reaches the server: two small files for its owner.

The app of the gateway writes the last questions, with the counts that each vault answered. The
uplink writes whether the server can be reached. The gateway's own process looks at both and logs
what is new: the output of Flower's processes is kept apart.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any, NamedTuple, final

from fedldp.fleet import logs
from fedldp.fleet.protocol import Question
from fedldp.fleet.state import note, noted

QUESTIONS, QUESTIONS_FORMAT = "questions.json", "fedldp gateway questions 1"
CONNECTION, CONNECTION_FORMAT = "connection.json", "fedldp gateway connection 1"
CONNECTED = "connected"

_LAST = 20  # questions that are kept

_log = logging.getLogger("fedldp.fleet.gateway")


class Reply(NamedTuple):
    """What a vault answered to a question. A gateway sees these numbers in the answer anyway."""

    vault: str  # its name
    asked: int  # vehicles
    answered: int
    silent: int
    why: str = ""  # why it is silent, if that is known

    def __str__(self) -> str:
        said = f"{self.vault} answered for {self.answered:,} of {self.asked:,} vehicles"
        return f"{self.vault} was silent ({self.why or 'not ready'})" if self.silent else said


class Passed(NamedTuple):
    """A question that was passed on, and what came of it."""

    number: int  # they are counted
    time: float  # when it came, in seconds since 1970
    job: str | None = None
    round: int | None = None
    n: int | None = None
    replies: tuple[Reply, ...] | None = None  # None while the vaults are asked
    error: str = ""

    def tell(self) -> None:
        """Log what came of it, or that it has come."""
        extra = {"job": self.job, "round": self.round} if self.job else {}
        what = f"{self.job}, round {self.round}" if self.job else "a question"
        if self.error:
            _log.error("%s: %s", what, self.error, extra=extra)
        elif self.replies is None:
            _log.info("%s: asked for %d vehicles.", what, self.n or 0, extra=extra)
        else:
            level = logging.WARNING if any(each.silent for each in self.replies) else logging.INFO
            _log.log(level, "%s: %s.", what, "; ".join(map(str, self.replies)), extra=extra)


@final
class Questions:
    """The file with the last questions, which one process at a time writes."""

    def __init__(self, state: Path) -> None:
        self._path = state / QUESTIONS

    def load(self) -> list[Passed]:
        """Return the last questions, the oldest first."""

        def understood(document: dict[str, Any]) -> list[Passed]:
            found = []
            for entry in document["questions"]:
                replies = entry.pop("replies")
                read = None if replies is None else tuple(Reply(**each) for each in replies)
                found.append(Passed(**entry, replies=read))
            return found

        return noted(self._path, QUESTIONS_FORMAT, understood, [])

    def came(self, question: Question | None) -> Passed:
        """Record that a question came."""
        before = self._readable()
        number = before[-1].number + 1 if before else 1
        found = Passed(number, time())
        if question is not None:
            found = Passed(number, time(), question.job, question.round, question.n)
        self._save([*before, found])
        return found

    def ended(self, passed: Passed, replies: Sequence[Reply] | None, error: str = "") -> None:
        """Record what came of a question."""
        known = None if replies is None else tuple(replies)
        done = passed._replace(replies=known, error=logs.one_line(error))
        others = [each for each in self._readable() if each.number != passed.number]
        self._save([*others, done])

    def _readable(self) -> list[Passed]:
        try:
            return self.load()
        except (OSError, ValueError):  # damaged: begin again
            return []

    def _save(self, questions: Sequence[Passed]) -> None:
        entries = []
        for each in questions[-_LAST:]:
            replies = None if each.replies is None else [reply._asdict() for reply in each.replies]
            entries.append(each._asdict() | {"replies": replies})
        note(self._path, QUESTIONS_FORMAT, questions=entries)


class Connection(NamedTuple):
    """Whether a gateway reaches its server."""

    state: str = "not connected"  # or CONNECTED
    since: float | None = None  # seconds since 1970
    why: str = ""

    @classmethod
    def load(cls, state: Path) -> "Connection":
        """Read the file of the uplink."""

        def understood(found: dict[str, Any]) -> "Connection":
            return cls(str(found["state"]), float(found["since"]), str(found["why"]))

        return noted(state / CONNECTION, CONNECTION_FORMAT, understood, cls())

    def save(self, state: Path) -> None:
        """Write the file of the uplink."""
        note(state / CONNECTION, CONNECTION_FORMAT, **self._asdict())

    def tell(self, server: str) -> None:
        """Log it."""
        if self.state == CONNECTED:
            _log.info("Connected to the server at %s.", server)
        else:
            _log.warning("Not connected to the server at %s: %s", server, self.why)


@final
class Teller:
    """Logs what is new in the two files."""

    def __init__(self, state: Path, server: str) -> None:
        self._state, self._server, self._connection = state, server, Connection()
        self._told: set[tuple[int, bool]] = set()
        with suppress(OSError, ValueError):  # damaged: the status says so
            self._connection = Connection.load(state)
            earlier = Questions(state).load()
            self._told = {(each.number, came) for each in earlier for came in (True, False)}

    def look(self) -> None:
        """Log what has happened since the last look."""
        try:
            connection, questions = Connection.load(self._state), Questions(self._state).load()
        except (OSError, ValueError):  # the status says so
            return
        if connection != self._connection:
            self._connection = connection
            connection.tell(self._server)
        for each in questions:
            if each.job:  # it may have come and been answered since the last look
                self._tell(each._replace(replies=None, error=""), True)
            if each.replies is not None or each.error:
                self._tell(each, False)
        kept = {each.number for each in questions}
        self._told = {key for key in self._told if key[0] in kept}

    def _tell(self, passed: Passed, came: bool) -> None:
        """Log that a question came, or what came of it, unless that was logged before."""
        if (passed.number, came) not in self._told:
            self._told.add((passed.number, came))
            passed.tell()
