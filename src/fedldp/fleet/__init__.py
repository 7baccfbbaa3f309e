"""A production fleet: a server, gateways and the vehicles' vaults, on Flower.

The vault is the vehicle's own process: it holds the data, the cap, the ledger and the chance, and
answers a question with noisy reports alone. The gateway passes questions and reports on. The
server asks, counts and steps. See docs/fleet.md.

`LDPFedSGD` is a strategy for a ServerApp, `LDPMod` a mod for a ClientApp of one's own.
"""

from typing import TYPE_CHECKING

from fedldp._internal.lazy import attribute_loader

__all__ = ["Job", "LDPFedSGD", "LDPMod", "Vault"]

if TYPE_CHECKING:
    from fedldp.fleet.job import Job
    from fedldp.fleet.mod import LDPMod
    from fedldp.fleet.strategy import LDPFedSGD
    from fedldp.fleet.vault.vault import Vault
else:
    __getattr__ = attribute_loader(
        __name__,
        {"job": "Job", "mod": "LDPMod", "strategy": "LDPFedSGD", "vault.vault": "Vault"},
    )

    def __dir__() -> list[str]:
        """Return exactly the public names."""
        return sorted(__all__)
