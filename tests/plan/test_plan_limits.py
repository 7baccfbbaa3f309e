"""Small files must not be able to ask for much: plans are refused before they cost anything."""

import json

import pytest
from spellings import flat_plan

import fedldp
from fedldp import vehicle
from fedldp.errors import DomainError, PrivacyError, WireError
from fedldp.plan.strategies import Sample
from fedldp.vehicle import MOST_COUNTERS


def document(schema, epsilon, **options):
    return json.loads(flat_plan(schema, epsilon, **options).to_json())


def refused(changed, kind, match):
    text = vehicle.canonical(changed)
    with pytest.raises(kind, match=match):
        fedldp.Plan.from_json(text)
    with pytest.raises(ValueError, match="refused"):
        vehicle.Plan(text, 64)


def test_all_of_very_many_coordinates():
    """The cost is looked at before anything is made for each coordinate."""
    plan = document(fedldp.Schema.vector(4, 1.0), 1.0, mechanism="duchi", k=1)
    plan["schema"][0]["size"] = plan["parts"][0]["k"] = 1 << 24
    refused(plan, PrivacyError, "would cost 16777216")


def test_many_cubes():
    schema = fedldp.Schema.of(**{f"x{i}": (0, 1) for i in range(2)})
    plan = document(schema, 2.0, strategy="cube")
    one = plan["parts"][0] | {"attributes": [0], "threshold": 0, "epsilon": "1.0"}
    one |= {"heavy": 2, "light": 1}
    plan["parts"] = [one, one | {"attributes": [1]}]
    refused(plan, WireError, "at most one part with a joint coder")


def test_budgets_that_no_cap_would_stop():
    plan = document(fedldp.Schema.of(c=["x", "y"]), 1.0)
    table = plan["tables"][0]
    plan["tables"] = [table | {"epsilon": "0.0001", "same": 1, "other": 1}]
    with pytest.raises(ValueError, match=r"refused: epsilon must be at least 0\.001"):
        vehicle.Plan(vehicle.canonical(plan), 64)
    with pytest.raises(WireError, match="epsilon must be a number from"):
        fedldp.Plan.from_json(vehicle.canonical(plan))


def test_more_counters_than_a_server_can_keep():
    plan = document(fedldp.Schema.vector(2, 1.0), 1.0, mechanism="pm", outputs=255, k=1)
    plan["schema"][0]["size"] = MOST_COUNTERS // 255 + 1
    with pytest.raises(WireError, match=f"at most .* and {MOST_COUNTERS} are allowed"):
        fedldp.Plan.from_json(vehicle.canonical(plan))
    with pytest.raises(DomainError, match="Ask for less"):
        fedldp.Plan(
            fedldp.Schema.vector(1 << 24, 1.0), 1.0, Sample(k=1, mechanism="pm", outputs=255)
        )


def test_a_table_of_its_own_for_each_attribute():
    """Each answer looks at its own table, not at all of them."""
    schema = fedldp.Schema.of(**{f"c{i}": ["x", "y"] for i in range(300)})
    plan = document(schema, 3.0, strategy="split")
    [table] = plan["tables"]
    total = int(table["same"]) + int(table["other"])
    plan["tables"] = [
        table | {"same": str(int(table["same"]) - i), "other": str(total - int(table["same"]) + i)}
        for i in range(300)
    ]
    plan["parts"][0]["tables"] = list(range(300))
    loaded = fedldp.Plan.from_json(vehicle.canonical(plan))
    looks = []
    original = type(loaded.parts[0])._rows
    try:
        type(loaded.parts[0])._rows = lambda *a: looks.append(1) or original(*a)
        tally = loaded.simulate([{f"c{i}": "y" for i in range(300)}] * 50, fedldp.source(1))
    finally:
        type(loaded.parts[0])._rows = original
    assert len(looks) <= 300
    assert tally.estimate()["c299"].answers == 50
