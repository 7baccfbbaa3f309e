"""A real server with TLS, in a thread of the test's own process.

with running(tmp_path) as server:
    code = server.enroll("car-7", vehicles=2)
    server.add(statistic(wanted=2))        # a job of engine_cases, signed for this server
    ... server.url, server.ca (a file), server.public (its key), server.job("spring")
"""

import asyncio
import contextlib
import datetime
import ssl
import threading
from pathlib import Path

import trustme

from fedldp.signing import PrivateKey
from fedldp_fleet import engine, jobs
from fedldp_fleet.engine import Engine
from fedldp_fleet.jobs import Schedule
from fedldp_fleet.mqtt import LARGEST_PACKET
from fedldp_fleet.server import members
from fedldp_fleet.server.app import AgentConnection, HTTPSServer
from fedldp_fleet.server.desk import Desk
from fedldp_fleet.server.documents import Documents
from fedldp_fleet.server.guard import Guard
from fedldp_fleet.server.listener import Limits, Listener, bound, serve, tls_context
from fedldp_fleet.server.mqtt import MQTTServer
from fedldp_fleet.store.sqlite import SQLiteStore
from fedldp_fleet.topics import Topics

HOST = "127.0.0.1"
NOW = datetime.datetime.now(datetime.UTC)
OPEN = Schedule(NOW - datetime.timedelta(hours=1), NOW + datetime.timedelta(hours=1))


class FleetServer:
    """What a test sees of a running server. `operator` is the key that signs its jobs."""

    def __init__(
        self,
        folder: Path,
        *,
        tls: bool = True,
        operator=None,
        key=None,
        limits: Limits | None = None,
        client_authority=None,
        connect=None,
        admits=0,
        most_bytes=LARGEST_PACKET,
    ) -> None:
        self.folder, self.operator = folder, operator or PrivateKey.generate()
        self.key = key or PrivateKey.generate()
        self.public = self.key.public
        self.store = SQLiteStore(folder / "server.db")
        with self.store.transaction() as store:
            if not store.value(engine.INCARNATION):
                engine.start(store, b"first" + bytes(11))
        self.engine = Engine(self.key)
        self.ca, self._certificate = folder / "ca.pem", folder / "server.pem"
        if tls and not self._certificate.exists():
            authority = trustme.CA()
            authority.cert_pem.write_to_path(self.ca)
            certificate = authority.issue_cert(HOST, "localhost")
            certificate.private_key_and_cert_chain_pem.write_to_path(self._certificate)
        self._tls, self.port, self._limits = tls, 0, limits
        self._client_authority = client_authority
        self._connect = connect  # opens connections with a broker, for the MQTT road
        self._broker_limits = admits, most_bytes

    @property
    def url(self) -> str:
        return f"http{'s' * self._tls}://{HOST}:{self.port}"

    @property
    def context(self) -> ssl.SSLContext:
        """What a client needs to trust this server."""
        return ssl.create_default_context(cafile=self.ca)

    def enroll(self, agent: str, vehicles: int = 1) -> str:
        with self.store.transaction() as store:
            return members.enroll(store, agent, vehicles)

    def revoke(self, agent: str) -> None:
        with self.store.transaction() as store:
            members.revoke(store, agent)

    def add(self, job) -> str:
        signed = jobs.to_sign(job, self.public).signed(self.operator)
        with self.store.transaction() as store:
            return self.engine.add(store, job, signed)

    def job(self, name: str):
        with self.store.reading() as store:
            return store.job(name)

    def rounds(self, name: str):
        with self.store.reading() as store:
            return store.rounds(name)

    def tick(self) -> None:
        """Do now what the next tick would do."""
        asyncio.run_coroutine_threadsafe(self._desk.tick(), self._loop).result()

    def start(self) -> None:
        guard = Guard()
        self._desk = Desk(self.store, self.engine, guard)
        app = HTTPSServer(self._desk, guard, Documents(self.store))
        context = None
        if self._tls:
            context = tls_context(str(self._certificate), None, self._client_authority)
        listening, ready = bound(HOST, self.port), threading.Event()
        self.port = listening.getsockname()[1]

        async def run() -> None:
            self._loop = asyncio.get_running_loop()
            self.listener = Listener(app, listening, self._limits, context, AgentConnection)
            await self._desk.open()
            serving = asyncio.ensure_future(serve(self.listener))
            await self.listener.ready.wait()
            if self._connect is not None:
                documents = Documents(self.store)
                given = self._desk, documents, Topics("north"), self._connect, "server-1"
                self.mqtt = MQTTServer(*given, *self._broker_limits)
                self.mqtt.start()
            ready.set()
            while not serving.done() and not self.listener.should_exit:
                await asyncio.sleep(0.02)
            if self._connect is not None:
                await self.mqtt.stop()
            await serving
            await self._desk.close()

        self._thread = threading.Thread(target=asyncio.run, args=(run(),))
        self._thread.start()
        if not ready.wait(30):
            raise RuntimeError("the server does not start")

    def stop(self) -> None:
        self.listener.should_exit = True
        self._thread.join()


@contextlib.contextmanager
def running(folder: Path, **options):
    server = FleetServer(folder, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        server.store.close()
