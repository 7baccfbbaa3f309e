"""The conda recipe is valid, and asks for what the package asks for. Run by `make test-public`."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "deploy" / "conda" / "recipe.yaml"
CONDA_NAMES = {"matplotlib": "matplotlib-base"}  # of packages with another name on PyPI
COMMAND_EXTRA = "cli"  # whose packages the recipe installs, as it installs the command
OPTIONAL_EXTRAS = ("plots", "learn", "frames", "parquet")

pytestmark = pytest.mark.public


@pytest.fixture(scope="module")
def recipe():
    from rattler_build import Stage0Recipe, VariantConfig

    oldest = project()["requires-python"].removeprefix(">=")
    variants = VariantConfig({"python_min": [oldest]})
    [rendered] = Stage0Recipe.from_file(RECIPE).render(variants)
    return rendered.recipe.to_dict()


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def conda_names(requirements):
    """Return requirements of PyPI as conda writes them."""
    for requirement in requirements:
        name, bound, version = requirement.partition(">=")
        if "[" not in name:
            yield f"{CONDA_NAMES.get(name, name)} {bound}{version}"


def test_it_builds_this_version(recipe):
    assert recipe["package"]["version"] == project()["version"]


def test_it_asks_for_what_the_package_asks_for(recipe):
    extras = project()["optional-dependencies"]
    needed = [*project()["dependencies"], *extras[COMMAND_EXTRA]]
    optional = [requirement for name in OPTIONAL_EXTRAS for requirement in extras[name]]
    python = f"python {project()['requires-python']}"
    assert sorted(recipe["requirements"]["run"]) == sorted([python, *conda_names(needed)])
    assert sorted(recipe["requirements"]["run_constraints"]) == sorted(conda_names(optional))
