"""A fleet in earnest: a server, gateways and the vehicles' vaults, on Flower.

The vault is the vehicle's own process: it holds the data, the cap, the ledger and the chance, and
answers a question with noisy reports alone. The gateway passes questions and reports on. The
server asks, counts and steps. See docs/fleet.md.

`LDPFedSGD` is a strategy for a ServerApp, `LDPMod` a mod for a ClientApp of one's own.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedldp.fleet.job import Job
from fedldp.fleet.vault.vault import Vault

__all__ = ["Job", "Vault"]

if TYPE_CHECKING:
    from fedldp.fleet.mod import LDPMod as LDPMod
    from fedldp.fleet.strategy import LDPFedSGD as LDPFedSGD
else:

    def __getattr__(name: str) -> Any:
        """Import what needs Flower when it is asked for."""
        module = {"LDPFedSGD": "strategy", "LDPMod": "mod"}.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{module}"), name)
