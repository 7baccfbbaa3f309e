"""A real mosquitto with TLS, client certificates and the access rules of the documentation."""

import shutil
import signal
import socket
import subprocess
import time

import trustme

from fedldp_fleet.mqtt import Broker

CONFIGURATION = """
user root
listener {port} 127.0.0.1
"""
TLS = """
cafile ca.crt
certfile broker.crt
keyfile broker.key
require_certificate true
use_identity_as_username true
allow_zero_length_clientid false
acl_file acl
max_inflight_messages 1000
max_queued_messages 100000
"""
RULES = """
user server
topic readwrite fedldp/north/open
topic readwrite fedldp/north/job/+
topic readwrite fedldp/north/question/+
topic read fedldp/north/ask/+/+/+
topic write fedldp/north/reply/+

pattern read fedldp/north/open
pattern read fedldp/north/job/+
pattern read fedldp/north/question/+
pattern write fedldp/north/ask/+/%u/%c
pattern read fedldp/north/reply/%c
"""


def program():
    """Return the path of mosquitto, which Debian puts where ordinary users do not look."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Mosquitto:
    """A broker in a folder; it can be killed and started again."""

    def __init__(self, folder, *names, tls=True):
        self.folder, self.port, self.tls = folder, free_port(), tls
        folder.mkdir(exist_ok=True)
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(folder / "ca.crt")
        for name in ("broker", "server", *names):
            self.issue(name)
        (folder / "acl").write_text(RULES)
        text = CONFIGURATION.format(port=self.port) + (TLS if tls else "allow_anonymous true\n")
        (folder / "mosquitto.conf").write_text(text)
        self.process = None

    def issue(self, name):
        """Write a certificate for a name, and its key."""
        found = self._authority.issue_cert("localhost", "127.0.0.1", common_name=name)
        found.private_key_pem.write_to_path(self.folder / f"{name}.key")
        with (self.folder / f"{name}.crt").open("wb") as file:
            for each in found.cert_chain_pems:
                file.write(each.bytes())

    @property
    def url(self):
        return f"{'mqtts' if self.tls else 'mqtt'}://localhost:{self.port}/north"

    def keys(self, name):
        return {
            "authority": self.folder / "ca.crt",
            "certificate": self.folder / f"{name}.crt",
            "key": self.folder / f"{name}.key",
        }

    def client(self, name):
        """Return the broker as somebody with a certificate sees it."""
        return Broker.of(self.url, **self.keys(name)) if self.tls else Broker.of(self.url)

    def start(self):
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                [program(), "-c", "mosquitto.conf"], cwd=self.folder, stdout=log, stderr=log
            )
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.05)
        raise TimeoutError((self.folder / "broker.log").read_text())

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *exception):
        self.kill()
