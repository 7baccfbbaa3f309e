"""A real mosquitto with TLS, client certificates and the access rules of the documentation."""

import re
import shutil
import signal
import socket
from pathlib import Path

import trustme
from processes import started

from fedldp_fleet.mqtt import Broker

PAGE = Path(__file__).parents[3] / "docs/how-to/mqtt.md"


def documented(name):
    """Return a file as the how-to page writes it."""
    return re.search(rf"(?s)cat > {re.escape(name)} <<'END'\n(.*?)END\n", PAGE.read_text())[1]


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
        (folder / "acl").write_text(documented("acl"))
        text = documented("mosquitto.conf").replace("8883", f"{self.port} 127.0.0.1")
        if not tls:
            text = f"user root\nlistener {self.port} 127.0.0.1\nallow_anonymous true\n"
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
        command = [program(), "-c", "mosquitto.conf"]
        self.process = started(command, self.folder / "broker.log", b"running", cwd=self.folder)
        return self

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *exception):
        self.kill()
