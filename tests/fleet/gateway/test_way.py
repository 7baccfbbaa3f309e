"""A gateway in a container without a network: the way to its uplink, and how it is started."""

import asyncio
import socket
import ssl
from pathlib import Path

import httpx
import pytest

from fedldp.errors import DomainError
from fedldp.fleet import isolation, keys, sockets
from fedldp.fleet.gateway import __main__ as gateway_main
from fedldp.fleet.gateway.way import Way
from fedldp.fleet.server.endpoint import Endpoint, serve
from fedldp.fleet.sockets import Address


async def echo(reader, writer):
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


def test_bytes_go_through_unchanged_and_back(tmp_path):
    there, sent = tmp_path / "uplink.sock", bytes(range(256)) * 4000

    async def main():
        listening = sockets.listen(there, "name another")
        uplink = await asyncio.start_unix_server(echo, sock=listening)
        way = await asyncio.start_server(Way(Address.of(str(there))), "127.0.0.1", 0)
        port = way.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        found = await reader.readexactly(len(sent))
        writer.close()
        uplink.close()
        there.unlink()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        nothing = await reader.read()  # closed: the gateway tries again
        writer.close()
        way.close()
        await asyncio.sleep(0.05)  # for the ends of connections
        return found, nothing

    assert asyncio.run(asyncio.wait_for(main(), 60)) == (sent, b"")


def test_a_socket_is_for_its_user_and_group(tmp_path):
    path = tmp_path / "uplink.sock"
    with sockets.listen(path, "name another"):
        assert path.stat().st_mode & 0o777 == 0o660
        with pytest.raises(DomainError, match=r"another process listens on .*, or name another"):
            sockets.listen(path, "name another")
    sockets.listen(path, "name another").close()  # left behind by the first
    (tmp_path / "file").write_text("")
    with pytest.raises(DomainError, match="is not a socket: name another"):
        sockets.listen(tmp_path / "file", "name another")


@pytest.mark.parametrize(
    ("words", "uplink", "required"),
    [
        (["f"], None, False),
        (["f", "--require-isolation"], None, True),
        (["f", "--uplink", "9444", "--require-isolation"], 9444, True),
        (["f", "--uplink", "/run/u.sock"], Path("/run/u.sock"), False),
    ],
)
def test_how_a_gateway_is_started(monkeypatch, words, uplink, required):
    found = []
    monkeypatch.setattr(
        gateway_main.process, "run", lambda folder, **options: found.append((folder, options))
    )
    gateway_main.main(words)
    assert found == [(Path("f"), {"uplink": uplink, "require_isolation": required})]


@pytest.mark.parametrize("words", [[], ["f", "g"], ["f", "--uplink"], ["--uplink", "1"]])
def test_a_command_line_that_makes_no_sense(words):
    with pytest.raises(SystemExit, match="usage: python -m fedldp"):
        gateway_main.main(words)


def test_a_container_that_is_shared_is_not_private(monkeypatch):
    mine = isolation.os.geteuid()
    monkeypatch.setattr(isolation, "users", lambda _: {mine})
    assert isolation.alone() == isolation.Network(private=True)
    monkeypatch.setattr(isolation, "users", lambda _: {mine, 65534})
    with pytest.raises(DomainError, match="processes of other users run here"):
        isolation.alone()


def test_an_uplink_on_a_unix_socket_speaks_tls(tmp_path):
    """uvicorn serves a Unix socket that it is given as it serves any other."""
    keys.write_server(tmp_path, tmp_path / "ca.key", [])
    path = tmp_path / "uplink.sock"

    def status():
        context = ssl.create_default_context(cafile=tmp_path / "ca.crt")
        with socket.socket(socket.AF_UNIX) as plain:
            plain.connect(str(path))
            with context.wrap_socket(plain, server_hostname="localhost") as link:
                link.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                return link.recv(100).split()[1]

    async def main():
        pair = tmp_path / "server.crt", tmp_path / "server.key"
        with sockets.listen(path, "name another") as listening:
            endpoint = Endpoint(httpx.AsyncClient(), lambda _: True)
            serving = asyncio.create_task(serve(endpoint, *pair, listening))
            found = await asyncio.to_thread(status)
            serving.cancel()
            return found

    assert asyncio.run(asyncio.wait_for(main(), 60)) == b"404"
