"""Fleets that earlier versions have left in the middle of a job: see `make_fleets`."""

import subprocess
import tarfile
from pathlib import Path

import pytest
from fleet_parts import Fleet, edit

from fedldp.fleet import processes

GOLDEN = Path(__file__).parents[1] / "golden"
VERSIONS = ("0.1", "0.2")
COMMITS = {"0.1": "c2a45f3", "0.2": "335f696"}


def unpacked(version, folder):
    """Return a copy of the fleet that a version has left."""
    with tarfile.open(GOLDEN / version / "fleet.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return Fleet(folder)


def on_free_ports(fleet):
    """Have the server of a fleet listen where nobody else does, and its gateways find it there."""
    port, link = processes.free_port(), processes.free_port()
    edit(fleet.folder / "server" / "server.toml", front=f'"127.0.0.1:{port}"', link=link)
    for gateway in fleet.gateways:
        edit(fleet.folder / gateway / "gateway.toml", server=f'"127.0.0.1:{port}"')
    return fleet


def source(version, folder):
    """Return the folder with the code of a version, out of this repository's history."""
    archive = subprocess.run(
        ["git", "archive", COMMITS[version], "src"], cwd=GOLDEN.parents[1], capture_output=True
    )
    if archive.returncode:
        pytest.skip(f"the history does not reach back to version {version}")
    subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
    return folder / "src"
