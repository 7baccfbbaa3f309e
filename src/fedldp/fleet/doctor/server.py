"""Checks for a server."""

import datetime
import errno
import socket
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from fedldp.fleet import keys, signing
from fedldp.fleet.doctor import machine
from fedldp.fleet.doctor.examination import Check, Finding, ok, problem, warning
from fedldp.fleet.folder import OPERATOR_KEY
from fedldp.fleet.job import Job
from fedldp.fleet.server import admission, checkpoint
from fedldp.fleet.server.process import ServerConfig
from fedldp.fleet.state import holder

_REPORTS = 3  # a checkpoint takes about as many bytes as the reports; the disk needs some more


def load(folder: Path) -> ServerConfig:
    """Read the configuration of a server."""
    return ServerConfig.load(folder)


def _certificates(server: ServerConfig) -> Iterator[Finding]:
    renew = f"Make a new one: fedldp fleet rotate-keys {server.folder} --ca ca.key"
    yield from machine.authority(server.authority)
    yield from machine.certificate(server.certificate, renew)
    issued = x509.load_pem_x509_certificate(server.certificate.read_bytes())
    trusted = keys.authorities(server.authority.read_text("utf-8", "replace"))
    if not any(keys.issued_by(server.certificate, each) for each in trusted):
        yield problem(f"{server.authority.name} has not signed {server.certificate.name}.", renew)
    if not keys.fit(server.certificate, server.key):
        yield problem(f"{server.key.name} is not the key of {server.certificate.name}.", renew)
    names = keys.names(issued)
    if server.host in ("0.0.0.0", "::"):  # noqa: S104 (they mean all addresses)
        yield ok(f"the certificate is for {', '.join(names)}: gateways must use one of these names")
    elif server.host not in names:
        yield problem(
            f"the certificate is for {', '.join(names)}, and the server listens at {server.host}.",
            "Write another address into `front`, or write a new fleet with this one.",
        )


def _ports(server: ServerConfig) -> Iterator[Finding]:
    pid = holder(server.state)
    if pid is not None:
        yield ok(f"the server runs, as process {pid}, and has its port {server.port}")
        return
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    try:
        socket.create_server((server.host, server.port), family=family).close()
        yield ok(f"port {server.port} for gateways is free")
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        yield problem(
            f"cannot listen on {server.host}, port {server.port}: {error.strerror}.",
            "Stop the program that has this port (ss -ltnp), or write another one into `front`."
            if taken
            else "Write an address of this machine into `front` in server.toml.",
        )


def _gateways(server: ServerConfig) -> Iterator[Finding]:
    for path in sorted(server.gateways.glob(admission.KEYS)):
        try:
            load_ssh_public_key(path.read_bytes())
        except (ValueError, UnsupportedAlgorithm):
            yield problem(f"{path} is not a public key.", "Copy the gateway's key.pub again.")
    known = admission.gateways(server.gateways)
    needed = Job.load(server.job, signed=False).gateways
    if len(known) < needed:
        yield problem(
            f"the job waits for {needed} gateways, and {len(known)} have a key here.",
            f"Put the missing keys into {server.gateways}, or lower `gateways` in {server.job}.",
        )
    else:
        yield ok(f"{len(known)} gateways have a key here; the job waits for {needed}")
    for name in known:
        if admission.upcoming(server.gateways, name).exists():
            yield warning(
                f"{name} has two keys: it has not used the next one yet.",
                "On its machine, run: fedldp fleet rotate-keys FOLDER --use",
            )


def _job(server: ServerConfig) -> Iterator[Finding]:
    job = Job.load(server.job)
    checkpoint.check(job.checkpoint, job.name, job.settings)
    found = checkpoint.status(job.checkpoint)
    if found is not None and found.failed:
        yield problem(
            f"the job {job.name} has failed: {found.ended}.",
            f"Write another one: fedldp fleet job {server.folder} NAME",
        )
    elif found is not None and found.ended:
        yield ok(f"the job {job.name} is done; the result is {job.result}")
    else:
        done = 0 if found is None else found.rounds
        yield ok(f"the job {job.name}: {done} of {job.rounds} rounds are done")


def _signature(server: ServerConfig) -> Iterator[Finding]:
    again = f"Sign it, where the operator's key is: fedldp fleet sign {server.job} --key FILE"
    job = Job.load(server.job)  # raises if it was changed after it was signed
    expires, now = signing.expiry(job), datetime.datetime.now(datetime.UTC)
    if expires is None:
        yield warning("the job is not signed: vaults that know an operator do not answer.", again)
    elif now >= expires:
        yield problem(f"the operator's signature has expired on {expires:%Y-%m-%d}.", again)
    elif now + signing.SOON > expires:
        yield warning(f"the operator's signature expires on {expires:%Y-%m-%d}.", again)
    else:
        yield ok(f"the job is signed: vaults answer it until {expires:%Y-%m-%d}")
    if (path := server.folder / OPERATOR_KEY).exists():
        yield problem(
            f"{path} is on the server's machine: an attacker there can sign jobs.",
            "Keep it offline, where jobs are signed.",
        )


def _disk(server: ServerConfig) -> Iterator[Finding]:
    job = Job.load(server.job, signed=False)
    size = _REPORTS * job.expected * max(plan.bits for plan in job.plans) // 8
    yield from machine.disk(server.folder, size)


CHECKS = (
    Check("versions", lambda _: machine.versions("flwr", "httpx", "uvicorn")),
    Check("clock", lambda server: machine.clock(server.folder)),
    Check("disk", _disk),
    Check("permissions", lambda server: machine.folder_is_private(server.folder)),
    Check("permissions", lambda server: machine.secret(server.key)),
    Check("user", lambda server: machine.owner(server.folder)),
    Check("certificates", _certificates),
    Check("ports", _ports),
    Check("gateways", _gateways),
    Check("job", _job),
    Check("signature", _signature),
    Check("isolation", lambda _: machine.isolated()),
)
