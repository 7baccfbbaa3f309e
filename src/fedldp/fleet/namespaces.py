"""A program that works inside network namespaces. It needs only the standard library.

    python -I -S namespaces.py create CHANNEL
    python -I -S namespaces.py listen HANDLES PORT CHANNEL
    python -I -S namespaces.py start HANDLES PROGRAM WORD ...

The first form creates a namespace, the second a listening socket inside one. Both send descriptors
over the socket CHANNEL or, if they fail, the number of the error. The third starts a program inside
a namespace. HANDLES are the descriptors of the namespaces to enter, in this order. This is a
separate program because only a process with a single thread can enter a user namespace.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

BACKLOG = 2048

_NEW_USER, _NEW_NET = 0x10000000, 0x40000000  # flags of unshare(2)
_GET_FLAGS, _SET_FLAGS = 0x8913, 0x8914  # requests of ioctl(2): SIOCGIFFLAGS, SIOCSIFFLAGS
_INTERFACE = struct.Struct("16sH22x")  # struct ifreq: the name and the flags
_UP = 0x1  # IFF_UP


def interfaces_up() -> set[str]:
    """Return the names of the network interfaces of this process that are up."""
    # Not with socket.if_nameindex, which needs a kind of socket that the systemd units forbid.
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    names = [line.partition(":")[0].strip() for line in lines]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        return {name for name in names if _flags(any_socket, name) & _UP}


def main(mode: str, *words: str) -> None:
    """Run one of the three forms."""
    if mode == "start":
        handles, *argv = words
        _enter(handles)
        os.execvp(argv[0], argv)  # noqa: S606 (words of our own, and no shell)
    *arguments, channel = words
    with socket.socket(fileno=int(channel)) as link:
        try:
            descriptors = _listen(*arguments) if mode == "listen" else _create()
        except OSError as error:
            link.send(str(error.errno).encode())
        else:
            socket.send_fds(link, [b"0"], descriptors)


def _create() -> list[int]:
    """Enter a new network namespace and return descriptors of the namespaces that lead to it."""
    uid, gid = os.geteuid(), os.getegid()
    entered = ["net"]
    try:
        _call("unshare", _NEW_NET)
    except PermissionError:  # other users than root need a user namespace first
        _call("unshare", _NEW_NET | _NEW_USER)
        entered = ["user", "net"]
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        flags = _flags(any_socket, "lo") | _UP
        fcntl.ioctl(any_socket, _SET_FLAGS, _INTERFACE.pack(b"lo", flags))
    return [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in entered]


def _listen(handles: str, port: str) -> list[int]:
    _enter(handles)
    return [socket.create_server(("127.0.0.1", int(port)), backlog=BACKLOG).detach()]


def _enter(handles: str) -> None:
    for handle in map(int, handles.split(",")):
        _call("setns", handle, 0)
        os.close(handle)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)  # the kernel expects the text in one call
    os.write(descriptor, text.encode())
    os.close(descriptor)


def _flags(any_socket: socket.socket, interface: str) -> int:
    request = _INTERFACE.pack(interface.encode(), 0)
    flags: int = _INTERFACE.unpack(fcntl.ioctl(any_socket, _GET_FLAGS, request))[1]
    return flags


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library that Python itself offers only from version 3.12."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
