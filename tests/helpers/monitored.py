"""Status documents of parts of a fleet, and monitors that show them, for tests."""

import copy
import http.client
import json
import socket
from contextlib import closing, contextmanager
from dataclasses import dataclass

from fedldp import __version__
from fedldp.fleet.monitor import web
from fedldp.fleet.monitor.address import MonitorAddress
from fedldp.fleet.monitor.observe import Observer
from fedldp.fleet.monitor.process import site
from fedldp.fleet.processes import free_port

SERVER = {
    "format": "fedldp status 1",
    "part": "server",
    "name": "server",
    "version": __version__,
    "running": True,
    "since": "2026-11-16T08:00:00+00:00",
    "job": {
        "name": "flights",
        "task": "training",
        "epsilon": 4.0,
        "plan": "6e5cc23400e34c",
        "state": "asking",
        "why": "",
        "round": 3,
        "rounds": 12,
        "rounds_done": 2,
        "stage": "gradients",
        "reports": 41_250,
        "expected": 294_611,
        "asked": 49_102,
        "silent": 640,
        "refused_or_absent": 12,
        "rate": 187.5,
        "seconds_left": 1351.0,
        "began": "2026-11-16T08:05:00+00:00",
        "ended": None,
        "result": "/var/lib/fedldp/server/state/model.json",
        "open": {
            "gateways": 3,
            "received": 2,
            "since": "2026-11-16T08:14:00+00:00",
            "deadline": "2026-11-16T08:19:00+00:00",
        },
    },
    "gateways": [
        {
            "name": "gateway-1",
            "node": "1201",
            "state": "answered",
            "since": "2026-11-16T08:15:10+00:00",
            "heard": "2026-11-16T08:15:10+00:00",
            "reports": 20_625,
            "bytes": 61_875,
            "version": __version__,
        },
        {
            "name": "gateway-2",
            "node": "1202",
            "state": "waiting",
            "since": "2026-11-16T08:14:00+00:00",
            "heard": "2026-11-16T08:15:11+00:00",
            "reports": 20_625,
            "bytes": 61_875,
            "version": __version__,
        },
        {
            "name": "gateway-3",
            "node": "1203",
            "state": "silent",
            "since": "2026-11-16T08:02:00+00:00",
            "heard": "2026-11-16T08:02:00+00:00",
            "reports": 0,
            "bytes": 0,
            "version": None,
        },
    ],
    "processes": {"superlink": True, "front": True, "monitor": True},
    "warnings": [],
    "errors": [
        {
            "time": "2026-11-16T08:07:31+00:00",
            "level": "WARNING",
            "text": "gateway-3 has not answered round 2 in time.",
        }
    ],
    "unreadable": [],
    "attention": ["gateway-3 is silent: run `fedldp fleet status` on its machine."],
    "next": "The round ends when gateway-2 and gateway-3 have answered, or at 08:19.",
}
VAULT = {
    "format": "fedldp status 1",
    "part": "vault",
    "name": "vault-1",
    "version": __version__,
    "running": True,
    "since": "2026-11-16T08:00:00+00:00",
    "vehicles": 300,
    "cap": "4.0",
    "answers_per_job": 1,
    "budget": [{"left": "0.0", "vehicles": 200}, {"left": "4.0", "vehicles": 100}],
    "jobs": [{"job": "flights", "rounds": 3, "answers": 200, "refused": 0}],
    "questions": {"answered": 3, "refused": 1, "not ready": 0},
    "warnings": [],
    "errors": [],
    "unreadable": [],
    "attention": [],
    "next": "The vault waits for questions.",
}

GATEWAY = {
    "format": "fedldp status 1",
    "part": "gateway",
    "name": "gateway-1",
    "version": __version__,
    "running": True,
    "since": "2026-11-16T08:00:00+00:00",
    "server": "fleet.example.org:9443",
    "connected": True,
    "connected_since": "2026-11-16T08:00:05+00:00",
    "asked_for_work": "2026-11-16T08:15:10+00:00",
    "processes": {"supernode": True, "uplink": True},
    "questions": [],
    "vaults": [
        {
            "name": "vault-1",
            "state": "silent",
            "since": "2026-11-16T08:10:00+00:00",
            "heard": "2026-11-16T08:05:00+00:00",
            "answered": 200,
            "asked": 300,
            "why": "",
        }
    ],
    "warnings": [],
    "errors": [],
    "unreadable": [],
    "attention": [],
    "next": "The gateway waits for a question of the server.",
}


@dataclass
class Given:
    """A status that a test has made up."""

    told: dict

    def document(self):
        return copy.deepcopy(self.told)


@contextmanager
def monitoring(folder, *documents, token=None, routes=None, port=None):
    """Run a monitor that shows some documents, or the real status; yield its address."""
    port = port or free_port()
    address = MonitorAddress("127.0.0.1", port, token=token or "")
    read = (lambda _: [Given(each) for each in documents]) if documents else None
    observer = Observer(folder, **({"read": read} if read else {}))
    shown = site(folder, address, observer)
    shown = web.Site(address, {**shown.routes, **(routes or {})})
    with web.serving(shown, address.listen()):
        yield address


def ask(address, path="/", method="GET", **headers):
    """Return the status, the headers and the text of an answer."""
    with closing(http.client.HTTPConnection(address.host, address.port, timeout=30)) as link:
        link.request(
            method, path, headers={name.replace("_", "-"): v for name, v in headers.items()}
        )
        answer = link.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def ask_json(address, path):
    status, _, text = ask(address, path)
    assert status in (200, 503), text
    return json.loads(text)


def send(address, data):
    """Return what comes back for some bytes."""
    with socket.create_connection((address.host, address.port), 30) as link:
        link.sendall(data)
        link.shutdown(socket.SHUT_WR)
        found = b""
        while piece := link.recv(1 << 16):
            found += piece
    return found
