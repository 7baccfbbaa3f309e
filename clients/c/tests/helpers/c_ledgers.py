"""Ledgers of the vehicle in C, on memory that loses its power."""

import ctypes
import random
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int,
    c_size_t,
    c_ssize_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)

from c_vehicle import (
    CORE,
    FOLDER,
    VECTORS,
    CPlan,
    Epsilon,
    Random,
    Row,
    Stream,
    built,
    epsilon_of,
    structure,
)

LEDGERS = [FOLDER / "fedldp_flash.c", FOLDER / "fedldp_file.c"]

Load = CFUNCTYPE(c_int, c_void_p, POINTER(c_uint8), c_size_t)
Erase = CFUNCTYPE(c_int, c_void_p, c_int)
Program = CFUNCTYPE(c_int, c_void_p, c_int, c_size_t, POINTER(c_uint8))
Read = CFUNCTYPE(c_int, c_void_p, c_int, c_size_t, POINTER(c_uint8), c_size_t)

Ledger = structure(
    "fedldp_ledger",
    load=c_void_p,
    store=c_void_p,
    context=c_void_p,
    record=c_void_p,
    size=c_size_t,
)
Flash = structure(
    "fedldp_flash",
    erase=Erase,
    program=Program,
    read=Read,
    context=c_void_p,
    page_bytes=c_size_t,
    unit=c_size_t,
)
File = structure("fedldp_file", path=c_char_p, next=c_char_p, lock=c_char_p, folder=c_char_p)


class CVehicle(Structure):
    _fields_ = [
        ("plan", c_void_p),
        ("cap", Epsilon),
        ("random", Random),
        ("random_context", c_void_p),
        ("ledger", Ledger),
        ("scratch", c_void_p),
        ("checked", c_void_p),
    ]


def ledger_library(folder, changes=()):
    """Return the core and its ledgers as a shared library, with some changes to the sources."""
    sources = []
    for source in [*CORE, *LEDGERS]:
        text = source.read_text("ascii")
        for name, before, after in changes:
            if name == source.name:
                assert text.count(before) == 1, before
                text = text.replace(before, after)
        copy = folder / source.name
        copy.write_text(text, "ascii")
        sources.append(copy)
    warnings = ["-Wno-unused-function", "-Wno-unused-variable", "-Wno-unused-parameter"]
    disk = f'-DFEDLDP_FILE_TEST="{FOLDER / "tests/test_disk.h"}"'
    path = built(folder / "ledgers.so", sources, "-O1", "-shared", "-fPIC", disk, *warnings)
    return ctypes.CDLL(str(path))


class Device:
    """A vehicle with a plan and a ledger, whatever holds its bytes."""

    def __init__(self, core, plan, memory, cap="9", size=160):
        self.core, self.plan, self.memory = core, plan, memory
        self._record = (c_uint8 * size)()
        self._scratch = (c_uint64 * max(1, plan.plan.scratch))()
        ledger = Ledger(
            load=ctypes.cast(getattr(core, memory.load), c_void_p),
            store=ctypes.cast(getattr(core, memory.store), c_void_p),
            context=ctypes.addressof(memory.context),
            record=ctypes.addressof(self._record),
            size=size,
        )
        self.vehicle = CVehicle(
            plan=ctypes.addressof(plan.plan),
            cap=epsilon_of(cap),
            ledger=ledger,
            scratch=ctypes.addressof(self._scratch),
        )

    def provision(self):
        """Write the first record."""
        create = getattr(self.core, self.memory.create)
        ledger = Ledger.from_buffer_copy(self.vehicle.ledger)
        ledger.store = ctypes.cast(create, c_void_p)
        return self.core.fedldp_provision(byref(ledger))

    def answer(self, job, row, seed=0, period=0, data=None):
        """Return the status and the report of an answer; also what is out when the power fails."""
        stream = Stream(random.Random(seed).randbytes(5000) if data is None else data)
        self.vehicle.random = stream.callback
        report = POINTER(c_uint8)()
        values = Row(self.plan.columns, row).values
        status = self.core.fedldp_answer(
            byref(self.vehicle), c_uint64(job), c_uint32(period), values, byref(report)
        )
        size = 16 + -(-self.plan.plan.bits // 8)
        return status, bytes(report[:size]) if report else None

    def spent(self):
        """Return the status of the ledger and what was spent."""
        spent = Epsilon()
        status = self.core.fedldp_spent(byref(self.vehicle.ledger), byref(spent))
        units = sum(limb << 32 * i for i, limb in enumerate(spent.limbs))
        return status, units / 10**19


class FlashMemory:
    """Two pages of flash, which stop at an operation: it is torn, and all after it fail."""

    load, store, create = (f"fedldp_flash_{name}" for name in ("load", "store", "create"))

    def __init__(self, size=160, unit=8):
        self.page_bytes = (16 + size + unit - 1) // unit * unit + unit
        self.unit = unit
        self.pages = [bytearray(b"\xff" * self.page_bytes) for _ in range(2)]
        self.restart()
        self.context = Flash(
            erase=Erase(self._erase),
            program=Program(self._program),
            read=Read(self._read),
            page_bytes=self.page_bytes,
            unit=unit,
        )

    def restart(self, cut=None, seed=0):
        """Switch on, and fail at an operation."""
        self.cut, self.count, self.is_on = cut, 0, True
        self._random = random.Random(seed)

    def _fails(self):
        self.count += 1
        if self.is_on and self.count == self.cut:
            self.is_on = False
            return True
        return False

    def _erase(self, context, page):
        cuts = self._fails()
        if not self.is_on and not cuts:
            return 1
        if cuts:
            share = self._random.choice([0, 0.5, 1])
            for i in range(self.page_bytes):
                if self._random.random() < share:
                    self.pages[page][i] |= self._random.choice([0xFF, self._random.getrandbits(8)])
            return 1
        self.pages[page][:] = b"\xff" * self.page_bytes
        return 0

    def _program(self, context, page, offset, data):
        cuts = self._fails()
        if not self.is_on and not cuts:
            return 1
        old = self.pages[page][offset : offset + self.unit]
        if not cuts and old != b"\xff" * self.unit:
            self.programmed_twice = True
        share = self._random.choice([0, 0.5, 1])
        for i in range(self.unit):
            new = data[i]
            if cuts:  # some bits are not 0 yet
                left = sum((self._random.random() >= share) << bit for bit in range(8))
                new |= left
            self.pages[page][offset + i] &= new
        return int(cuts)

    programmed_twice = False

    def _read(self, context, page, offset, target, count):
        if not self.is_on:
            return 1
        ctypes.memmove(target, bytes(self.pages[page][offset : offset + count]), count)
        return 0


class FileMemory:
    """A folder on a disk, which loses what was not synchronized when the power fails.

    A file on the disk holds any part of what was written since it was synchronized last; names
    change in the order in which they were changed, and up to any of these changes.
    """

    load, store, create = (f"fedldp_file_{name}" for name in ("load", "store", "create"))
    FOLDER_DESCRIPTOR = 3

    def __init__(self, core, **_):
        self.context = File(
            path=b"/disk/ledger",
            next=b"/disk/ledger.next",
            lock=b"/disk/ledger.lock",
            folder=b"/disk",
        )
        self.files = {}  # number: [what is on the disk, what was written]
        self.names_on_disk, self.names = {}, {}
        self.changes = []
        self.restart()
        kinds = {
            "open": CFUNCTYPE(c_int, c_char_p, c_int),
            "write": CFUNCTYPE(c_ssize_t, c_int, POINTER(c_uint8), c_size_t),
            "read": CFUNCTYPE(c_ssize_t, c_int, POINTER(c_uint8), c_size_t),
            "fsync": CFUNCTYPE(c_int, c_int),
            "close": CFUNCTYPE(c_int, c_int),
            "rename": CFUNCTYPE(c_int, c_char_p, c_char_p),
        }
        self._kept = []
        for name, kind in kinds.items():
            function = kind(getattr(self, f"_{name}"))
            self._kept.append(function)
            c_void_p.in_dll(core, f"test_{name}").value = ctypes.cast(function, c_void_p).value

    def restart(self, cut=None, seed=0):
        """Switch on with what is on the disk, and fail at an operation."""
        self._random = random.Random(seed)
        if not getattr(self, "is_on", True):
            for disk_and_written in self.files.values():
                disk_and_written[1] = bytearray(disk_and_written[0])
            self.names = dict(self.names_on_disk)
            self.changes = []
        self.cut, self.count, self.is_on = cut, 0, True
        self._descriptors = {}

    def _fails(self):
        """Return whether the power has failed; when it does, something may reach the disk."""
        self.count += 1
        if self.is_on and self.count == self.cut:
            self.is_on = False
            for name, number in self.changes[: self._random.randint(0, len(self.changes))]:
                self._rename_on_disk(name, number)
            for data in self.files.values():
                if data[0] != data[1] and self._random.random() < 0.5:
                    data[0] = data[1][: self._random.randint(0, len(data[1]))]
        return not self.is_on

    def _rename_on_disk(self, name, number):
        gone = [old for old, other in self.names_on_disk.items() if other == number]
        for old in gone:
            del self.names_on_disk[old]
        self.names_on_disk[name] = number

    def _open(self, path, flags):
        if path == b"/disk":
            return self.FOLDER_DESCRIPTOR if self.is_on else -1
        creates, truncates, exclusive = flags & 0o100, flags & 0o1000, flags & 0o200
        if creates and self._fails():
            return -1
        if (
            not self.is_on
            or (not creates and path not in self.names)
            or (exclusive and path in self.names)
        ):
            return -1
        if path not in self.names:
            self.names[path] = len(self.files)
            self.files[self.names[path]] = [bytearray(), bytearray()]
            self.changes.append((path, self.names[path]))
        number = self.names[path]
        if truncates:
            self.files[number][1] = bytearray()
        descriptor = 10 + len(self._descriptors)
        self._descriptors[descriptor] = [number, 0]
        return descriptor

    def _write(self, descriptor, data, count):
        if self._fails():
            return -1
        count = min(count, 50)
        self.files[self._descriptors[descriptor][0]][1] += bytes(data[:count])
        return count

    def _read(self, descriptor, target, count):
        if not self.is_on:
            return -1
        number, at = self._descriptors[descriptor]
        chunk = bytes(self.files[number][1][at : at + count])
        ctypes.memmove(target, chunk, len(chunk))
        self._descriptors[descriptor][1] += len(chunk)
        return len(chunk)

    def _fsync(self, descriptor):
        if self._fails():
            return -1
        if descriptor == self.FOLDER_DESCRIPTOR:
            for name, number in self.changes:
                self._rename_on_disk(name, number)
            self.changes = []
        else:
            data = self.files[self._descriptors[descriptor][0]]
            data[0] = bytearray(data[1])
        return 0

    def _close(self, descriptor):
        return 0 if self.is_on else -1

    def _rename(self, old, new):
        if self._fails():
            return -1
        self.names[new] = self.names.pop(old)
        self.changes.append((new, self.names[new]))
        return 0


def small_plan(core):
    """Return a plan of one number, with epsilon 1."""
    return CPlan.of(core, VECTORS["cases"][0]["plan"])
