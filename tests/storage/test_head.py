"""The head of a database: which bytes say what it must hold."""

import pytest

from fedldp.storage import head
from fedldp.storage.head import Head, Mark


@pytest.mark.parametrize("place", [0, 8, 24, 32, 47, 48, 63, 64, 4095])
def test_every_byte_of_a_block_counts(tmp_path, place):
    written = Head(tmp_path / "ledger.db-head", create=True)
    written.start(Mark(b"i" * 16, 6, b"d" * 16))
    newest = Mark(b"i" * 16, 7, b"e" * 16)
    written.write(newest)
    data = bytearray(written.path.read_bytes())
    written.close()
    assert head.read(bytes(data)) == (newest, True)
    data[4096 + place] ^= 1
    assert head.read(bytes(data)) == (newest, True)  # the copy tells
    data[3 * 4096 + place] ^= 1
    mark, certain = head.read(bytes(data))
    assert (mark.commits, certain) == (6, False)
