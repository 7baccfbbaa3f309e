"""What campaigns need from a broker: a small interface, so that tests can do without one.

Nobody here relies on what a broker promises. A message may be lost, arrive twice or arrive late,
and a broker may forget everything: a vehicle sends the same bytes again until a counter has
acknowledged them.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, Self

Sleep = Callable[[float], object]  # returns earlier if the program should stop


class Message(NamedTuple):
    """A message that a broker has delivered."""

    topic: str
    payload: bytes
    number: int = 0  # by which it is acknowledged to the broker


class Connection(Protocol):
    """A connection with a broker, which `with` closes. Methods raise `OSError` once it is lost."""

    def subscribe(self, topic: str) -> None:
        """Ask for the messages of a topic, which may have wildcards."""

    def publish(self, topic: str, payload: bytes, *, certain: bool = False) -> None:
        """Send a message; with `certain`, the broker repeats it until it is acknowledged."""

    def retain(self, topic: str, payload: bytes, seconds: int) -> None:
        """Send a message that the broker keeps for those who subscribe later, for some time.

        Empty bytes remove the one that it keeps. Returns when the broker has confirmed it.
        """

    def receive(self, seconds: float) -> Message | None:
        """Return the next message, or None if none arrives within these seconds."""

    def acknowledge(self, message: Message) -> None:
        """Confirm a message, so that the broker does not deliver it again."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class Connect(Protocol):
    """Opens connections with a broker, or raises `OSError`."""

    def __call__(self, client: str, *, seconds_kept: int = 0) -> Connection:
        """Connect under a name that nobody else uses.

        For `seconds_kept` after a connection is lost, the broker keeps its subscriptions and what
        was not acknowledged for the next connection under this name.
        """
