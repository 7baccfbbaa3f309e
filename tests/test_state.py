"""State changes only in the classes that docs/architecture.md lists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedldp"


def own_attributes(node):
    """Yield what a statement assigns to `self`."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for part in (part for target in targets for part in ast.walk(target)):
        is_stored = isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
        if is_stored and isinstance(part.value, ast.Name) and part.value.id == "self":
            yield part.attr


def changes_itself(class_):
    """Return whether a class assigns to `self` when it has been built."""
    methods = {node.name: node for node in class_.body if isinstance(node, ast.FunctionDef)}
    building = {"__init__", "__post_init__", "__new__", "__setstate__"} & methods.keys()
    for name in list(building):
        calls = (node.func for node in ast.walk(methods[name]) if isinstance(node, ast.Call))
        building |= {call.attr for call in calls if isinstance(call, ast.Attribute)}
    kinds = ast.Assign | ast.AugAssign | ast.AnnAssign
    return any(
        any(own_attributes(node))
        for name, method in methods.items()
        if name not in building
        for node in ast.walk(method)
        if isinstance(node, kinds)
    )


def test_the_architecture_lists_every_class_that_changes():
    changing = {
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and changes_itself(node)
    }
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = page.split("## State that changes\n")[1].split("\n## ")[0]
    listed = {name for row in re.findall(r"^\|.*\|$", section, re.MULTILINE)
              for name in re.findall(r"`(\w+)`", row)}  # fmt: skip
    assert listed == changing
