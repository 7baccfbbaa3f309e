"""A production fleet: the vehicles' vaults, gateways and a server, on Flower.

A *vault* is the vehicle's own process: it holds the data, the cap, the ledger and the randomness,
and answers a question with noisy records alone. A *gateway* passes questions and answers on. The
*server* asks, counts and steps. Each has a subpackage of its own, and so has what is Flower's:

    vault/    gateway/    server/    flower/
    protocol.py     what they say: a question, and the answer to it
    sockets.py      the connection between a gateway and a vault
    job.py          what a server is to find out
    folder.py       `fedldp fleet init`: all files that a fleet needs; keys.py makes its keys
    processes.py    processes that are kept alive; isolation.py gives them a private network
    app.py          the two apps that Flower runs, one on the server, one on each gateway

`LDPFedSGD` is a strategy for a ServerApp, `LDPMod` a mod for a ClientApp of one's own. See
docs/fleet.md.
"""

from typing import TYPE_CHECKING

from fedldp._internal.lazy import attribute_loader

__all__ = ["Job", "LDPFedSGD", "LDPMod", "Vault"]

if TYPE_CHECKING:
    from fedldp.fleet.flower.mod import LDPMod
    from fedldp.fleet.flower.strategy import LDPFedSGD
    from fedldp.fleet.job import Job
    from fedldp.fleet.vault.vault import Vault
else:
    __getattr__ = attribute_loader(
        __name__,
        {
            "flower.mod": "LDPMod",
            "flower.strategy": "LDPFedSGD",
            "job": "Job",
            "vault.vault": "Vault",
        },
    )

    def __dir__() -> list[str]:
        """Return exactly the public names."""
        return sorted(__all__)
