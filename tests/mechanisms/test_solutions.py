"""Solutions that come with the library: they are what the solver finds, and checked when used."""

import json

import numpy as np
import pytest

from fedldp.mechanisms import Dominant, NearZero, Optimal
from fedldp.mechanisms.optimal import solutions
from fedldp.mechanisms.optimal.program import SOLVER_VERSION

KINDS = {kind.name: kind for kind in (Dominant, NearZero, Optimal)}
DOCUMENT = json.loads(solutions.FILE.read_text("utf-8"))
USUAL = [
    (name, epsilon, outputs) for name in KINDS for epsilon in (1.0, 2.0) for outputs in (15, 31)
]


def shipped():
    """Return the mechanisms whose solutions come with the library."""
    epsilons = sorted({n / 20 for n in range(1, 161)} | {n / 3 for n in range(1, 25)})
    every = (kind(e, outputs=n) for kind in KINDS.values() for e in epsilons for n in (15, 31))
    return [mechanism for mechanism in every if mechanism._key() in DOCUMENT["solutions"]]


@pytest.fixture
def unsolvable(monkeypatch, tmp_path):
    """Let no mechanism run the solver or read the cache."""
    monkeypatch.setenv("FEDLDP_CACHE", str(tmp_path / "none"))
    for kind in KINDS.values():
        monkeypatch.setattr(kind, "_find", None)


def test_they_are_of_this_solver():
    assert DOCUMENT["solver"] == SOLVER_VERSION
    assert len(shipped()) == len(DOCUMENT["solutions"]) > 300


@pytest.mark.usefixtures("unsolvable")
@pytest.mark.parametrize(("name", "epsilon", "outputs"), USUAL)
def test_usual_mechanisms_need_no_solver(name, epsilon, outputs):
    assert KINDS[name](epsilon, outputs=outputs).channel().outputs <= outputs


@pytest.mark.usefixtures("unsolvable")
def test_each_keeps_what_its_mechanism_guarantees():
    for mechanism in shipped()[::7]:
        channel, factor = mechanism._solution  # a channel that is not private cannot be built
        assert channel.epsilon == mechanism.epsilon, mechanism
        assert mechanism._is_kept(channel, factor), mechanism


@pytest.mark.slow
def test_each_is_what_the_solver_finds():
    for mechanism in shipped():
        agree(mechanism)


@pytest.mark.parametrize("name", KINDS)
def test_one_is_what_the_solver_finds(name):
    agree(KINDS[name](1.0, outputs=15))


def agree(mechanism):
    (known, factor), (found, other) = mechanism._solution, mechanism._find()
    x = np.linspace(-1, 1, 501)
    assert factor == pytest.approx(other, rel=1e-6), mechanism
    np.testing.assert_allclose(known.variance(x), found.variance(x), rtol=1e-4)


def test_solutions_of_another_solver_are_not_used(monkeypatch, tmp_path):
    older = tmp_path / "solutions.json"
    older.write_text(json.dumps(DOCUMENT | {"solver": SOLVER_VERSION + 1}), "utf-8")
    monkeypatch.setattr(solutions, "FILE", older)
    monkeypatch.setattr(solutions, "_solutions", solutions._solutions.__wrapped__)
    assert solutions.load(Dominant(1.0)._key(), 31) is None
