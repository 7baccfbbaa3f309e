"""A road: how an agent reaches the server. An agent does not know which road it takes.

A road carries the messages of `messages` and nothing else. Every act may be repeated: the server
does the same again, or nothing.
"""

import threading
from typing import Protocol

from ..messages import Acknowledgement, Announcement, Call, Offers


class RoadError(OSError):
    """The server cannot be reached, or does not answer as it should: try again later."""


class UnwelcomeError(RoadError):
    """The server does not know this agent, or has revoked it."""


class Road(Protocol):
    """A way to a server."""

    def call(self, call: Call) -> Offers:
        """Ask for the open rounds and for places in them."""

    def question(self, digest: bytes) -> bytes:
        """Return the question with this SHA-256, which the caller checks."""

    def signed_job(self, digest: str) -> str:
        """Return the signed job with this SHA-256, which the caller checks."""

    def announce(self, said: Announcement) -> bool:
        """Say that an answer is drawn now; return whether the server waits for it."""

    def deliver(self, answer: bytes) -> Acknowledgement:
        """Deliver an answer; return what the server says about it."""

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        """Wait so long, or until `stop` is set or this road hears that there is something to do.

        Return whether it has heard that.
        """

    def close(self) -> None:
        """Close all connections."""
