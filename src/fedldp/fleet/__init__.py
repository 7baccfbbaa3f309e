"""A production fleet: the vehicles' vaults, gateways and a server, on Flower.

A fleet has three kinds of processes:

- A *vault* runs where the data are, for one vehicle or for many. It holds the data, the cap (the
  most that a vehicle may spend in its life), the ledger (the file that records what each vehicle
  has spent) and the random source. It answers questions with noisy records only.
- A *gateway* passes questions on to its vaults, and their answers back to the server.
- The *server* asks the questions, counts the answers and, in a training, improves the model.

Each of them has a subpackage, as have everything that depends on Flower, and the monitor, which
shows what a part does:

    vault/    gateway/    server/    flower/    monitor/
    protocol.py     the messages between them: a question and the answer to it
    sockets.py      the connection between a gateway and a vault
    job.py          a job: what the server asks, and for how long
    folder.py       `fedldp fleet init`: all files that a fleet needs; keys.py makes its keys
    processes.py    keeps processes alive; isolation.py gives them a private network
    status.py       `fedldp fleet status`: what each part knows about itself; logs.py writes logs
    app.py          the two apps that Flower runs, one on the server, one on each gateway

If you have a Flower app already, see `fedldp_fleet.flower`.
"""

from typing import TYPE_CHECKING

from fedldp._internal.lazy import attribute_loader

__all__ = ["Job", "LDPFedSGD", "Vault"]

if TYPE_CHECKING:
    from fedldp.fleet.flower.strategy import LDPFedSGD
    from fedldp.fleet.job import Job
    from fedldp.fleet.vault.vault import Vault
else:
    __getattr__ = attribute_loader(
        __name__,
        {
            "flower.strategy": "LDPFedSGD",
            "job": "Job",
            "vault.vault": "Vault",
        },
    )

    def __dir__() -> list[str]:
        """Return exactly the public names."""
        return sorted(__all__)
