"""Checks for every part: versions, the clock, the disk, secrets, isolation."""

import datetime
import importlib.metadata
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from time import time

from cryptography import x509

from fedldp import __version__
from fedldp.errors import DomainError
from fedldp.fleet import isolation
from fedldp.fleet.doctor.examination import Finding, ok, problem, warning
from fedldp.fleet.state import STATE, holder

LITTLE = 1 << 28  # bytes of free disk: with less, a part will soon fail
SOME = 1 << 30  # with less, a warning
SOON = datetime.timedelta(days=30)  # before a certificate expires
AHEAD = 60.0  # seconds that a file may be younger than now


def versions(*packages: str) -> Iterator[Finding]:
    """Check that packages are installed in versions that fedldp supports."""
    yield ok(f"fedldp {__version__} on Python {sys.version.split()[0]}")
    wanted = {
        name: requirement
        for requirement in importlib.metadata.requires("fedldp") or ()
        for name in packages
        if re.match(rf"{name}\b", requirement)
    }
    for name in packages:
        requirement = wanted.get(name, name).partition(";")[0].strip()
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield problem(
                f"the package {name} is not installed.",
                "Install fedldp with the extras that this part needs: cli, and flower on servers "
                "and gateways.",
            )
            continue
        if _fits(found, requirement.removeprefix(name)):
            yield ok(f"{name} {found}")
        else:
            yield problem(
                f"{name} has version {found}; fedldp needs {requirement}.",
                f"Install it: pip install '{requirement}'",
            )


def _fits(version: str, limits: str) -> bool:
    """Return whether a version is within limits such as >=1.41,<1.43.

    >>> _fits("1.42.0", "<1.43,>=1.41"), _fits("1.43.1", "<1.43,>=1.41"), _fits("2", "")
    (True, False, True)
    """
    found = _numbers(version)
    for operator, limit in re.findall(r"(>=|<)\s*([\d.]+)", limits):
        if (found >= _numbers(limit)) != (operator == ">="):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def clock(folder: Path) -> Iterator[Finding]:
    """Check that the clock has not been set back since the part wrote its files."""
    written = [path.stat().st_mtime for path in (folder, *folder.glob(f"{STATE}/*"))]
    ahead = max(written) - time()
    if ahead > AHEAD:
        yield problem(
            f"files in {folder} were written {ahead:,.0f} seconds in the future: the clock was set "
            "back.",
            "Set the clock, and keep it right with NTP.",
        )
    else:
        now = datetime.datetime.now(datetime.UTC)
        yield ok(f"the clock shows {now:%Y-%m-%d %H:%M:%S} UTC")


def disk(folder: Path, needed: int = 0) -> Iterator[Finding]:
    """Check that there is room on the disk: some, and as much as the part needs at once."""
    free = shutil.disk_usage(folder).free
    text = f"{free / 1e9:.1f} GB are free on the disk of {folder}"
    if free < max(LITTLE, needed):
        more = f"; {needed / 1e9:.1f} GB are needed" if needed > LITTLE else ""
        yield problem(f"only {text}{more}.", "Make room: a part that cannot write stops answering.")
    elif free < SOME:
        yield warning(f"only {text}.", "Make room before it is full.")
    else:
        yield ok(text)


def secret(*paths: Path) -> Iterator[Finding]:
    """Check that files exist and that only their owner can read them."""
    for path in paths:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            yield problem(
                f"{path} can be read by others (mode {mode:03o}).",
                f"Run: chmod 600 {path}. If others have used this machine, make a new key.",
            )
        else:
            yield ok(f"{path.name} is for its owner alone")


def folder_is_private(folder: Path) -> Iterator[Finding]:
    """Check that others cannot look into the folder of a part."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o022:
        yield problem(f"others can write to {folder} (mode {mode:03o}).", f"chmod 700 {folder}")
    elif mode & 0o055:
        yield warning(f"others can look into {folder} (mode {mode:03o}).", f"chmod 700 {folder}")
    else:
        yield ok("the folder is for its owner alone")


def owner(folder: Path) -> Iterator[Finding]:
    """Check that the folder belongs to the user who runs the part."""
    mine, pid = folder.stat().st_uid, holder(folder / STATE)
    if pid is None and mine != os.geteuid():
        yield warning(
            f"{folder} belongs to the user with the number {mine}, and you are {os.geteuid()}.",
            "Start the part, and run the doctor, as the user to whom the folder belongs.",
        )


def isolated() -> Iterator[Finding]:
    """Check that a private network for Flower's processes is available."""
    if isolation.is_private():
        yield ok("this process is in a private network")
        return
    try:
        network = isolation.choose(False, required=True)
    except DomainError as error:
        yield problem(
            str(error).removeprefix("--require-isolation: ").partition(". ")[0] + ".",
            "Allow network and user namespaces for this user, or use the systemd units or the "
            "containers: without, every account of this machine can run code as this user.",
        )
        return
    for handle in network.handles:
        os.close(handle)
    yield ok("a private network for Flower's processes can be created")


def authority(path: Path) -> Iterator[Finding]:
    """Check the certificate of an authority, or those of two while it changes."""
    rotate = "fedldp fleet rotate-keys FLEET --authority"
    yield from certificate(path, f"Where ca.key is, make a new one: {rotate}")
    if (count := len(x509.load_pem_x509_certificates(path.read_bytes()))) > 1:
        yield warning(
            f"{path.name} names {count} authorities: both are trusted.",
            f"When the server has a certificate of the new one, run: {rotate} --forget",
        )


def certificate(path: Path, renew: str) -> Iterator[Finding]:
    """Check that all certificates of a file are valid today and for some time."""
    found = x509.load_pem_x509_certificates(path.read_bytes())
    now = datetime.datetime.now(datetime.UTC)
    begins = max(each.not_valid_before_utc for each in found)
    ends = min(each.not_valid_after_utc for each in found)
    if now < begins:
        yield problem(
            f"{path.name} is valid from {begins:%Y-%m-%d %H:%M} UTC on, which is in the future.",
            "Set the clock of this machine.",
        )
    elif now > ends:
        yield problem(f"{path.name} has expired on {ends:%Y-%m-%d}.", renew)
    elif now + SOON > ends:
        yield warning(f"{path.name} expires on {ends:%Y-%m-%d}.", renew)
    else:
        yield ok(f"{path.name} is valid until {ends:%Y-%m-%d}")
