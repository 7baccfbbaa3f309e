"""One name, one thing: no class of a distribution has the name of another."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = "src/fedldp", "vehicle", "fleet/fedldp_fleet", "reproduction/fedldp_reproduction"
# One file without the library has small twins of the library's classes.
VEHICLE = "src/fedldp/vehicle.py"
TWINS = {"Attribute", "Calendar", "Channel", "Lines", "Part", "Plan"}


def classes():
    """Yield the name and the module of each class; files that distributions share count once."""
    for path in {file.resolve() for folder in PACKAGES for file in (ROOT / folder).rglob("*.py")}:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield node.name, str(path.relative_to(ROOT))


def test_no_class_has_the_name_of_another():
    homes = defaultdict(list)
    for name, module in classes():
        homes[name].append(module)
    twice = {name: modules for name, modules in homes.items() if len(modules) > 1}
    twins = {name: modules for name, modules in twice.items() if name in TWINS}
    assert twins.keys() == TWINS
    assert all(len(modules) == 2 and VEHICLE in modules for modules in twins.values())
    assert {name: modules for name, modules in twice.items() if name not in TWINS} == {}
