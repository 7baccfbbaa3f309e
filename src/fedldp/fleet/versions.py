"""Which versions of the protocol the parts of a fleet speak, and how they report it.

One number stands for all that parts say to each other: the formats of questions, plans and models.

| version | since | formats |
|---|---|---|
| 1 | fedldp 0.1 | question 1, plan 1, model 1 |
| 2 | fedldp 0.2 | questions 1 and 2, plans 1 and 2, models 1 to 4, survey 1 |
| 3 | fedldp 0.3 | model 5, survey 2 |

A part that gets a question in a format it does not know says which versions it speaks: 33 bytes
that depend on its own version alone. A part of version 1 cannot do that. It answers a question that
it cannot read with zeros (`REFUSED`), as all parts answer an invalid one.
"""

import json
import struct
from collections.abc import Collection
from typing import NamedTuple

from fedldp import vehicle
from fedldp.errors import WireError
from fedldp.fleet import protocol
from fedldp.fleet.sockets import REFUSED

OLDEST, NEWEST = 1, 3

_MAGIC = b"\0fedldp speaks"  # an answer does not begin with 0
_LAYOUT = struct.Struct(f">{len(_MAGIC)}sBHH{protocol.HEADER - len(_MAGIC) - 5}x")
_PARTS = ("gateway", "vault")


class Speaks(NamedTuple):
    """The reply of a part that cannot read a question: the protocol versions that it speaks.

    >>> Speaks.from_bytes(Speaks("vault", 1, 2).to_bytes())
    Speaks(part='vault', oldest=1, newest=2)
    """

    part: str  # "gateway", or "vault": of all vaults behind a gateway
    oldest: int = OLDEST
    newest: int = NEWEST

    @property
    def version(self) -> str:
        """The versions, for people.

        >>> Speaks("vault", 1, 2).version, Speaks("vault", 1, 1).version
        ('protocol 1 to 2', 'protocol 1')
        """
        last = f" to {self.newest}" if self.newest != self.oldest else ""
        return f"protocol {self.oldest}{last}"

    def __str__(self) -> str:
        here = f"{self.part} speaks {self.version}, and this part {Speaks('').version}"
        if self.newest == NEWEST:
            return f"{here}: see the log of the {self.part}."
        older = f"the {self.part}'s machine" if self.newest < NEWEST else "this machine"
        return f"{here}: update fedldp on {older}."

    def to_bytes(self) -> bytes:
        """Return what is sent instead of an answer."""
        return _LAYOUT.pack(_MAGIC, _PARTS.index(self.part), self.oldest, self.newest)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Speaks | None":
        """Return what a part says about its versions; None if the bytes say anything else."""
        if len(data) != _LAYOUT.size or not data.startswith(_MAGIC):
            return None
        _, part, oldest, newest = _LAYOUT.unpack(data)
        if part >= len(_PARTS) or not 1 <= oldest <= newest < 100:
            return None
        found = cls(_PARTS[part], oldest, newest)
        return found if found.to_bytes() == data else None


class OtherVersion(WireError):
    """A part cannot read a question, because it speaks another version of the protocol.

    >>> print(OtherVersion(Speaks("vault", 1, 1)))
    the vault speaks protocol 1, and this part protocol 1 to ...: update fedldp on the vault...
    """

    def __init__(self, speaks: Speaks) -> None:
        super().__init__(f"the {speaks}")
        self.speaks = speaks


def check(data: bytes) -> None:
    """Raise `OtherVersion` if a part has sent its versions instead of an answer."""
    if (speaks := Speaks.from_bytes(data)) is not None:
        raise OtherVersion(speaks)


def refusal(data: bytes, part: str, models: Collection[str] = ()) -> bytes:
    """Return what a part answers to a question that it cannot read.

    `models` are the formats of what vehicles can compute; a gateway does not look at those.
    """
    return Speaks(part).to_bytes() if _is_newer(data, models) else REFUSED


def _is_newer(data: bytes, models: Collection[str]) -> bool:
    """Return whether a question, its plan or its model has a format that is not known here."""
    try:
        question = json.loads(data)
        if _is_unknown(question, protocol.FORMATS):
            return True
        inner = [(question["plan"], vehicle.PLAN_FORMATS), (question["model"], models)]
        return any(_is_unknown(json.loads(text), known) for text, known in inner if text and known)
    except (*vehicle.UNREADABLE, LookupError):
        return False


def _is_unknown(document: object, known: Collection[str]) -> bool:
    found = document.get("format") if isinstance(document, dict) else None
    return isinstance(found, str) and found.startswith("fedldp ") and found not in known
