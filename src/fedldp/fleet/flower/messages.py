"""Bytes as the content of a Flower message, and back."""

from fedldp.errors import MissingExtra, WireError

try:
    from flwr.app import ConfigRecord, RecordDict
except ImportError as error:
    raise MissingExtra("flwr", "flower") from error

NAME = "fedldp"  # of the one record in a message, and of the one value in it

_EXPECTED = "a message must contain one record of bytes and nothing else."


def packed(data: bytes) -> RecordDict:
    """Return bytes as the content of a message, in one record: each record costs a kilobyte.

    >>> unpacked(packed(b"question"))
    b'question'
    """
    return RecordDict({NAME: ConfigRecord({NAME: data})})


def unpacked(content: RecordDict) -> bytes:
    """Return the bytes that a message contains; raise `WireError` if it contains anything else."""
    records = dict(content.items())
    record = records.get(NAME)
    if len(records) != 1 or not isinstance(record, ConfigRecord) or list(record) != [NAME]:
        raise WireError(_EXPECTED)
    data = record[NAME]
    if not isinstance(data, bytes):
        raise WireError(_EXPECTED)
    return data
