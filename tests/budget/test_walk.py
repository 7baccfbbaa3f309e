"""The walk of a row of one vehicle, through `Vehicle.answer`, is short enough to be read."""

import sys
from pathlib import Path

import pytest

import fedldp
from fedldp import Ledger, Plan, Schema, Vehicle

LIBRARY = Path(fedldp.__file__).parent
MOST_MODULES = 12
SCHEMAS = {
    "numbers and a category": Schema.of(speed=(0, 120), fuel=(0, 80), brand=["a", "b", "c"]),
    "a vector": Schema.vector(3, length=1.0),
}


def modules_called(work):
    """Return the modules of the library whose functions run."""
    found = set()

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(LIBRARY):
            found.add(str(path.relative_to(LIBRARY)))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_row_is_answered_by_few_modules(name, tmp_path):
    schema = SCHEMAS[name]
    plan = Plan(schema, 1.0)
    row = {each.name: each.labels[0] if each.labels else [0.5] * 3 for each in schema.attributes}
    row |= {"speed": 50, "fuel": 10} if "speed" in row else {}
    with Ledger.create(tmp_path / "ledger", cap=4) as ledger:
        car = Vehicle(ledger, "car")
        car.answer(plan, row, job="the first, which fills caches")
        called = modules_called(lambda: car.answer(plan, row, job="spring"))
        assert ledger.spent("car") == 2
    assert {"budget/vehicle.py", "budget/ledger.py", "vehicle.py"} <= called
    assert len(called) <= MOST_MODULES, sorted(called)
