"""Folders of vaults whose data are files."""

from ledgers import made

from fedldp import Schema
from fedldp.fleet.vault.process import VaultConfig

SCHEMA = Schema.of(speed=(0, 50), city=["Oslo", "Rome"])


def configured(folder, **entries):
    """Write vault.toml, the schema and a ledger into a folder that has rows.csv; read them."""
    entries = {"data": "rows.csv", "schema": "rows.toml", "cap": "1.0", "listen": "s"} | entries
    lines = (f"{name} = {value!r}" for name, value in entries.items() if value is not None)
    (folder / "vault.toml").write_text("\n".join(lines))
    (folder / "rows.toml").write_text(SCHEMA.to_toml())
    config = VaultConfig.load(folder)
    made(config.ledger_path)
    return config
