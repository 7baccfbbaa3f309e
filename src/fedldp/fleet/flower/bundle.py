"""The app that Flower ships to the gateways, and the SHA-256 by which a gateway recognizes it.

The app contains no code: it names components of the installed package. Flower packs it in the same
way every time, so its hash is known in advance. A gateway runs no app with another hash (see
`uplink`).
"""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from fedldp.fleet.flower import programs

APP = """\
# An app as Flower wants it. It holds no code: both halves are parts of the installed package.
[project]
name = "fedldp-fleet"
version = "1.0.0"
description = "Asks the vaults of a fleet"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedldp"

[tool.flwr.app.components]
serverapp = "fedldp.fleet.app:server"
clientapp = "fedldp.fleet.app:client"

[tool.flwr.app.config]
job = ""
"""
SHA256 = "4648943ad3a4f6dff1a85b81dd866b4ddeca42fe861a1c1558f2a7e457050f19"  # of APP, as packed


def sha256(app: Path, *modules: Path) -> str:
    """Return the SHA-256 of an app as Flower packs it: for gateways that run another app.

    Flower must find the components that the app names: in the app's folder, in an installed
    package, or in one of the folders `modules`.
    """
    with tempfile.TemporaryDirectory() as folder:
        words = programs.program("flwr", "build", "--app", app.resolve())
        folders = [*map(str, modules), os.environ.get("PYTHONPATH", "")]
        found = os.pathsep.join(filter(None, folders))
        environment = {**os.environ, **programs.environment(Path(folder)), "PYTHONPATH": found}
        subprocess.run(  # noqa: S603 (words of our own, and no shell)
            words, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL
        )
        (packed,) = Path(folder).glob("*.fab")
        return hashlib.sha256(packed.read_bytes()).hexdigest()
