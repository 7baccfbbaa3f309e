"""Where a monitor listens: the loopback interface, a Unix socket or, with a token, anywhere."""

import ipaddress
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import final
from urllib.parse import quote

from fedldp._internal import toml
from fedldp.errors import DomainError
from fedldp.fleet import sockets

# Optional entries of server.toml, gateway.toml and vault.toml.
ENTRIES: dict[str, toml.Types] = {"monitor": str, "monitor_token": str}
DEFAULT = "127.0.0.1:9480"

_LONGEST = 107  # bytes of the path of a Unix socket
_SHORTEST = 16  # characters of a token: nobody guesses it
_BACKLOG = 32


@final
@dataclass(frozen=True)
class MonitorAddress:
    """An address and a port, or the path of a Unix socket; and a token, if callers need one.

    >>> MonitorAddress.of("127.0.0.1:9480").url
    'http://127.0.0.1:9480/'
    >>> MonitorAddress.of("0.0.0.0:9480")
    Traceback (most recent call last):
    fedldp.errors.DomainError: monitor = "0.0.0.0:9480" can be reached from other machines...
    """

    host: str = ""
    port: int = 0
    path: str = ""
    token: str = ""

    @classmethod
    def of(
        cls, text: str, folder: Path | None = None, token: str | Path | None = None
    ) -> "MonitorAddress":
        """Read an address, and the token from its file. Paths are relative to `folder`."""
        folder = Path.cwd() if folder is None else folder
        secret = "" if token is None else _secret(folder / token)
        host, colon, port = text.rpartition(":")
        if "/" in text or not colon:
            path = str(folder / text)
            if not text or len(os.fsencode(path)) > _LONGEST:
                raise DomainError(
                    f'monitor must be an address and a port, such as "{DEFAULT}", or the path of a '
                    f"Unix socket with 1 to {_LONGEST} bytes; got {path!r:.200}."
                )
            return cls(path=path, token=secret)
        try:
            number = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
            if not (port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
                raise ValueError
        except ValueError:
            raise DomainError(
                f'monitor must be an IP address and a port, such as "{DEFAULT}", or the path of a '
                f"Unix socket; got {text!r:.200}."
            ) from None
        if not number.is_loopback and not secret:
            raise DomainError(
                f'monitor = "{text}" can be reached from other machines, so it needs '
                f"monitor_token, the name of a file with a secret of at least {_SHORTEST} "
                f'characters. Or use the loopback interface: "{DEFAULT}".'
            )
        return cls(str(number), int(port), token=secret)

    @classmethod
    def load(cls, path: Path) -> "MonitorAddress | None":
        """Return the address that a configuration file names; None if it names none."""
        entries = toml.parse(path.read_text("utf-8"), str(path))
        if "monitor" not in entries:
            return None
        given = {name: entries[name] for name in ENTRIES if name in entries}
        if not all(isinstance(each, str) for each in given.values()):
            raise DomainError(
                f"{path}: monitor and monitor_token must be texts; got {given!r:.80}."
            )
        try:
            return cls.of(given["monitor"], path.parent, given.get("monitor_token"))
        except DomainError as error:
            raise DomainError(f"{path}: {error}") from None

    @property
    def loopback(self) -> bool:
        """Whether it can only be reached through the loopback interface."""
        return bool(self.host) and ipaddress.ip_address(self.host).is_loopback

    @property
    def url(self) -> str:
        """The address of its page, without the token."""
        if self.path:
            return f"http+unix://{quote(self.path, safe='')}/"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"

    def listen(self) -> socket.socket:
        """Return a socket that listens there, or raise `DomainError`."""
        try:
            if self.path:  # not for its group: a gateway, with an app of the server, may be in that
                return sockets.listen(Path(self.path), "choose another path", group=False)
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            return socket.create_server((self.host, self.port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise DomainError(
                f"the monitor cannot listen on {self.path or self.url}: {error.strerror}. Choose "
                "another address in the entry `monitor`."
            ) from None


def _secret(path: Path) -> str:
    """Return the token in a file, which must be long, and readable by its owner alone."""
    try:
        found = path.read_text("ascii").strip()
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise DomainError(f"monitor_token: {path} cannot be read: {error}.") from None
    if len(found) < _SHORTEST or not all("!" <= each <= "~" for each in found):
        raise DomainError(
            f"monitor_token: {path} must contain a secret of at least {_SHORTEST} printable "
            f"characters without spaces; got {len(found)} characters. Make one with: "
            f"python3 -c 'import secrets; print(secrets.token_urlsafe())' > {path}"
        )
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise DomainError(
            f"monitor_token: other accounts can read {path}: run chmod 600 {path}, and make a new "
            "secret."
        )
    return found
