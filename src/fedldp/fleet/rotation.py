"""New keys for the two whom a fleet trusts: the operator, and the certificate authority.

Vaults trust the public key of the operator, who signs jobs. Gateways trust the certificate of the
authority, which has issued the certificate of the server. Each of them has a file with what it
trusts, and the file may name two keys. So a key changes in three steps. Between the first and the
last, which may be as long as it takes to copy files to other machines, old and new are trusted:

1. `Rotation.prepare` makes the next key, and adds its public half to the files;
2. `Rotation.use` replaces the private key by the next one;
3. `Rotation.forget` removes the old public half from the files.

Files in the folders of parts are changed if these folders are here. The folder with the private key
gets a copy, for the machines that have the others.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

from fedldp import signing as signatures
from fedldp.errors import DomainError, FedLDPError
from fedldp.fleet import keys, members, signing
from fedldp.fleet.folder import AUTHORITY, AUTHORITY_KEY, OPERATOR_KEY
from fedldp.fleet.gateway import process as gateway_process
from fedldp.fleet.gateway.process import GatewayConfig
from fedldp.fleet.job import Job
from fedldp.fleet.server import checkpoint
from fedldp.fleet.server import process as server_process
from fedldp.fleet.server.process import ServerConfig
from fedldp.fleet.signing import OPERATOR
from fedldp.fleet.vault import process as vault_process
from fedldp.fleet.vault.process import VaultConfig
from fedldp.signing import PrivateKey, PublicKey, PublicKeys
from fedldp.storage import files


class TrustedKey(ABC):
    """A kind of key that others trust. The folder is that of a fleet, as far as it is here."""

    SECRET: ClassVar[str]  # the name of the file with the private key
    PUBLIC: ClassVar[str]  # the name of the file with public halves
    HOLDERS: ClassVar[str]  # where this file belongs, and what to do there

    @abstractmethod
    def copies(self, folder: Path) -> Iterator[Path]:
        """Yield the files with public halves in the folders of parts."""

    @abstractmethod
    def halves(self, text: str) -> list[str]:
        """Return the public halves that a file names, or raise `FedLDPError`."""

    @abstractmethod
    def belongs(self, half: str, secret: Path) -> bool:
        """Return whether a public half belongs to a private key."""

    @abstractmethod
    def make(self, secret: Path) -> str:
        """Make and write a private key; return its public half."""

    @abstractmethod
    def adopt(self, folder: Path, secret: Path) -> None:
        """Do what must be done before a private key replaces another one."""

    @abstractmethod
    def after_use(self, folder: Path) -> str:
        """Return what people must do before the old key can be forgotten."""

    @abstractmethod
    def check_unused(self, folder: Path, half: str) -> None:
        """Raise `DomainError` if something in the folder would no longer be trusted."""


@final
@dataclass(frozen=True)
class OperatorKey(TrustedKey):
    """The key with which the operator signs jobs: vaults trust it, and the server compares it."""

    passphrase: str | None = None  # of the private key, and of the next one

    SECRET = OPERATOR_KEY
    PUBLIC = OPERATOR
    HOLDERS = (
        "to the folder of each vault and of the server, in place of the file there. Then reload "
        "each vault (fedldp fleet reload), or restart it."
    )

    def copies(self, folder: Path) -> Iterator[Path]:
        if server := _server(folder):
            yield server.folder / OPERATOR
        for path in sorted(folder.glob(f"{members.VAULT}*/{vault_process.FILE}")):
            vault = VaultConfig.load(path.parent)
            if "operator" in vault.entries:
                yield vault.folder / vault.entries["operator"]

    def halves(self, text: str) -> list[str]:
        return [f"{each.text}\n" for each in PublicKeys.from_text(text).keys]

    def belongs(self, half: str, secret: Path) -> bool:
        return PublicKey.from_text(half) == PrivateKey.load(secret, self.passphrase).public

    def make(self, secret: Path) -> str:
        key = PrivateKey.generate()
        key.save(secret, self.passphrase)
        return f"{key.public.text}\n"

    def adopt(self, folder: Path, secret: Path) -> None:
        pass  # jobs that the present key has signed stay valid until it is forgotten

    def after_use(self, folder: Path) -> str:
        return (
            "Sign the job of the server again, unless it is done: fedldp fleet sign "
            f"{folder / members.SERVER} --key {folder / OPERATOR_KEY}. Copy the signed text to the "
            "server, and restart it: it resumes."
        )

    def check_unused(self, folder: Path, half: str) -> None:
        server = _server(folder)
        if server is None or signing.is_pending(server.job):
            return
        job = Job.load(server.job)
        if checkpoint.finished(job.checkpoint) or not job.signed:
            return
        if signatures.signer_fingerprint(job.signed) == PublicKey.from_text(half).fingerprint:
            raise DomainError(
                f"the job {job.name!r} is signed with the old key, and is not done: vaults would "
                f"no longer answer it. Sign it first: fedldp fleet sign {server.folder} --key "
                f"{folder / OPERATOR_KEY}"
            )


@final
@dataclass(frozen=True)
class AuthorityKey(TrustedKey):
    """The key that issues the certificate of the server: gateways and the server trust it."""

    SECRET = AUTHORITY_KEY
    PUBLIC = AUTHORITY
    HOLDERS = (
        "to the folder of each gateway and of the server, in place of the file there. Then restart "
        "each of them: they resume."
    )

    def copies(self, folder: Path) -> Iterator[Path]:
        if server := _server(folder):
            yield server.authority
        for path in sorted(folder.glob(f"{members.GATEWAY}*/{gateway_process.FILE}")):
            yield GatewayConfig.load(path.parent).authority

    def halves(self, text: str) -> list[str]:
        return keys.authorities(text)

    def belongs(self, half: str, secret: Path) -> bool:
        return keys.is_of(half, secret)

    def make(self, secret: Path) -> str:
        return keys.write_authority(secret)

    def adopt(self, folder: Path, secret: Path) -> None:
        if server := _server(folder):
            members.rotate_server(server, secret)

    def after_use(self, folder: Path) -> str:
        return (
            "The server needs a certificate of the new authority. If its folder is not here: "
            f"fedldp fleet rotate-keys SERVER --ca {AUTHORITY_KEY}"
        )

    def check_unused(self, folder: Path, half: str) -> None:
        server = _server(folder)
        if server and keys.issued_by(server.certificate, half):
            raise DomainError(
                f"the old authority has issued {server.certificate}: gateways would no longer "
                f"trust it. Make a new one first: fedldp fleet rotate-keys {server.folder} --ca "
                f"{folder / AUTHORITY_KEY}"
            )


@final
@dataclass(frozen=True)
class Rotation:
    """The change of a key in the folder that has it."""

    folder: Path
    key: TrustedKey

    @property
    def secret(self) -> Path:
        """The file with the private key."""
        return self.folder / self.key.SECRET

    @property
    def next(self) -> Path:
        """The file with the next private key."""
        return self.secret.with_name(f"{self.secret.stem}.next{self.secret.suffix}")

    @property
    def public(self) -> Path:
        """The file with public halves, for other machines."""
        return self.folder / self.key.PUBLIC

    def prepare(self) -> list[Path]:
        """Make the next key, and trust both; return the files that name both now."""
        if self.next.exists():
            raise DomainError(
                f"{self.next} exists already: use it (--use), or remove it and have it forgotten "
                "(--forget) to make another."
            )
        now = self._now()
        naming = self._naming(now)  # before anything is written
        if naming[self.public] != [now]:  # it may be the one that was stolen
            raise DomainError(
                f"{self.public} names a key that is not used, and is still trusted: first run this "
                "command with --forget."
            )
        new = self.key.make(self.next)
        return self._write({path: [*found, new] for path, found in naming.items()})

    def use(self) -> None:
        """Replace the private key by the next one, once every machine trusts both."""
        if not self.next.exists():
            raise DomainError(f"{self.next} does not exist: make it first, without --use.")
        self.key.adopt(self.folder, self.next)
        self.next.replace(self.secret)
        files.sync(self.folder)

    def forget(self) -> list[Path]:
        """Trust the present key alone; return the files that were changed."""
        if self.next.exists():
            raise DomainError(f"{self.next} is not used yet: first run this command with --use.")
        now = self._now()
        old = [each for each in self._read(self.public) if each != now]
        if not old:
            raise DomainError(f"{self.public} names no other key: there is nothing to forget.")
        for each in old:
            self.key.check_unused(self.folder, each)
        kept = {
            path: [each for each in found if each not in old]
            for path, found in self._known().items()
            if not set(old).isdisjoint(found)
        }
        # A file that has missed the first step does not name the present key yet.
        return self._write(
            {path: found if now in found else [*found, now] for path, found in kept.items()}
        )

    def _now(self) -> str:
        """Return the public half of the private key, as some file here names it."""
        if not self.secret.exists():
            raise DomainError(
                f"expected the folder that has {self.secret.name}, which is kept offline; "
                f"{self.folder} has none."
            )
        for path in self._files():
            for each in self._read(path):
                if self.key.belongs(each, self.secret):
                    return each
        raise DomainError(
            f"no file here has the public half of {self.secret}. Copy {self.public.name} from the "
            f"folder of the server to {self.folder}."
        )

    def _naming(self, now: str) -> dict[Path, list[str]]:
        """Return the files that name the public half of now, and all that each of them names.

        The file for other machines is one of them, even if it does not exist yet.
        """
        known = self._known()
        known[self.public] = known[self.public] or [now]
        return {path: found for path, found in known.items() if now in found}

    def _known(self) -> dict[Path, list[str]]:
        return {path: self._read(path) for path in self._files()}

    def _write(self, halves: dict[Path, list[str]]) -> list[Path]:
        for path, found in halves.items():
            files.write(path, "".join(found))
        return list(halves)

    def _files(self) -> list[Path]:
        return [self.public, *self.key.copies(self.folder)]

    def _read(self, path: Path) -> list[str]:
        """Return what a file names; nothing if there is none."""
        if not path.exists():
            return []
        try:
            return self.key.halves(path.read_text("utf-8", errors="replace"))
        except FedLDPError as error:
            raise DomainError(f"{path}: {error}") from None


def _server(folder: Path) -> ServerConfig | None:
    """Return the server of a fleet, if its folder is here."""
    found = folder / members.SERVER
    return ServerConfig.load(found) if (found / server_process.FILE).exists() else None
