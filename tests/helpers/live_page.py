"""The live page of a server in a browser, showing documents that a test makes up."""

import copy
from contextlib import contextmanager

from monitored import SERVER, monitoring

from fedldp import __version__
from fedldp.fleet.monitor.web import Reply

WIDE, PHONE = (1280, 900), (360, 740)
NOW = "2026-11-16T08:15:12+00:00"
CERTIFICATES = {"ca.crt": "2036-11-13T08:00:00+00:00", "server.crt": "2036-11-13T08:00:00+00:00"}
# The browser's clock stands still at the time of the documents.
FIXED_TIME = f"""
(() => {{
  const Real = Date;
  window.Date = class extends Real {{
    constructor(...given) {{ super(...(given.length ? given : [Real.parse("{NOW}")])); }}
    static now() {{ return Real.parse("{NOW}"); }}
  }};
}})();
"""


def shown(document=SERVER, result=None, problems=(), **job):
    """Return what a monitor says about a server, with some other entries of its job."""
    part = copy.deepcopy(document)
    if job:
        part["job"] |= job
    part |= {
        "disk": {"free": 412_000_000_000, "size": 1_000_000_000_000},
        "certificates": CERTIFICATES,
        "result": result,
        "spent": spent(part["job"]),
        "problems": list(problems),
    }
    return {
        "format": "fedldp monitor 1",
        "time": NOW,
        "version": __version__,
        "parts": [part],
        "problems": list(problems),
    }


def spent(job):
    """Return what two jobs have cost, of which the last is given."""
    if job is None:
        return []
    now = {"job": job["name"], "state": job["state"], "epsilon": f"{job['epsilon']:g}"}
    before = {"job": "flights-october", "state": "done", "epsilon": "1", "answers": 58_211}
    return [now | {"answers": job["reports"]}, before]


class LivePage:
    """A page whose document can be changed, and whose monitor can be stopped."""

    def __init__(self, browser, folder):
        self.browser, self.folder, self.document, self.port = browser, folder, shown(), None
        (folder / "server.toml").touch()

    @contextmanager
    def served(self):
        """Serve the page, at the same address as before."""
        routes = {"/status.json": lambda _: Reply.json(self.document)}
        with monitoring(self.folder, SERVER, routes=routes, port=self.port) as address:
            self.port = address.port
            yield address

    def open(self, address):
        """Open the page, and wait until it shows something."""
        self.browser.open(address.url)
        self.browser.wait("!document.querySelector('main').hidden")

    def show(self, document):
        """Show another document: the next request gets it."""
        self.document = document
        self.browser.command("Runtime.evaluate", expression="refresh()", awaitPromise=True)
