"""What C does not know is refused in words, and nothing is compiled as something else."""

import json

import pytest
from click.testing import CliRunner
from samples import ATTRIBUTE_SAMPLES, CODER_SAMPLES, plan_around

from fedldp import Plan, Schema
from fedldp.cli.app import fedldp as command
from fedldp.errors import DomainError
from fedldp.plan import compiled
from fedldp.plan.strategies import Directions

PLANS = {
    f"{kind}, {number}": Plan(
        Schema((attribute,)), 2.0, Directions() if attribute.inputs.length else "auto"
    )
    for kind, attributes in ATTRIBUTE_SAMPLES.items()
    for number, attribute in enumerate(attributes)
}
PLANS |= {
    f"{kind}, {number}": plan_around(coder)
    for kind, coders in CODER_SAMPLES.items()
    for number, coder in enumerate(coders)
}
UNKNOWN = "the vehicle in C has no"


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_plan_is_compiled_or_refused_in_words(plan):
    try:
        found = compiled.compile_plan(plan.to_json(), 99)
    except DomainError as error:
        assert UNKNOWN in str(error)  # noqa: PT017
    else:
        assert len(found.plan.entries["attributes"].target.values) == len(plan.schema)
        assert len(found.columns) >= len(plan.schema)


def refused(monkeypatch, registry, plan):
    """Return why a plan is refused if a registry has no entries."""
    monkeypatch.setattr(compiled, registry, {})
    with pytest.raises(DomainError, match=UNKNOWN) as caught:
        compiled.compile_plan(plan.to_json(), 99)
    return str(caught.value)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_without_its_reader_no_attribute_is_compiled(plan, monkeypatch):
    entries = json.loads(plan.to_json())["schema"][0]
    inner = entries.get("of", entries)
    reason = refused(monkeypatch, "_READERS", plan)
    assert all(repr(entry) in reason for entry in inner.keys() - {"name"})


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_an_attribute_with_another_entry_is_not_compiled_without_it(plan):
    document = json.loads(plan.to_json())
    document["schema"][0]["scale"] = "log"
    with pytest.raises(DomainError, match=f"{UNKNOWN} attribute with the entries .*'scale'"):
        compiled.constants(document, {})


@pytest.mark.parametrize("kind", CODER_SAMPLES)
def test_without_its_constants_no_coder_is_compiled(kind, monkeypatch, tmp_path):
    plan = plan_around(CODER_SAMPLES[kind][0])
    registry = "_PARTS" if plan.parts[0].joint else "_TABLES"
    assert f"of the kind {kind!r}" in refused(monkeypatch, registry, plan)
    file = tmp_path / "plan.json"
    file.write_text(plan.to_json())
    arguments = ["compile", str(file), "--cap", "9", "-o", str(tmp_path / "plan.h")]
    with pytest.raises(DomainError, match=UNKNOWN):
        CliRunner().invoke(command, arguments, catch_exceptions=False)
