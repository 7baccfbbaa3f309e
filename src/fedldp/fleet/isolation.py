"""A private network for the processes of a server or a gateway. For Linux.

Flower's programs talk to each other through ports on the loopback interface. Most of these ports
need no password, so any account of the machine could use them. That is why the programs run in
their own network namespace, whose loopback interface no other account can reach. Root creates it
directly; other users create it inside a user namespace, in which they keep their user id.

A socket belongs to the namespace in which it was created, no matter which process uses it later. So
the supervisor runs outside. It hands the listening socket of the endpoint to a process inside, and
a listening socket that it created inside to the uplink of a gateway, which runs outside.
"""

import errno
import logging
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fedldp.errors import DomainError
from fedldp.fleet import namespaces
from fedldp.fleet.state import users

SOCKETS = "FEDLDP_SOCKETS"  # environment variable: descriptors of sockets for a new process

_log = logging.getLogger("fedldp.fleet")
_FIRST = 3  # the first descriptor that systemd hands on


@final
@dataclass(frozen=True)
class Network:
    """The network in which processes are started.

    `handles` are descriptors of the namespaces to enter, in this order. Without handles it is the
    network of the current process. `private` says whether other accounts cannot reach it.
    """

    handles: tuple[int, ...] = ()
    private: bool = False

    def program(self, *words: str) -> tuple[str, ...]:
        """Return the command line that runs a program in this network.

        >>> Network().program("flwr", "run")
        ('flwr', 'run')
        """
        return self._launch("start", *words) if self.handles else words

    def listen(self, port: int = 0) -> socket.socket:
        """Return a socket that listens on the loopback interface of this network."""
        if not self.handles:
            return socket.create_server(("127.0.0.1", port), backlog=namespaces.BACKLOG)
        (descriptor,) = _received(self.handles, *self._launch("listen", str(port)))
        return socket.socket(fileno=descriptor)

    def _launch(self, mode: str, *words: str) -> tuple[str, ...]:
        return _launcher(mode, ",".join(map(str, self.handles)), *words)


def choose(given: bool, required: bool) -> Network:
    """Return the network for Flower's processes: a private one, if the system allows it.

    `given` says that systemd has made one for this process. If a private network is not available,
    log a warning and return the network of the machine; if it is `required`, raise `DomainError`.
    """
    if given and is_private():
        return Network(private=True)
    reason = "the unit has no PrivateNetwork=yes"
    if not given:
        try:
            return Network(_received((), *_launcher("create")), private=True)
        except OSError as error:
            reason = f"a private network cannot be created ({error.strerror})"
    danger = (
        f"{reason}. Without a private network, every account of this machine can reach Flower's "
        "ports and run code as this user. Allow network and user namespaces for this user, "
        "or use the systemd units that `fedldp fleet init` writes."
    )
    if required:
        raise DomainError(f"--require-isolation: {danger}")
    _log.warning("Warning: %s", danger)
    return Network()


def alone() -> Network:
    """Return the network of a container in which nobody else runs anything.

    Its loopback interface is private already. Raise `DomainError` if processes of other users can
    be seen: then this is not a container, or not one for this part alone.
    """
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    others = set().union(*map(users, numbers)) - {os.geteuid()}
    if others:
        raise DomainError(
            "--container: processes of other users run here, so the loopback interface is not "
            f"private: those with the numbers {sorted(others)!r:.80}. Leave the option out."
        )
    return Network(private=True)


def is_private() -> bool:
    """Return whether the loopback interface is the only one of this process that is up.

    That is so with PrivateNetwork=yes in a systemd unit.
    """
    return namespaces.interfaces_up() == {"lo"}


def inherited() -> list[socket.socket]:
    """Return the listening sockets that a supervisor or systemd has handed to this process."""
    if os.environ.get("LISTEN_PID") == str(os.getpid()):
        descriptors = list(range(_FIRST, _FIRST + int(os.environ.get("LISTEN_FDS", "0"))))
    else:
        descriptors = [int(word) for word in os.environ.get(SOCKETS, "").split(",") if word]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # programs started later must not inherit them
    return [socket.socket(fileno=descriptor) for descriptor in descriptors]


def _launcher(mode: str, *words: str) -> tuple[str, ...]:
    # -I and -S: neither the environment nor installed packages influence what it imports.
    return sys.executable, "-I", "-S", namespaces.__file__, mode, *words


def _received(handles: tuple[int, ...], *argv: str) -> tuple[int, ...]:
    """Run the program in `namespaces`, and return the descriptors that it sends."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            channel = theirs.fileno()
            process = subprocess.Popen(  # noqa: S603 (words of our own, and no shell)
                [*argv, str(channel)], stdin=subprocess.DEVNULL, pass_fds=(*handles, channel)
            )
        with process:
            said, descriptors, _, _ = socket.recv_fds(ours, 16, 2)
    if not descriptors:
        number = int(said or errno.EIO)
        raise OSError(number, os.strerror(number))
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return tuple(descriptors)
