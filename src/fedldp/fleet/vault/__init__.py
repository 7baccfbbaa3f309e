"""The vault: it holds the data, the ledger and the randomness of some vehicles, and answers."""

from fedldp.fleet.vault.vault import Vault

__all__ = ["Vault"]
