"""Answers through ledgers: what is released is stored before, whenever the power fails."""

import ctypes
import json
import random
import subprocess

import pytest
from c_ledgers import Device, FileMemory, FlashMemory, ledger_library, small_plan
from c_vehicle import (
    EXPENSIVE,
    FOLDER,
    LIMIT,
    NO_LEDGER,
    NO_RANDOM,
    OK,
    OLD,
    REFUSED,
    SILENT,
    VECTORS,
    CPlan,
    built,
)
from full_figures import keep

from fedldp import vehicle
from fedldp.plan import compiled

ROW = {"speed": 91.0}
MEMORIES = ("flash", "file")


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory):
    return ledger_library(tmp_path_factory.mktemp("ledgers"))


def memory_of(core, kind, **options):
    return FlashMemory(**options) if kind == "flash" else FileMemory(core, **options)


def device_of(core, kind, text=VECTORS["cases"][0]["plan"], cap="9", size=160):
    device = Device(core, CPlan.of(core, text), memory_of(core, kind, size=size), cap, size)
    assert device.provision() == OK
    return device


@pytest.mark.parametrize("kind", MEMORIES)
def test_a_blank_ledger_refuses(ledgers, kind):
    device = Device(ledgers, small_plan(ledgers), memory_of(ledgers, kind))
    assert device.answer(1, ROW) == (NO_LEDGER, None)
    assert device.spent()[0] == NO_LEDGER
    assert device.provision() == OK
    assert device.spent() == (OK, 0)
    assert device.provision() == OLD


@pytest.mark.parametrize("kind", MEMORIES)
def test_what_is_not_blank_is_not_provisioned(ledgers, kind):
    device = device_of(ledgers, kind)
    if kind == "flash":
        device.memory.pages[0][20] ^= 1
    else:
        device.memory.files[0][1][30] ^= 1
    assert device.spent()[0] == NO_LEDGER
    assert device.provision() == NO_LEDGER


@pytest.mark.parametrize("kind", MEMORIES)
def test_answers_are_spent_repeated_and_limited(ledgers, kind):
    device = device_of(ledgers, kind, cap="3")
    status, first = device.answer(1, ROW, seed=1)
    assert status == OK
    assert device.spent() == (OK, 1)
    assert device.answer(1, {"speed": 3}, seed=2) == (OK, first)
    assert device.spent() == (OK, 1)
    assert device.answer(5, ROW)[0] == OK
    assert device.answer(5, ROW, period=1) == (REFUSED, None)
    assert device.answer(4, ROW) == (OLD, None)
    assert device.answer(1, ROW) == (OLD, None)
    assert device.answer(6, ROW, data=b"") == (NO_RANDOM, None)
    assert device.spent() == (OK, 2)
    assert device.answer(6, ROW)[0] == OK
    assert device.answer(7, ROW) == (EXPENSIVE, None)
    assert device.spent() == (OK, 3)
    device.memory.restart()
    assert device.answer(6, ROW)[0] == OK


def test_a_plan_that_leaks_is_not_answered(ledgers):
    """Whether or not the program has called `fedldp_check`."""
    case = next(case for case in VECTORS["cases"] if case["name"] == "randomised response")
    row = case["answers"][0]["row"]
    device = device_of(ledgers, "flash", case["plan"])
    honest, constants = device.plan, compiled.compile_plan(case["plan"], "9")
    [table] = constants.plan.entries["tables"].target.values
    table.entries["detail"].target.entries["same"] *= 8
    device.plan = CPlan(ledgers, constants.plan, constants.columns)
    device.vehicle.plan = ctypes.addressof(device.plan.plan)
    assert device.answer(1, row) == (REFUSED, None)
    assert device.spent() == (OK, 0)
    device.plan = honest
    device.vehicle.plan = ctypes.addressof(honest.plan)
    assert device.answer(1, row)[0] == OK


def test_a_record_that_is_too_small_is_a_limit(ledgers):
    device = device_of(ledgers, "flash")
    device.vehicle.ledger.size = 63
    assert device.answer(1, ROW) == (LIMIT, None)
    assert device.provision() == LIMIT
    device = device_of(ledgers, "flash", size=80)
    assert device.answer(1, ROW) == (LIMIT, None)


def test_a_plan_that_never_changes_is_paid_once(ledgers):
    case = next(case for case in VECTORS["cases"] if case["name"] == "attributes that never change")
    device = device_of(ledgers, "flash", case["plan"])
    row = case["answers"][0]["row"]
    first = device.answer(1, row, seed=1)
    assert first[0] == OK
    assert device.answer(2, {}, seed=2) == first
    assert device.spent() == (OK, pytest.approx(float(case["cost"])))


def test_a_calendar_is_answered_in_its_periods(ledgers):
    text = VECTORS["calendars"][0]["calendar"]  # 2 of 7 periods
    device = device_of(ledgers, "flash", text, cap="2")
    statuses = [device.answer(1, ROW, seed=i, period=i)[0] for i in range(1, 8)]
    assert sorted(statuses) == [OK] * 2 + [SILENT] * 5
    assert device.spent() == (OK, 2)
    chosen = [i for i in range(1, 8) if statuses[i - 1] == OK]
    for period, status in ((0, REFUSED), (8, REFUSED), (chosen[0], OLD)):
        assert device.answer(1, ROW, period=period) == (status, None)
    again = device.answer(1, {}, seed=99, period=chosen[1])
    assert again == device.answer(1, ROW, seed=chosen[1], period=chosen[1])
    assert device.answer(2, ROW, period=1) == (EXPENSIVE, None)


def test_a_calendar_whose_periods_cannot_be_drawn_is_not_paid(ledgers):
    device = device_of(ledgers, "flash", VECTORS["calendars"][0]["calendar"])
    assert device.answer(1, ROW, period=1, data=b"") == (NO_RANDOM, None)
    assert device.spent() == (OK, 0)


def test_a_calendar_of_what_never_changes_sends_the_same_bytes(ledgers):
    case = next(case for case in VECTORS["cases"] if case["name"] == "attributes that never change")
    document = {"format": "fedldp calendar 1", "answers": 3, "periods": 3}
    text = vehicle.canonical({**document, "plan": json.loads(case["plan"])})
    device = device_of(ledgers, "flash", text)
    reports = {device.answer(1, {}, seed=i, period=i) for i in (1, 2, 3)}
    assert len(reports) == 1
    assert device.spent() == (OK, pytest.approx(float(case["cost"])))


# Damage.


def test_damage_of_a_file_is_noticed(ledgers):
    device = device_of(ledgers, "file")
    assert device.answer(1, ROW)[0] == OK
    number = device.memory.names[b"/disk/ledger"]
    intact = bytes(device.memory.files[number][1])
    for i in range(len(intact)):
        damaged = bytearray(intact)
        damaged[i] ^= 4
        device.memory.files[number][1] = damaged
        assert device.answer(1, ROW) == (NO_LEDGER, None)
    for damaged in (intact[:-1], intact + b"\0", b""):
        device.memory.files[number][1] = bytearray(damaged)
        assert device.answer(1, ROW) == (NO_LEDGER, None)


def test_damage_of_the_last_page_is_noticed(ledgers):
    """The page before it must not come back: it has less spent than was released."""
    device = device_of(ledgers, "flash")
    assert device.answer(1, ROW)[0] == OK
    assert device.answer(2, ROW)[0] == OK
    for i in range(16 + 160):
        device.memory.pages[0][i] ^= 4
        assert device.answer(3, ROW) == (NO_LEDGER, None)
        device.memory.pages[0][i] ^= 4
    device.memory.pages[0][:] = b"\xff" * len(device.memory.pages[0])
    assert device.answer(3, ROW) == (NO_LEDGER, None)


def test_flash_that_does_not_keep_what_is_written(ledgers):
    device = device_of(ledgers, "flash")
    honest = device.memory.pages[1]

    class Stuck(bytearray):
        def __setitem__(self, place, value):
            super().__setitem__(place, value)
            super().__setitem__(40, 0)

    device.memory.pages[1] = Stuck(honest)
    assert device.answer(1, ROW) == (NO_LEDGER, None)
    device.memory.pages[1] = honest
    assert device.answer(1, ROW)[0] == OK


def test_flash_whose_programming_fails_is_noticed(ledgers):
    device = device_of(ledgers, "flash")
    honest = device.memory.pages[1]

    class Weak(bytearray):
        def __setitem__(self, place, value):
            super().__setitem__(place, value ^ 1 if place == 40 else value)

    device.memory.pages[1] = Weak(honest)
    assert device.answer(1, ROW) == (NO_LEDGER, None)
    device.memory.pages[1] = honest
    assert device.answer(1, ROW)[0] == OK


@pytest.mark.parametrize("unit", [1, 2, 4, 8, 32])
def test_units_of_flash_are_programmed_once(ledgers, unit):
    device = Device(ledgers, small_plan(ledgers), FlashMemory(unit=unit))
    assert device.provision() == OK
    assert [device.answer(job, ROW)[0] for job in range(1, 9)] == [OK] * 8
    assert not device.memory.programmed_twice


def test_a_flash_of_unknown_units_is_not_used(ledgers):
    device = device_of(ledgers, "flash")
    for unit, page_bytes in ((0, 184), (33, 330), (8, 176)):
        device.memory.context.unit, device.memory.context.page_bytes = unit, page_bytes
        assert device.spent()[0] == NO_LEDGER
        assert device.provision() == NO_LEDGER


# Power cuts.


class Forgotten(AssertionError):
    """A ledger has less spent than was released, or does not open."""


def run(core, kind, cuts, seed):
    """Answer three jobs, losing the power at some operations, and return the operations of each.

    After each cut, the ledger must open with everything paid that is out; what was released must
    be released again at no cost; and the jobs go on.
    """
    device = device_of(core, kind)
    memory, released, job, counts = device.memory, {}, 1, []
    for number, cut in enumerate([*cuts, None]):
        memory.restart(cut, seed + number)
        while job <= 3:
            status, report = device.answer(job, ROW, seed=seed + number)
            if report is not None and released.setdefault(job, report) != report:
                raise Forgotten(f"job {job} was answered twice")
            if not memory.is_on:
                break
            if status != OK:
                raise Forgotten(f"status {status} in job {job}")
            job += 1
        counts.append(memory.count)
        memory.restart()
        status, spent = device.spent()
        if status != OK or spent < len(released):
            raise Forgotten(f"status {status}, {spent} spent, {len(released)} released")
        last = max(released, default=0)
        if last and device.answer(last, {}, seed=77) != (OK, released[last]) and spent == last:
            raise Forgotten(f"job {last} is answered again with other bytes")
        if device.spent()[1] > max(spent, last):
            raise Forgotten("a repeated question was paid again")
    return counts


def operations(core, kind):
    return run(core, kind, [], 0)[0]


@pytest.mark.parametrize("kind", MEMORIES)
def test_power_cut_at_every_operation(ledgers, kind):
    count = operations(ledgers, kind)
    for cut in range(1, count + 1):
        for seed in range(6):
            run(ledgers, kind, [cut], seed)


@pytest.mark.parametrize("kind", MEMORIES)
def test_repeated_power_cuts(ledgers, kind):
    source, count = random.Random(4), operations(ledgers, kind)
    for seed in range(300):
        run(ledgers, kind, [source.randint(1, count) for _ in range(3)], seed)


@pytest.mark.full
@pytest.mark.parametrize("kind", MEMORIES)
def test_every_pair_of_power_cuts(ledgers, kind):
    count = operations(ledgers, kind)
    for first in range(1, count + 1):
        for second in range(1, count + 1):
            for seed in range(4):
                run(ledgers, kind, [first, second], seed)
    keep(f"power-cuts-{kind}", {"power_cuts": 2 * 4 * count**2})


ANSWER, FLASH, FILE = (f"fedldp_{name}.c" for name in ("answer", "flash", "file"))
STORES = "    if (status == FEDLDP_OK) status = store("
RELEASE_FIRST = (ANSWER, STORES, f"    *report = drawn;\n{STORES}")
NO_MARK = (FLASH, "flash->program(flash->context, page, at, mark) != 0)", "0)")
WRONG = {
    "flash: erase the own page": (
        "flash",
        (FLASH, "flash->erase(flash->context, 1 - page)", "flash->erase(flash->context, page)"),
        (FLASH, "is_blank(flash, 1 - page, 0,", "is_blank(flash, page, 0,"),
        (FLASH, "write_page(flash, 1 - page,", "write_page(flash, page,"),
        NO_MARK,
        (FLASH, "return is_blank(flash, page, at, flash->unit) != 0;", "return 0;"),
    ),
    "flash: no checksum": ("flash", (FLASH, " || number_at(head + 12) != crc", "")),
    "flash: mark before writing": (
        "flash",
        (
            FLASH,
            "if (page < 0 || ",
            "if (page < 0 || flash->program(flash->context, page, at, mark) || ",
        ),
        NO_MARK,
    ),
    "flash: release first": ("flash", RELEASE_FIRST),
    "file: release first": ("file", RELEASE_FIRST),
    "file: write the file itself": (
        "file",
        (FILE, "write_file(ledger->next, O_TRUNC", "write_file(ledger->path, O_TRUNC"),
        (FILE, "rename(ledger->next, ledger->path) != 0", "0"),
    ),
    "file: no fsync of the file": ("file", (FILE, " || fsync(file) != 0;", ";")),
    "file: no fsync of the folder": ("file", (FILE, "failed = fsync(file) != 0;", "failed = 0;")),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ledgers_are_found(name, tmp_path):
    kind, *changes = WRONG[name]
    core = ledger_library(tmp_path, changes)

    def try_all():
        count = operations(core, kind)
        for cut in range(1, count + 1):
            for seed in range(20):
                run(core, kind, [cut], seed)

    with pytest.raises(Forgotten):
        try_all()


def test_a_file_on_a_real_disk(tmp_path):
    """With the operating system's files, and a lock that keeps a second process out."""
    program = tmp_path / "program"
    sources = [*FOLDER.glob("fedldp*.c"), FOLDER / "tests/real_file.c"]
    built(program, sources, "-O2")
    done = subprocess.run([str(program)], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "spent 0, stored, spent 5, locked out\n")
