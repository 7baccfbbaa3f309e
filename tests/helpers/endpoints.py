"""What a gateway shows to a front, a connection to one, and a server to stand behind it."""

import socket
import ssl
import threading
from base64 import b64encode
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import trustme
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP384R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedldp.fleet import keys

CALL = "/v1/fleet/pull-messages"


def shown(public):
    """Return a public key as a gateway shows it."""
    return b64encode(keys.public_pem(public)).decode()


def public(key):
    """Return the public key of a private one, as it is written to a file."""
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def fresh_key():
    return generate_private_key(SECP384R1())


def signed(key, time=None):
    """Return the headers with which a gateway proves who it is, as Flower makes them."""
    time = datetime.now(UTC).isoformat() if time is None else time
    signature = key.sign(time.encode(), ECDSA(SHA256()))
    return {
        "flwr-public-key": shown(public(key)),
        "flwr-timestamp": time,
        "flwr-signature": b64encode(signature).decode(),
    }


KEY = fresh_key()
GATEWAY = public(KEY)


def headers(key=KEY):
    """Return all headers of a call."""
    return signed(key) | {
        "accept": "application/protobuf",
        "content-type": "application/protobuf",
        "flwr-package-version": "1.41.0",
    }


def write_certificates(folder):
    """Write the certificate and the key of a server on this machine, and its authority's."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.crt")
    issued.cert_chain_pems[0].write_to_path(folder / "server.crt")
    issued.private_key_pem.write_to_path(folder / "server.key")


@contextmanager
def backend(folder, port, heard):
    """A server behind the endpoint that hears what is passed on, and answers the same bytes."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            heard.append((self.command, self.path, dict(self.headers), body))
            self.send_response(207)
            self.send_header("content-type", "application/protobuf")
            self.send_header("content-length", str(len(body)))
            self.send_header("set-cookie", "a=b")
            self.send_header("connection", "close")  # so that it is gone when it is shut down
            self.send_header("flwr-version-incompatibility-message", "old")
            self.end_headers()
            self.wfile.write(body)

        def __getattr__(self, name):
            if name.startswith("do_"):  # any method at all
                return self.do_POST
            raise AttributeError(name)

        def log_message(self, *_):
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Door:
    folder: Path
    port: int
    link: int
    heard: list

    @property
    def trusted(self):
        return ssl.create_default_context(cafile=self.folder / "ca.crt")

    def post(self, path=CALL, **options):
        with httpx.Client(verify=self.trusted, trust_env=False, timeout=60) as client:
            options = {"headers": headers()} | options
            return client.post(f"https://127.0.0.1:{self.port}{path}", **options)

    def raw(self, text, enough=None):
        """Send bytes as they are; return all that comes back until the end, or until enough."""
        with (
            socket.create_connection(("127.0.0.1", self.port), 20) as plain,
            self.trusted.wrap_socket(plain, server_hostname="localhost") as link,
        ):
            link.sendall(text)
            link.settimeout(20)
            found = b""
            while (enough is None or enough not in found) and (piece := link.recv(1 << 16)):
                found += piece
            return found
