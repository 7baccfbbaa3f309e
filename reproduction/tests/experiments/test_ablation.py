"""The steps from the paper to the default: what each gains, and that all are measured."""

from dataclasses import replace

import pytest
from small_runs import KNOWN, finished

from fedldp_reproduction.experiments import ablation
from fedldp_reproduction.experiments.samples import ErrorSample


def sample(name, error):
    return ErrorSample("A", name, 4.0, (error, error * 1.01), replicates=1)


def panel(errors, smaller=None, floor=0.0):
    steps = dict(zip(ablation.MODELS, errors, strict=False))
    small = dict(zip(ablation.MODELS, smaller or (), strict=False))
    made = ({name: sample(name, error) for name, error in of.items()} for of in (steps, small))
    return ablation.Panel("Models: A", *made, floor * 1.005)


def test_the_error_of_means_falls_as_the_number_of_vehicles():
    assert panel((0.6, 0.2)).vehicles(1) == pytest.approx(3.0)


def test_how_the_error_of_models_falls_is_measured():
    # Above the floor of 0.1 the first step has 0.2, and 0.4 with a quarter of the fleet: it falls
    # as the root of n, so that half of it needs four times as many vehicles.
    found = panel((0.3, 0.2), smaller=(0.5, 0.3), floor=0.1)
    assert found.vehicles(1) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("errors", "smaller"), [((0.3, 0.09), (0.5, 0.5)), ((0.3, 0.2), (0.3, 0.3))]
)
def test_what_cannot_be_told_is_not_made_up(errors, smaller):
    assert panel(errors, smaller, floor=0.1).vehicles(1) is None
    rows = ablation.table([panel(errors, smaller, floor=0.1)])
    assert rows[2][-1] == "not known"


def test_the_default_must_be_better_everywhere():
    good, bad = panel((0.3, 0.2)), panel((0.3, 0.4))
    assert ablation.verdict([good]).holds is True
    assert ablation.verdict([good, bad]).holds is False
    assert ablation.verdict([]).holds is None
    assert "+33.3% on Models: A" in ablation.verdict([bad]).evidence


def test_every_step_is_measured_on_every_panel(tmp_path):
    figure = replace(KNOWN.figure("ablation"), data=("br",), objectives=("", "logistic"))
    (result,) = finished(tmp_path, (figure,))
    steps = {point.panel: [] for point in result.points}
    for point in result.points:
        if point.series == "error":
            steps[point.panel].append(point.x)
    means, models = steps
    assert (means.split(":")[0], models.split(":")[0]) == ("Means", "Logistic regression")
    assert steps[means] == [0, 2, 3, 4]
    assert steps[models] == list(range(len(ablation.MODELS)))
    assert len(result.table) == 1 + 4 + 8
    assert {len(row) for row in result.table} == {5}
    assert set(ablation.WAYS) == set(ablation.MODELS) == set(ablation.TITLES)
    (verdict,) = result.verdicts
    assert verdict.beyond
    assert any(line.startswith("7: a survey first") for line in result.settings)
