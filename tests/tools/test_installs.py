"""Each distribution and extra, installed alone, does what it promises; sizes are in a table."""

import re
from pathlib import Path

import installs
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "releases.md").read_text("utf-8")
IN_OTHER_ENVIRONMENTS = {"torch", "dask", "spark", "beam", "duckdb"}  # by other targets of make


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    return installs.build(tmp_path_factory.mktemp("wheels"))


@pytest.mark.dist
@pytest.mark.parametrize("case", installs.CASES, ids=lambda case: case.name)
def test_alone_it_does_what_it_promises(case, wheels, tmp_path):
    environment = tmp_path / "environment"
    installs.install(case, wheels, environment)
    done = installs.run(case.promise, environment, tmp_path)
    assert done.returncode == 0, done.stderr
    if case.lacking:
        done = installs.run(case.lacking, environment, tmp_path)
        assert done.returncode != 0
        assert case.missing in done.stderr
    packages, octets = installs.size(environment)
    row = re.search(rf"^\| `{re.escape(case.name)}` \| (\d+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert octets / 1e6 == pytest.approx(float(row[2]), rel=0.25)  # other versions, other sizes
    if case.name == "fedldp-vehicle":
        assert packages == 1


def test_every_extra_is_installed_somewhere():
    names = {case.name for case in installs.CASES}
    for name, folder in installs.FOLDERS.items():
        extras = installs.extras(ROOT / folder)
        expected = {name, *(f"{name}[{extra}]" for extra in extras - IN_OTHER_ENVIRONMENTS)}
        assert expected <= names
