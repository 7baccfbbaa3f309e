"""Checks for a gateway. They call the server once, as the gateway does."""

import os
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)

from fedldp.errors import DomainError
from fedldp.fleet.doctor import machine
from fedldp.fleet.doctor.examination import Check, Finding, ok, problem, warning
from fedldp.fleet.flower import bundle
from fedldp.fleet.gateway.process import GatewayConfig
from fedldp.fleet.gateway.uplink import proxy
from fedldp.fleet.server.admission import AHEAD, OLDEST

_PATIENCE = 10.0  # seconds for the server to answer
_NEAR = 0.5  # the part of a limit from which on a clock is worth a warning
_CALL = "/v1/fleet/get-run"  # with an empty question: it changes nothing


def load(folder: Path) -> GatewayConfig:
    """Read the configuration of a gateway."""
    return GatewayConfig.load(folder)


def _server(gateway: GatewayConfig) -> Iterator[Finding]:
    """Call the server as the gateway does: its address, certificate, clock, and whom it admits."""
    yield from machine.authority(gateway.authority)
    trusted = ssl.create_default_context(cafile=gateway.authority)
    sent = datetime.now(UTC)
    try:
        with httpx.Client(
            verify=trusted, timeout=_PATIENCE, trust_env=False, proxy=proxy(gateway.server)
        ) as client:
            answer = client.post(f"https://{gateway.server}{_CALL}", headers=_signed(gateway, sent))
    except httpx.HTTPError as error:
        yield _unreachable(gateway, error)
        return
    yield ok(f"the server answers at {gateway.server}, with a certificate of this fleet")
    with suppress(KeyError, ValueError):
        shown = parsedate_to_datetime(answer.headers["date"])
        yield from _clock((sent - shown).total_seconds())
    if answer.status_code == 401:
        yield problem(
            "the server does not admit the key of this gateway.",
            f"Put key.pub of this folder into the server's folder, as gateways/"
            f"{gateway.folder.name}.pub. A key that was revoked needs a successor: fedldp fleet "
            f"rotate-keys {gateway.folder}",
        )
    else:
        yield ok("the server admits the key of this gateway")


def _unreachable(gateway: GatewayConfig, error: httpx.HTTPError) -> Finding:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return problem(
            f"the server at {gateway.server} has no valid certificate of this fleet: {error}",
            "Check that the address is one of the names in the certificate, that ca.crt is that "
            "of your server, and the clock.",
        )
    return problem(
        f"the server cannot be reached at {gateway.server}: {error or type(error).__name__}.",
        "Start the server, check `server` in gateway.toml, and open the port in firewalls.",
    )


def _clock(ahead: float) -> Iterator[Finding]:
    """Compare the clock with that of the server, which shows whole seconds."""
    limit = AHEAD if ahead > 0 else OLDEST
    said = f"this clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    allowed = f"the server allows {AHEAD:g} s ahead and {OLDEST:g} s behind"
    if abs(ahead) >= limit:
        yield problem(f"{said}; {allowed}.", "Set both clocks, and keep them right with NTP.")
    elif abs(ahead) - 1 > _NEAR * limit:
        yield warning(f"{said}; {allowed}.", "Keep both clocks right with NTP.")
    else:
        yield ok(f"{said}: {allowed}")


def _signed(gateway: GatewayConfig, time: datetime) -> dict[str, str]:
    """Return the headers with which a gateway proves who it is, as Flower makes them."""
    key = load_ssh_private_key(gateway.key.read_bytes(), None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise DomainError(f"{gateway.key} is not a key of the kind that Flower accepts.")
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = time.isoformat()
    return {
        "flwr-public-key": b64encode(public).decode(),
        "flwr-timestamp": text,
        "flwr-signature": b64encode(key.sign(text.encode(), ECDSA(SHA256()))).decode(),
    }


def _vaults(gateway: GatewayConfig) -> Iterator[Finding]:
    for vault in gateway.vaults:
        where = vault.path or f"tcp://{vault.host}:{vault.port}"
        try:
            if vault.path:
                with socket.socket(socket.AF_UNIX) as link:
                    link.connect(vault.path)
            else:
                socket.create_connection((vault.host, vault.port), _PATIENCE).close()
        except OSError as error:
            yield problem(
                f"no vault answers at {where}: {error.strerror or error}.",
                "Start the vault; with systemd, this user must be in the group fedldp.",
            )
            continue
        yield ok(f"a vault listens at {where}")
        if vault.path and os.stat(vault.path).st_uid == os.geteuid():  # noqa: PTH116 (a text)
            yield warning(
                f"the vault at {where} runs as the same user as this gateway.",
                "Give each its own user, as the systemd units do: a gateway runs the server's app.",
            )


def _app(gateway: GatewayConfig) -> Iterator[Finding]:
    if gateway.bundle == bundle.SHA256:
        yield ok("it runs the app of this version of fedldp, and no other")
    else:
        yield warning(
            "`bundle` in gateway.toml is not the app of this version of fedldp.",
            f'If the server has the app of this version, write: bundle = "{bundle.SHA256}"',
        )


def _next_key(gateway: GatewayConfig) -> Iterator[Finding]:
    if gateway.next_key.exists():
        yield warning(
            "there is a next key, which is not used yet.",
            "When the server has its public half: fedldp fleet rotate-keys FOLDER --use",
        )


CHECKS = (
    Check("versions", lambda _: machine.versions("flwr", "httpx", "uvicorn")),
    Check("clock", lambda gateway: machine.clock(gateway.folder)),
    Check("disk", lambda gateway: machine.disk(gateway.folder)),
    Check("permissions", lambda gateway: machine.folder_is_private(gateway.folder)),
    Check("permissions", lambda gateway: machine.secret(gateway.key)),
    Check("user", lambda gateway: machine.owner(gateway.folder)),
    Check("keys", _next_key),
    Check("server", _server),
    Check("vaults", _vaults),
    Check("app", _app),
    Check("isolation", lambda _: machine.isolated()),
)
