"""One name, one thing."""

import ast
from collections import Counter
from pathlib import Path

import fedldp_fleet


def test_no_two_classes_have_one_name():
    """Not even if one of them is private."""
    files = Path(fedldp_fleet.__file__).parent.rglob("*.py")
    trees = (ast.parse(path.read_text("utf-8")) for path in files)
    names = (
        node.name.lstrip("_")
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in Counter(names).items() if count > 1] == []
