"""What the site makes of formulas, exponents and docstrings, in the packages of `make docs`."""

import importlib.util
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "tools" / "site"


def tool(name, needed):
    pytest.importorskip(needed, reason="make docs installs it")
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("e^ε times", "e<sup>ε</sup> times"),
        ("e^(ε/2), 2^-20", "e<sup>ε/2</sup>, 2<sup>\N{MINUS SIGN}20</sup>"),
        ("{-1, 1}^d and Z_q^t", "{-1, 1}<sup>d</sup> and Z<sub>q</sub><sup>t</sup>"),
        ("**x_i** of y_t.", "<strong>x<sub>i</sub></strong> of y<sub>t</sub>."),
        (
            "`e^x_i` vehicle_ids a_opt_1",
            '<code class="short">e^x_i</code> vehicle_ids a_opt_1',
        ),
        ("2 ^ 3, ^caret", "2 ^ 3, ^caret"),
    ],
)
def test_exponents_and_indexes(text, expected):
    extension = tool("prose", "markdown").makeExtension()
    assert sys.modules["markdown"].markdown(text, extensions=[extension]) == f"<p>{expected}</p>"


def test_headings_stay_as_they_are():
    extension = tool("prose", "markdown").makeExtension()
    assert sys.modules["markdown"].markdown("# e^ε", extensions=[extension]) == "<h1>e^ε</h1>"


@pytest.mark.parametrize(
    ("formula", "part"),
    [
        (r"P(-C)", '<mo form="prefix">&#x02212;</mo>'),
        (r"a - b", "<mo>&#x02212;</mo>"),
        (r"a \pm b", "<mo>&#x000B1;</mo>"),
        (r"|x|", '<mo stretchy="false" lspace="0" rspace="0">&#x0007C;</mo>'),
        (r"x'", "<mo>&#x02032;</mo>"),
    ],
)
def test_spaces_in_formulas(formula, part):
    assert part in tool("formulas", "latex2mathml").fence(formula)


def test_a_formula_that_is_not_understood_is_refused():
    formulas = tool("formulas", "latex2mathml")
    with pytest.raises(Exception, match="not all of this formula"):
        formulas.fence(r"\nosuchcommand x")


def test_related_names_are_a_list():
    text = (
        "Sum.\n\nSee Also\n--------\nPlan : More\n    of it.\nMean : Less.\n\nExamples\n--------\n"
    )
    changed = tool("examples", "griffe").listed(text)
    assert "\n- `Plan`: More\n    of it.\n- `Mean`: Less.\n\nExamples" in changed
