"""Fork so that parent and child have the same process id, and print what both see.

A process with the id 1 in its PID namespace makes another namespace and forks: its child has the id
1 too. Run it as a script: `equal_process_ids.py namespace CASE FOLDER` as the first process of a
namespace, or `equal_process_ids.py pretended CASE FOLDER` where the system allows no namespaces.
There is one fork for each case, as a process can make one such namespace.
"""

import ctypes
import json
import os
import sys
from functools import partial
from pathlib import Path

from ledgers import open_ledger

import fedldp
from fedldp.errors import FedLDPError

NEW_PID_NAMESPACE = 0x20000000


def said(act):
    """Return the process id of a forked child, and what an action says there."""
    if sys.argv[1] == "namespace" and ctypes.CDLL(None).unshare(NEW_PID_NAMESPACE):
        raise OSError("no PID namespace")
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, json.dumps([os.getpid(), act()]).encode())
        os._exit(0)
    os.close(write)
    os.wait()
    with os.fdopen(read) as file:
        return json.load(file)


def words(_):
    stream = fedldp.source()
    return said(lambda: stream.words(4).tolist()), [os.getpid(), stream.words(4).tolist()]


def ledger(folder, *, in_transaction):
    def spent():
        try:
            return str(book.spent("car"))
        except FedLDPError as error:
            return str(error)

    seen = []
    with open_ledger(Path(folder) / "ledger", cap=1) as book:
        book.release("car", 1, "1", lambda: (in_transaction and seen.append(said(spent))) or b"x")
        return seen[0] if in_transaction else said(spent), [os.getpid(), spent()]


CASES = {
    "words": words,
    "in a transaction": partial(ledger, in_transaction=True),
    "after it": partial(ledger, in_transaction=False),
}

if __name__ == "__main__":
    if sys.argv[1] == "pretended":
        os.getpid = lambda: 1
    print(json.dumps(CASES[sys.argv[2]](sys.argv[3])))
