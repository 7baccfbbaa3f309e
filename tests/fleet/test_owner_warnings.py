"""The programs of a deployment: what the owner is told decides nothing."""

import pytest
from vehicle_processes import DEPLOYMENT, ROWS, check_standard_error

SLOW = ("examples/flower",)  # which imports scikit-learn; it has the same mod as "LDPMod"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in DEPLOYMENT],
)
def test_nothing_but_standard_error_shows_what_the_owner_is_told(name, tmp_path_factory):
    folder = tmp_path_factory.mktemp("v")  # for a short socket
    told = check_standard_error(name, folder, ("whole", "clipped"))
    assert told["clipped"].count("\n") > told["whole"].count("\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", DEPLOYMENT)
def test_so_it_is_for_all_kinds_of_rows(name, tmp_path_factory):
    check_standard_error(name, tmp_path_factory.mktemp("v"), tuple(ROWS))
