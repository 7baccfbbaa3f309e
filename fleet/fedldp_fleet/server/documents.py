"""Questions and signed jobs by their hash: the same bytes for all agents, held in memory."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import final

from fedldp_fleet.store.base import Store, Transaction

MOST_BYTES_IN_MEMORY = 1 << 24

_HEX_DIGITS = 2 * hashlib.sha256().digest_size


@final
class Documents:
    """Reads what agents fetch, and keeps what was asked for last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._size = 0

    async def question(self, digest: str) -> bytes | None:
        """Return the question with this SHA-256."""
        return await self._get("question", digest, lambda store: _question(store, digest))

    async def job(self, digest: str) -> bytes | None:
        """Return the signed job with this SHA-256."""
        return await self._get("job", digest, lambda store: _signed(store, digest))

    async def _get(
        self, kind: str, digest: str, query: Callable[[Transaction], bytes | None]
    ) -> bytes | None:
        key = kind, digest
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        if len(digest) != _HEX_DIGITS or digest.strip("0123456789abcdef"):
            return None
        found = await asyncio.get_running_loop().run_in_executor(None, self._read, query)
        if found is not None and key not in self._kept:
            self._kept[key] = found
            self._size += len(found)
            while self._size > MOST_BYTES_IN_MEMORY:
                self._size -= len(self._kept.popitem(last=False)[1])
        return found

    def _read(self, query: Callable[[Transaction], bytes | None]) -> bytes | None:
        with self._store.reading() as store:
            return query(store)


def _question(store: Transaction, digest: str) -> bytes | None:
    return store.question(bytes.fromhex(digest))


def _signed(store: Transaction, digest: str) -> bytes | None:
    texts = (row.signed.encode() for row in store.jobs())
    return next((text for text in texts if hashlib.sha256(text).hexdigest() == digest), None)
