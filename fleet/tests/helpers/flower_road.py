"""A SuperLink with TLS and node keys, and SuperNodes with agents beside them."""

import contextlib
import http.client
import json
import os
import signal
import ssl
import subprocess
from pathlib import Path

import agent_folder
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from server_process import ServerProcess, free_port, wait_until
from superlink import Deployment, program

from fedldp import Ledger
from fedldp_fleet.agent import service

TEMPORARY = ("client_body", "proxy")  # what nginx writes there does not fit into memory
APP = Path(__file__).parents[3] / "examples" / "flower-fleet"


class FlowerRoad(Deployment):
    """Programs of Flower behind nginx, agents, and a server's folder, whose process need not run.

    The SuperLink listens on `port`, and nginx on `front`, which is all that nodes know.
    """

    def __init__(self, folder, operator):
        super().__init__(folder, nodes=0)
        self.operator = operator
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.crt")
        certificate = authority.issue_cert("127.0.0.1", "fleet.example.org")
        certificate.private_key_pem.write_to_path(folder / "server.key")
        certificate.cert_chain_pems[0].write_to_path(folder / "server.pem")
        config = folder / "flwr" / "config.toml"
        trusted = f'root-certificates = "{folder / "ca.crt"}"'
        config.write_text(config.read_text().replace("insecure = true", trusted))
        self.server, self.front = ServerProcess(folder / "server"), free_port()
        self.programs = {}

    def __enter__(self):
        self.start_link()
        self.start_front()
        return self

    def start_front(self):
        """Run nginx with the file of the example, whose addresses and paths alone are others."""
        text = (APP / "nginx.conf").read_text().replace("/etc/flower", str(self.folder))
        for before, after in (("9092", self.front), ("9093", self.port)):
            assert text.count(f":{before}") + text.count(f" {before} ssl") in (1, 2)
            text = text.replace(before, str(after))
        root = "user root; " * (os.geteuid() == 0)  # it may write where tests do
        places = "".join(f"{each}_temp_path {self.folder}/{each};" for each in TEMPORARY)
        (self.folder / "nginx.conf").write_text(
            f"{root}daemon off; pid {self.folder}/nginx.pid; worker_processes 1; events {{}}\n"
            f"http {{ access_log off; {places}\n{text}}}\n"
        )
        words = ["-p", str(self.folder), "-c", "nginx.conf", "-e", "nginx.error"]
        self.popen("front", "nginx", *words)
        wait_until(lambda: self.says("/v1/fleet/") is not None)

    def says(self, path, port=None):
        """Return the status with which nginx, or the SuperLink, answers a POST of a stranger."""
        context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        link = http.client.HTTPSConnection("127.0.0.1", port or self.front, context=context)
        with contextlib.suppress(ConnectionError), contextlib.closing(link):
            link.request("POST", path, b"")
            return link.getresponse().status

    def start_link(self):
        files = {"ca-certfile": "ca.crt", "certfile": "server.pem", "keyfile": "server.key"}
        words = [word for name, file in files.items() for word in (f"--ssl-{name}", file)]
        address = ["--host", "127.0.0.1", "--port", str(self.port)]
        kept = ["--enable-supernode-auth", "--database", str(self.folder / "link.db")]
        self.popen("link", "flower-superlink", *address, *kept, *words)
        self.wait()

    def kill(self, key):
        """Kill a program and all that it has started, as a crash does it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.programs[key].pid, signal.SIGKILL)
        self.programs[key].wait()

    def kill_server_app(self):
        """Kill the ServerApp alone; return whether there was one."""
        own, found = f"FLWR_HOME={self.environment['FLWR_HOME']}\0".encode(), False
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                ours = own in (folder / "environ").read_bytes() + b"\0"
                if ours and b"flwr-serverapp" in (folder / "cmdline").read_bytes():
                    os.kill(int(folder.name), signal.SIGKILL)
                    found = True
        return found

    def popen(self, key, name, *words):
        self.programs[key] = self.start(name, *words)

    def flwr(self, *words):
        done = subprocess.run(
            program("flwr", *words), env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_agent(self, name, *words):
        self.programs[name] = agent_folder.start(self.folder / name, *words)
        self.stack.callback(self.stop, self.programs[name])

    def socket(self, name):
        return self.folder / f"{name}.socket"

    def add_node(self, name, vehicles):
        """Register a node and enroll it; return its number."""
        key, path = ec.generate_private_key(ec.SECP384R1()), self.folder / f"{name}.key"
        private = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        path.write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
        public = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(*public))
        said = self.flwr("supernode", "register", str(path.with_suffix(".pub")), "--format", "json")
        number = int(json.loads(said)["node-id"])
        self.server.enroll(f"flower-{number}", vehicles)
        return number

    def node(self, name):
        return f"node {name}"

    def start_node(self, name):
        self.popen(
            self.node(name),
            "flower-supernode",
            *("--superlink", f"127.0.0.1:{self.front}", "--root-certificates", "ca.crt"),
            *("--auth-supernode-private-key", f"{name}.key", "--port", str(free_port())),
            *("--node-config", f'agent="{self.socket(name)}"'),
        )

    def add(self, name, vehicles):
        """Add and start an agent with vehicles, and a node beside it."""
        agent_folder.make(self.folder / name, self.operator, vehicles)
        self.start_agent(name, "--listen", str(self.socket(name)))
        wait_until(self.socket(name).exists)
        number = self.add_node(name, vehicles)
        self.start_node(name)
        return number

    def run_app(self):
        """Run the app until no job is open; return what it says."""
        return self.run(APP, "-c", f'server="{self.server.path}"')

    def spent(self, name):
        with Ledger(self.folder / name / service.LEDGER, 4) as opened:
            return opened.totals()
