"""Work done as another account, or in the network of another process: in a forked child."""

import ctypes
import encodings.idna  # noqa: F401 (which sockets import when they are first used)
import os
import pickle
import traceback
from pathlib import Path

import pytest

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")


def forked(function, uid=None, network_of=None):
    """Return what a function returns in a child of another user, or in another's network.

    What it imports must be imported before: another user may not be able to read it.
    """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            if network_of is not None:
                _enter(network_of)
            if uid is not None:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            result = pickle.dumps(function())
            while result:
                result = result[os.write(write, result) :]
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    assert said, "the child has failed"
    return pickle.loads(said)


def _enter(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    for name in ("user", "net"):
        here, there = f"/proc/self/ns/{name}", f"/proc/{pid}/ns/{name}"
        if Path(here).readlink() != Path(there).readlink():
            handle = os.open(there, os.O_RDONLY)
            if libc.setns(handle, 0):
                raise OSError(ctypes.get_errno(), "setns")
            os.close(handle)
