"""Bytes as the content of a message of Flower's, and back."""

from fedldp.errors import MissingExtra, WireError

try:
    from flwr.app import ConfigRecord, RecordDict
except ImportError as error:
    raise MissingExtra("flwr", "flower") from error

NAME = "fedldp"  # of the one record in a message, and of the one value in it


def packed(data: bytes) -> RecordDict:
    """Return bytes as the content of a message: each further record would cost a kilobyte.

    >>> unpacked(packed(b"question"))
    b'question'
    """
    return RecordDict({NAME: ConfigRecord({NAME: data})})


def unpacked(content: RecordDict) -> bytes:
    """Return the bytes in the content of a message that has nothing else, or raise `WireError`."""
    records = dict(content.items())
    record = records.get(NAME)
    if len(records) != 1 or not isinstance(record, ConfigRecord) or list(record) != [NAME]:
        raise WireError("a message with other content than one record of bytes.")
    data = record[NAME]
    if not isinstance(data, bytes):
        raise WireError("a message with other content than one record of bytes.")
    return data
