"""Questions and signed jobs by their hash: the same bytes for all agents, held in memory."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
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
        self._reading: dict[tuple[str, str], asyncio.Task[bytes | None]] = {}

    def question(self, digest: str) -> Awaitable[bytes | None]:
        """Return the question with this SHA-256."""
        return self._get("question", digest, lambda store: _question(store, digest))

    def job(self, digest: str) -> Awaitable[bytes | None]:
        """Return the signed job with this SHA-256."""
        return self._get("job", digest, lambda store: _signed(store, digest))

    def _get(
        self, kind: str, digest: str, query: Callable[[Transaction], bytes | None]
    ) -> Awaitable[bytes | None]:
        key, loop = (kind, digest), asyncio.get_running_loop()
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        elif len(digest) == _HEX_DIGITS and not digest.strip("0123456789abcdef"):
            if key not in self._reading:
                self._reading[key] = loop.create_task(self._fetch(key, query))
            return asyncio.shield(self._reading[key])  # many wait for one look
        done: asyncio.Future[bytes | None] = loop.create_future()
        done.set_result(found)
        return done

    async def _fetch(
        self, key: tuple[str, str], query: Callable[[Transaction], bytes | None]
    ) -> bytes | None:
        try:
            found = await asyncio.get_running_loop().run_in_executor(None, self._read, query)
        finally:
            del self._reading[key]
        if found is not None:
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
