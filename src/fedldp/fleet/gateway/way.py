"""Ways through the wall of a gateway's private network: bytes are passed on, unchanged.

Run as a program, `python -m fedldp.fleet.gateway.way PATH` passes connections to the socket that it
has inherited on to an uplink that listens on a Unix socket: the uplink runs in another container.
"""

import asyncio
import sys
from contextlib import suppress
from typing import final

from fedldp.fleet import isolation
from fedldp.fleet.sockets import Address


@final
class Way:
    """Passes the bytes of connections on to an address and back."""

    def __init__(self, there: Address) -> None:
        self._there = there

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection; close it if nobody is there: the gateway tries again."""
        try:
            if self._there.path:
                there = await asyncio.open_unix_connection(self._there.path)
            else:
                there = await asyncio.open_connection(self._there.host, self._there.port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()


async def run(path: str) -> None:
    """Pass connections on until a signal."""
    (listening,) = isolation.inherited()
    serving = await asyncio.start_server(Way(Address.of(path)), sock=listening)
    await serving.serve_forever()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1]))
