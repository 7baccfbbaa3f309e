"""How other libraries are run: in processes that may fail without stopping the rest."""

import json

import numpy as np
import ours
import pytest
import run
import with_privunit
from environments import Peer, PeerFailed, last_words, working
from work import BINS, DISTRIBUTIONS, FREQUENCIES, Work

from fedldp import datasets

WORKING = """
from work import Task
PACKAGES = ("numpy",)
def tasks(work):
    def run():
        print("a library may print")
        return work.means(work.numbers(4) + 1)
    return {"mean": Task(4, run)}
"""


@pytest.fixture
def data(tmp_path):
    np.save(tmp_path / "numbers.npy", np.array([0.0, 1.0, -1.0, 0.0, 0.5]))
    asked = {"epsilon": 1.0, "part": 2, "categories": 3}
    (tmp_path / "work.json").write_text(json.dumps(asked))
    return tmp_path


@pytest.fixture
def library(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def make(text):
        (tmp_path / "with_made_up.py").write_text(text)
        return Peer("made-up", (), ())

    return make


def test_a_library_answers_from_its_process(data, library):
    with working(library(WORKING), data) as worker:
        assert worker.tasks == {"mean": 4}
        assert worker.versions == {"numpy": np.__version__}
        for _ in range(2):
            seconds, result = worker.ask("mean")
            assert seconds >= 0
            assert result == [1.5, 0.5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("PACKAGES = ()\ndef tasks(work):\n    return 1 / 0", "ZeroDivisionError: .*"),
    ],
)
def test_a_library_that_does_not_run_says_why(data, library, text, said):
    with pytest.raises(PeerFailed, match=said), working(library(text), data):
        pass


def test_a_task_that_fails_says_why(data, library):
    text = WORKING.replace("return work.means", "raise ValueError('no luck') or work.means")
    with working(library(text), data) as worker, pytest.raises(PeerFailed, match="no luck"):
        worker.ask("mean")


def test_last_words():
    assert last_words(["Traceback", "", "ValueError: no luck", " ", ""]) == "ValueError: no luck"
    assert last_words([]) == "it said nothing"


def test_parts_are_estimated_apart(data):
    work = Work(data)
    assert work.means(work.numbers(4)) == [0.5, -0.5]
    assert [part.tolist() for part in work.parts(np.arange(4))] == [[0, 1], [2, 3]]


def test_typical_errors():
    assert run.typical("a round", [None, None]) == ""
    # squares 9, 16, 9, 16: their mean is 12.5 +- 2.021, whose root is 3.536 +- 2.021 / (2 * 3.536)
    assert run.typical("mean", [np.array([3.0]), np.array([4.0, 3.0, 4.0])]) == "3.536 (s.e. 0.286)"
    assert run.typical("training", [np.array([0.1]), np.array([0.2])]) == "0.1500 (s.e. 0.0500)"


def test_times_have_a_unit_that_suits_them():
    found = [run.duration(seconds) for seconds in (2.5e-9, 2.5e-6, 2.5e-3, 2.5)]
    assert found == ["2.50 ns", "2.50 µs", "2.50 ms", "2,500 ms"]


def test_every_task_of_ours_is_as_exact_as_it_should_be(tmp_path):
    """Errors of estimates are below five times what is expected: no false alarm in a lifetime."""
    ours.prepare(tmp_path)
    mine = ours.Ours(Work(tmp_path))
    miles = datasets.load("flights").matrix(names=[ours.COLUMN])
    everyone = mine.work.numbers(None)
    assert everyone.min() >= miles.min() / 2500 - 1
    assert everyone.mean() == pytest.approx(miles.mean() / 2500 - 1, abs=0.01)
    for name in ("mean", "response", "unary", "response, projected", "unary, projected"):
        result = mine.task(name, 2000)()
        errors = mine.errors(name, 2000, result)
        assert errors.shape == (2,)
        assert errors.max() < 5 * 2.5 / ours.PART**0.5, name
    for name in FREQUENCIES:
        for way, limit in (("", 2.5), (", few bits", 2.5), (", scaled", 2.5)):
            errors = mine.errors(name + way, 2000, mine.task(name + way, 2000)())
            assert errors.shape == (2,)
            assert errors.max() < 5 * limit / ours.PART**0.5, name
        assert mine.coder(name + ", few bits").bits <= 14
    assert run.described(mine, FREQUENCIES[-1]).endswith("epsilon 1 (ours: 3,000 bits)")
    model = mine.task("training", 20_000)()
    assert mine.errors("training", 20_000, model)[0] < 0.4
    assert mine.errors("a round", 200, mine.task("a round", 200)()) is None


def test_distributions_are_compared_with_those_of_the_same_flights(tmp_path):
    ours.prepare(tmp_path)
    mine = ours.Ours(Work(tmp_path))
    assert len(DISTRIBUTIONS) == 6
    for name in DISTRIBUTIONS:
        values = mine.work.values(name, 10_000).reshape(2, -1)
        low, high = ours.WIDE[name.rpartition(" ")[2]]
        own = mine.work.binned(name, 10_000).reshape(2, -1)
        exactly = [np.bincount(each, minlength=BINS) / 5000 for each in own]
        for part, each in zip(values, exactly, strict=True):
            assert np.allclose(np.histogram(part, BINS, (low, high))[0] / 5000, each, atol=2e-3)
        at_most = 0.0 if name.startswith("CDF") else 1.0  # inside a bin, a median is a guess
        assert np.all(mine.errors(name, 10_000, exactly) <= at_most + 1e-9)
        found = mine.errors(name, 10_000, mine.task(name, 10_000)())
        assert found.shape == (2,)
        assert np.all(found < (0.4 if name.startswith("CDF") else 5.0))
        assert "in 32 bins, epsilon 1, 5,000 vehicles" in run.described(mine, name)


def test_the_mean_of_vectors_is_as_exact_as_it_should_be(tmp_path):
    """Ours and both peers, against the errors that are known in closed form.

    The root mean square of 20 parts with 128 coordinates is within 10% of it: 5 standard errors.
    """
    np.save(tmp_path / "vectors.npy", ours.unit_vectors())
    (tmp_path / "work.json").write_text(json.dumps({"part": ours.PART, "train_epsilon": 4.0}))
    work = Work(tmp_path)
    mine, theirs = ours.Ours(work), with_privunit.tasks(work)
    inner = with_privunit.PrivUnitG(4.0, ours.DIMENSIONS)
    limits = dict.fromkeys(theirs) | {"vector, PrivUnitG": inner.error}
    for name, task in theirs.items():
        assert task.vehicles == ours.VEHICLES
        errors = mine.errors(name, task.vehicles, task.run())
        squared = float(np.mean(errors**2)) * ours.DIMENSIONS * ours.PART
        if limits[name] is not None:
            assert abs(squared / limits[name] - 1) < 0.1
        assert 0.9 * inner.error < squared < 4 * inner.error
    errors = mine.errors("vector", ours.VEHICLES, mine.task("vector", ours.VEHICLES)())
    squared = float(np.mean(errors**2)) * ours.DIMENSIONS * ours.PART
    assert 0.9 * inner.error < squared < 1.2 * inner.error


@pytest.mark.parametrize(("epsilon", "error"), [(0.5, 25.18), (1, 6.33), (2, 1.617), (4, 0.435)])
def test_privunit_has_the_error_of_its_paper(epsilon, error):
    """A coordinate of a long vector: the figures of docs/explanation/directions.md."""
    found = with_privunit.PrivUnitG(epsilon, 100_000)
    assert found.error / 100_000 == pytest.approx(error, rel=2e-3)
    ratio = found.p * found.q / ((1 - found.p) * (1 - found.q))
    assert ratio == pytest.approx(np.exp(epsilon))


def test_each_library_has_a_module_and_something_to_say():
    for peer in run.PEERS:
        assert (run.Path(run.__file__).parent / f"{peer.module}.py").exists()
        assert peer.remarks
