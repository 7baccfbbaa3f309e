"""The example of a city: what is grey and why, what estimates cover, and the whole program.

tests/fixtures/city.npz has the streets of the city and some of the trips that SUMO simulated.
"""

import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fedldp
from fedldp.budget.ledger import Ledger

CITY = Path(__file__).parents[2] / "examples" / "city"
FIXTURE = Path(__file__).parents[1] / "fixtures" / "city.npz"
REPEATED = 40  # the trips of the fixture, for a larger fleet


@pytest.fixture(autouse=True)
def modules(monkeypatch):
    monkeypatch.syspath_prepend(CITY)
    for name in ("traffic", "survey", "pictures", "agents"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in ("traffic", "survey", "pictures", "agents"):
        sys.modules.pop(name, None)


@pytest.fixture
def city():
    stored = np.load(FIXTURE)
    return import_module("traffic").City(stored["streets"], stored["districts"])


@pytest.fixture
def rows():
    stored = dict(np.load(FIXTURE))
    return {name: stored[name] for name in stored if name not in ("streets", "districts")}


@pytest.fixture
def fleet(rows):
    return {name: np.tile(column, REPEATED) for name, column in rows.items()}


def asked(fleet, epsilon):
    survey = import_module("survey")
    calendar = survey.calendar(epsilon, periods=import_module("traffic").SLOTS)
    return survey.collect(calendar, fleet, fedldp.source(3))


def test_each_car_answers_in_the_period_that_it_drew_and_once(fleet):
    tallies = asked(fleet, 1.0)
    answers = {period: tally.reports for period, tally in tallies.items()}
    assert answers == {n: int(np.sum(fleet["period"] == n)) for n in range(1, 7)}
    assert sum(answers.values()) == len(fleet["period"])
    survey = import_module("survey")
    assert survey.total(tallies, 2)["Vehicle.Powertrain.Type"].answers < answers[3]


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_intervals_cover_the_truth(fleet, epsilon):
    survey = import_module("survey")
    estimate = survey.total(asked(fleet, epsilon))
    truth, found = survey.Speeds.true(fleet), survey.Speeds.of(estimate)
    held = (found.low <= truth.means) & (truth.means <= found.high)
    assert held.sum() >= 17  # of 20 at 95%: fewer at one seed in 60
    wait = estimate["Vehicle.TripWaitingTime"].quantile(0.5)
    assert wait.low <= np.median(fleet["Vehicle.TripWaitingTime"]) <= wait.high
    kinds = estimate["Vehicle.Powertrain.Type"]
    low, high = kinds.simultaneous[kinds.labels.index("ELECTRIC")]
    assert low <= np.mean(fleet["Vehicle.Powertrain.Type"] == "ELECTRIC") <= high


def test_a_larger_epsilon_leaves_fewer_districts_grey(fleet):
    survey = import_module("survey")
    grey = [survey.Speeds.of(survey.total(asked(fleet, e))).grey.sum() for e in (1.0, 2.0, 4.0)]
    assert grey[0] > grey[1] > grey[2]


def test_the_truth_is_the_mean_of_each_district(rows):
    truth = import_module("survey").Speeds.true(rows)
    there = rows["Vehicle.CurrentLocation.District"] == "C"
    assert truth.means[2] == pytest.approx(rows["Vehicle.Speed"][there].mean())
    morning = rows["period"] == 1
    slot = import_module("survey").Speeds.true(rows, 0)
    assert slot.means[2] == pytest.approx(rows["Vehicle.Speed"][there & morning].mean())
    nobody = {name: column[:0] for name, column in rows.items()}
    assert np.isnan(import_module("survey").Speeds.true(nobody).means).all()


def test_a_district_is_grey_if_its_interval_reaches_too_far():
    survey = import_module("survey")
    most = survey.MOST_UNCERTAINTY
    means = np.array([30.0, 30.0, 30.0, 30.0, np.nan])
    low = means - np.array([most, most + 0.1, 1.0, 1.0, 0.0])
    high = means + np.array([most, 1.0, most + 0.1, 1.0, 0.0])
    low[4], high[4] = 0, 60  # nobody answered
    assert survey.Speeds(means, low, high).grey.tolist() == [False, True, True, False, True]


def test_the_map_greys_and_counts_what_is_too_uncertain(city, fleet):
    survey, pictures = import_module("survey"), import_module("pictures")
    truth, found = survey.Speeds.true(fleet), survey.Speeds.of(survey.total(asked(fleet, 2.0)))
    figure = pictures.maps(city, truth, found, 2.0)
    true, private = figure.axes[:2]
    grey = [text for text in private.texts if text.get_text().startswith("±")]
    assert 0 < len(grey) == found.grey.sum() < 20
    assert f"{found.grey.sum()} of 20 districts grey" in private.get_title()
    colors = [tuple(lines.get_color()[0]) for lines in private.collections]
    assert sum(len(set(color[:3])) == 1 for color in colors) == found.grey.sum()
    shown = {text.get_text() for text in true.texts}
    assert shown == {f"{mean:.0f}" for mean in truth.means}


def test_files_are_small_and_the_film_has_a_picture_for_each_slot(city, fleet, tmp_path):
    survey, pictures = import_module("survey"), import_module("pictures")
    tallies = asked(fleet, 4.0)
    films = [
        pictures.maps(
            city, survey.Speeds.true(fleet, n), survey.Speeds.of(survey.total(tallies, n)), 4.0
        )
        for n in range(6)
    ]
    pictures.save(films[0], tmp_path / "city.png")
    pictures.animate(films, tmp_path / "city.gif")
    assert (tmp_path / "city.png").stat().st_size < 300_000
    assert (tmp_path / "city.gif").stat().st_size < 1_000_000
    with Image.open(tmp_path / "city.png") as picture, Image.open(tmp_path / "city.gif") as film:
        assert picture.size == (1200, 615)
        assert film.n_frames == 6


def test_a_model_is_better_than_always_the_same_guess(fleet):
    survey = import_module("survey")
    assert survey.congestion(fleet, 4.0) < survey.congestion(fleet, 0) - 0.01


def run(folder):
    command = [sys.executable, CITY, "--tiny", "--folder", folder]
    return subprocess.run(command, capture_output=True, text=True)


def check_run(done, folder):
    assert done.returncode == 0, done.stderr
    assert "answers of agents over HTTPS" in done.stdout
    assert "slow cars" in done.stdout
    assert {"city.png", "city.gif"} <= {path.name for path in folder.iterdir()}
    spent = 0
    for number in (1, 2):
        with Ledger(folder / "fleet" / f"agent-{number}" / "ledger.db", 2.0) as ledger:
            totals = ledger.totals()
            spent += len(totals)
            assert set(totals.values()) == {2}  # each that answered paid once
    period = folder / "fleet" / "period-1.json"
    assert spent > 0
    assert period.exists()


def test_the_whole_program_runs_with_stored_trips(tmp_path, city, rows):
    kept = import_module("traffic").trips_file(tmp_path, 1, 300)
    some = {name: column[:1800] for name, column in rows.items()}
    np.savez(kept, streets=city.streets, districts=city.districts, **some)
    check_run(run(tmp_path), tmp_path)


@pytest.mark.city
def test_the_whole_program_runs_with_sumo(tmp_path):
    check_run(run(tmp_path), tmp_path)
    with zipfile.ZipFile(next(tmp_path.glob("trips-*.npz"))) as kept:
        assert "period.npy" in kept.namelist()
    again = run(tmp_path)  # which reads the trips
    check_run(again, tmp_path)
    assert "1,800 trips" in again.stdout
